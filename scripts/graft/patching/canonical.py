"""The one form of a patch file: the message, a line `---`, and the bytes that git writes for the difference.

The context is three lines; more, in fixed steps, only where with three the patch would not be `exact` on its own base
because its lines stand in more than one place.

Everything above the first `diff --git` is the head. It is kept as it is when it ends with a line `---`, or when there
is none; other heads (a mail, a diffstat) are written anew by `graft patch refresh`.
"""

from __future__ import annotations

import email.parser
import email.policy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from graft.patching.judge import judge
from graft.patching.model import PatchVerdict, SourceTree, Verdict
from graft.patching.repository import Files, NewCommit, Repository, bare
from graft.patchset import Patch

END = b"---\n"
CONTEXTS = (3, 6, 12, 25, 50)
MAIL = re.compile(rb"^From [0-9a-f]{40} ")
TAG = re.compile(r"^(?:\[[^\]]*PATCH[^\]]*\]\s*)+")
#: A line of a diffstat, as `git format-patch` puts them between `---` and the diff.
STAT = re.compile(rb"^ (?:.+ \| +(?:\d+ [+-]*|Bin .*)|\d+ files? changed.*|(?:create|delete|rename|mode) .*)$")
#: At the left margin of a message, the reader would take these for a diff.
LOOKS_LIKE_A_DIFF = re.compile(rb"^(?:diff --git |--- |\+\+\+ |@@ |Index: |From [0-9a-f]{40} )", re.M)


def split_patch(data: bytes) -> tuple[bytes, bytes]:
    """The head of a patch file, and everything from the first `diff --git` on."""
    at = 0 if data.startswith(b"diff --git ") else data.find(b"\ndiff --git ") + 1
    return (data[:at], data[at:]) if at or data.startswith(b"diff --git ") else (data, b"")


def message_of(head: bytes) -> bytes:
    """The message in a head, whatever form it has. Of a canonical one, the very bytes above the line `---`."""
    if MAIL.match(head):
        return _mail_message(head)
    if head == END or head.endswith(b"\n" + END):
        return head[: -len(END)]
    text, mark, below = head.rpartition(b"\n" + END)
    if mark and all(not line.strip() or STAT.match(line) for line in below.split(b"\n")):
        return text + b"\n"
    return head.strip() + b"\n" if head.strip() else b""


def _mail_message(head: bytes) -> bytes:
    mail = email.parser.BytesParser(policy=email.policy.default).parsebytes(head.partition(b"\n")[2])
    subject = TAG.sub("", " ".join(str(mail["Subject"] or "").split()))
    payload = mail.get_payload(decode=True)
    body = (payload if isinstance(payload, bytes) else b"").replace(b"\r\n", b"\n")
    above = body.split(b"\n" + END)[0] if not body.startswith(END) else b""
    return subject.encode() + b"\n" + (b"\n" + above.strip() + b"\n" if above.strip() else b"")


def head_of(message: bytes) -> bytes:
    """The head of a patch file with a message; none for none."""
    return message + (b"" if message.endswith(b"\n") else b"\n") + END if message else b""


def harmless(message: bytes) -> bytes:
    """A message in which nothing looks like a diff: such lines are indented."""
    return LOOKS_LIKE_A_DIFF.sub(lambda found: b" " + found[0], message)


@dataclass(frozen=True)
class Change:
    """What a patch makes of the files that it touches, and its message."""

    patch: Patch
    message: bytes
    before: SourceTree
    after: SourceTree


def patch_files(changes: Sequence[Change]) -> list[bytes]:
    """The canonical file of each change; empty where nothing differs."""
    if not changes:
        return []
    states = [files_of(side) for change in changes for side in (change.before, change.after)]
    with bare() as repository:
        trees = [
            tree for _commit, tree in repository.write("refs/graft/states", [NewCommit(state) for state in states])
        ]
        sides = zip(changes, trees[::2], trees[1::2], strict=True)
        return [_exact(repository, change, old, new) if old != new else b"" for change, old, new in sides]


def chain(patches: Sequence[Patch], messages: Sequence[bytes], states: Sequence[SourceTree]) -> list[Change]:
    """Changes on top of each other. states: one more than there are patches."""
    return [Change(*change) for change in zip(patches, messages, states, states[1:], strict=False)]


def _exact(repository: Repository, change: Change, old: str, new: str) -> bytes:
    """With the least context that makes it exact; with the usual one when none does."""
    head = head_of(change.message)
    usual = head + repository.diff(old, new, CONTEXTS[0])
    for context in CONTEXTS:
        data = usual if context == CONTEXTS[0] else head + repository.diff(old, new, context)
        if judge(change.before, [replace(change.patch, data=data)])[0].verdict is Verdict.EXACT:
            return data
    return usual


def files_of(tree: SourceTree) -> Files:
    """The files of a tree with their modes."""
    return {path: ("100755" if path in tree.executable else "100644", data) for path, data in tree.files.items()}


def advance(tree: SourceTree, verdict: PatchVerdict) -> SourceTree:
    """The tree after a patch that applies."""
    return changed(tree, verdict.result, verdict.executable)


def changed(tree: SourceTree, result: Mapping[str, bytes | None], executable: frozenset[str]) -> SourceTree:
    """The tree with some files exchanged; None takes one away."""
    files = {path: data for path, data in {**tree.files, **result}.items() if data is not None}
    names = tree.all_names
    gone = {path for path, data in result.items() if data is None and path in names}
    if gone or not all(path in names for path in files):
        names = {*names, *files} - gone
    return SourceTree(files, executable & files.keys(), names)


def tree_of(files: Files) -> SourceTree:
    """Files with their modes, as a tree to judge patches on."""
    executable = frozenset(path for path, (mode, _) in files.items() if mode == "100755")
    return SourceTree({path: data for path, (_, data) in files.items()}, executable)
