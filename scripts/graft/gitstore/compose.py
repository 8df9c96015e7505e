"""The commit of a component, and the heads that are merged onto it in their order: one tree, the same everywhere."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass

from graft.errors import BadInput, FetchFailed
from graft.gitstore.mirror import SHORT, Mirrors, Wanted
from graft.patching.repository import EPOCH, Repository
from graft.sources import GitSource, Pull

WHO = f"graft <graft@localhost> {EPOCH} +0000"


@dataclass(frozen=True)
class Composed:
    """What commit and heads give: the tree, the merge commits' line of heads, the newest day among them (UTC)."""

    tree: str
    heads: tuple[str, ...]
    date: str


def compose(mirrors: Mirrors, scratch: Repository, name: str, source: GitSource, *, deep: bool = False) -> Composed:
    """Fetch and merge; the objects of the result lie in `scratch`, which reads the mirrors' as well.

    deep: with the history of the commit, also where nothing is merged onto it.

    Raises FetchFailed for what cannot be had, and when the tree is not the recipe's; BadInput for a head that does not
    merge, and for a commit that does not descend from its `base`.
    """
    merges = bool(source.pulls)
    first = Wanted(source.url, source.commit, name, source.ref, deep=deep or merges or source.base is not None)
    link(scratch, mirrors.bring(first))
    if source.base is not None:
        _descends(mirrors, scratch, name, source, source.base)
    at = scratch.commit(source.commit).tree
    commit, heads = source.commit, []
    for pull in source.pulls:
        head = _head(mirrors, scratch, name, source, pull)
        heads.append(head)
        at = _merged(scratch, name, pull, commit, head)
        commit = _committed(scratch, at, (commit, head))
    if source.tree is not None and source.tree != at:
        heads_said = f" and {len(heads)} heads" if heads else ""
        raise FetchFailed(
            f"{name}: commit {source.commit[:SHORT]}{heads_said} give tree {at}, the recipe says {source.tree}",
            cure="a head, its order or the tree in the recipe is another one than was meant: compare each of them",
        )
    return Composed(at, tuple(heads), _date(scratch, (source.commit, *heads)))


def link(scratch: Repository, mirror: Repository) -> None:
    """Let the scratch repository read the objects of a mirror, and where the mirror's history ends."""
    info = scratch.folder / "objects" / "info"
    info.mkdir(exist_ok=True)
    alternates = info / "alternates"
    lines = alternates.read_text(encoding="utf-8").splitlines() if alternates.is_file() else []
    line = str((mirror.folder / "objects").resolve())
    if line not in lines:
        alternates.write_text("".join(f"{entry}\n" for entry in [*lines, line]), encoding="utf-8")
    ends = [repository.folder / "shallow" for repository in (scratch, mirror)]
    known = {sha for file in ends if file.is_file() for sha in file.read_text(encoding="ascii").split()}
    if known:
        ends[0].write_text("".join(f"{sha}\n" for sha in sorted(known)), encoding="ascii")


def _head(mirrors: Mirrors, scratch: Repository, name: str, source: GitSource, pull: Pull) -> str:
    if pull.head is None:
        raise BadInput(f"{name}: {pull.name} has no head", cure="give head: the commit that is merged, 40 hex digits")
    ref = f"refs/pull/{pull.number}/head" if pull.number is not None else None
    wanted = Wanted(pull.url or source.url, pull.head, f"{name} {pull.name}", ref, deep=True)
    link(scratch, mirrors.bring(wanted))
    return pull.head


def _merged(scratch: Repository, name: str, pull: Pull, onto: str, head: str) -> str:
    """The tree of a merge by git's ort strategy. Raises BadInput with the files that do not merge."""
    options = ("-c", "merge.renames=true", "-c", "merge.renameLimit=0", "-c", "merge.directoryRenames=conflict")
    done = scratch.git(*options, "merge-tree", "--write-tree", "--name-only", "--no-messages", onto, head, check=False)
    lines = done.stdout.splitlines()
    if done.rc == 0 and lines and re.fullmatch(r"[0-9a-f]{40}", lines[0]):
        return lines[0]
    if done.rc == 1:
        files = ", ".join(dict.fromkeys(line for line in lines[1:] if line))
        raise BadInput(
            f"{name}: {pull.name} at {head[:SHORT]} does not merge onto what comes before it: {files}",
            cure="another order, a rebased head, or one patch in patches/ that replaces it",
        )
    said = done.stderr.strip()
    if "unrelated histories" in said:
        raise BadInput(
            f"{name}: {pull.name} at {head[:SHORT]} has no history in common with the commit",
            cure="check that both are of one project",
        )
    raise FetchFailed(
        f"{name}: {pull.name} cannot be merged", tail=said, cure="git 2.38 or newer is needed; check `git --version`"
    )


def _committed(scratch: Repository, tree: str, parents: Sequence[str]) -> str:
    """A merge commit, so that the next head finds its merge base; nobody but Graft made it, on no day."""
    lines = [f"tree {tree}", *(f"parent {parent}" for parent in parents), f"author {WHO}", f"committer {WHO}", "", ""]
    data = "\n".join(lines).encode()
    return scratch.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=data).stdout.strip()


def _descends(mirrors: Mirrors, scratch: Repository, name: str, source: GitSource, base: str) -> None:
    wanted = Wanted(source.url, base, f"{name} base", source.ref, deep=True)
    link(scratch, mirrors.bring(wanted))
    if scratch.git("merge-base", "--is-ancestor", base, source.commit, check=False).rc != 0:
        raise BadInput(
            f"{name}: commit {source.commit[:SHORT]} does not descend from its base {base[:SHORT]}",
            cure="the branch was rebased or is another one; pin a commit on top of the base, or change base",
        )


def _date(scratch: Repository, commits: Sequence[str]) -> str:
    """The newest committer's day, as `2026-06-21`, in UTC: it needs no clock."""
    seconds = scratch.git("log", "--no-walk=unsorted", "--format=%ct", *commits).stdout.split()
    return datetime.datetime.fromtimestamp(max(map(int, seconds)), datetime.UTC).date().isoformat()
