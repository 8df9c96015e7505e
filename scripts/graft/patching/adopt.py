"""What a commit of upstream says about itself: its files without its tests, a title, a name, a license."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from graft.errors import BadInput
from graft.patching.canonical import Change, harmless, patch_files, tree_of
from graft.patching.repository import Commit, Files, Repository
from graft.patching.upstream import Upstream
from graft.patchset import PATCH_ID, Patch, PatchRecord

TEST_FOLDERS = frozenset({"test", "tests"})
TEST_FILE = re.compile(
    r"^(?:conftest\.py|test_.*\.(?:py|c|cc|cpp|cxx|cu|cuh|h|sh)|.*_test\.(?:py|c|cc|cpp|cxx|cu|go))$"
)
#: `[Bugfix][V1] Title (#123)`: what hosts and projects put around a title.
TAGS = re.compile(r"^(?:\s*\[[^\]]*\])+\s*|\s*\(#\d+\)\s*$")
ID_LENGTH = 50
SPDX = re.compile(rb"SPDX-License-Identifier:\s*([A-Za-z0-9.+()-]+(?: (?:AND|OR|WITH) [A-Za-z0-9.+()-]+)*)")
LICENSE_FILES = ("LICENSE", "LICENSE.txt", "LICENSE.md", "COPYING")
#: Words of a license's text that no other of those here has, all of them.
TEXTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Apache-2.0", ("apache license", "version 2.0, january 2004")),
    ("BSD-3-Clause", ("redistribution and use in source and binary forms", "neither the name")),
    ("MIT", ("permission is hereby granted, free of charge", 'the software is provided "as is"')),
)


@dataclass(frozen=True)
class Difference:
    """The files of a difference that are taken, before and after it; and those that were left out."""

    before: Files
    after: Files
    left_out: tuple[str, ...]


def difference(upstream: Upstream, base: str, *, without_tests: bool) -> Difference:
    """What the head changes. Raises BadInput when nothing is left, or for a link or a submodule."""
    repository = upstream.repository
    old, new = repository.commit(base).tree, upstream.head.tree
    changed = list(repository.changes(old, new))
    kept = [entry for entry in changed if not (without_tests and is_test(entry[0]))]
    if not kept:
        what = "nothing but tests changes" if changed else "nothing changes"
        raise BadInput(f"{what} between {base} and {upstream.head.id}", where="--head")
    repository.prefetch(old, new, [path for path, _, _ in kept])
    return Difference(
        {path: repository.content(path, was) for path, was, _ in kept if was is not None},
        {path: repository.content(path, now) for path, _, now in kept if now is not None},
        tuple(path for path, _, _ in changed if without_tests and is_test(path)),
    )


def is_test(path: str) -> bool:
    """Whether a path is one of upstream's tests, by its name."""
    *folders, name = path.split("/")
    return bool(TEST_FOLDERS.intersection(folders)) or TEST_FILE.match(name) is not None


def patch_file(record: PatchRecord, message: str, found: Difference) -> bytes:
    """The canonical patch file of a difference."""
    cleaned = "\n".join(line.rstrip() for line in message.replace("\r\n", "\n").strip().split("\n"))
    patch = Patch(record, b"", Path(record.file))
    change = Change(patch, harmless(cleaned.encode()), tree_of(found.before), tree_of(found.after))
    return patch_files([change])[0]


def is_one_commit(head: Commit, base: str) -> bool:
    """Whether the head alone makes the difference, so that its message describes it."""
    return head.parents == (base,)


def id_of(title: str) -> str:
    """A name for the series, from a title; empty when nothing is left of it."""
    words = re.findall(r"[a-z0-9]+", TAGS.sub("", TAGS.sub("", title)).lower())
    while words and words[0].isdigit():
        words = words[1:]
    made = ""
    for word in words:
        if made and len(made) + 1 + len(word) > ID_LENGTH:
            break
        made = f"{made}-{word}" if made else word[:ID_LENGTH]
    return made if PATCH_ID.fullmatch(made) else ""


def license_of(upstream: Upstream, found: Difference) -> str | None:
    """The license that the touched files name, if those that name one agree; else that of the whole; None: unknown."""
    named = {name for _, content in _newest(found) if (name := _spdx(content)) is not None}
    if named:
        return named.pop() if len(named) == 1 else None
    return _of_the_whole(upstream.repository, upstream.head.tree)


def _newest(found: Difference) -> Iterable[tuple[str, bytes]]:
    newest: Mapping[str, tuple[str, bytes]] = {**found.before, **found.after}
    return newest.values()


def _spdx(content: bytes) -> str | None:
    match = SPDX.search(b"\n".join(content.split(b"\n")[:20]))
    return match[1].decode("ascii") if match else None


def _of_the_whole(repository: Repository, tree: str) -> str | None:
    entries = repository.tree(tree)
    names = [name for name in LICENSE_FILES if name in entries and entries[name].mode in ("100644", "100755")]
    if not names:
        return None
    text = " ".join(repository.content(names[0], entries[names[0]])[1].decode("utf-8", "replace").lower().split())
    return next((name for name, words in TEXTS if all(word in text for word in words)), None)
