"""The files of one commit of a clone, read object by object: its configuration, attributes and hooks have no say."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from graft.errors import BadInput, FetchFailed
from graft.patching.model import SourceTree
from graft.patching.repository import Entry, Repository, bare, git_folder, object_folder


@dataclass(frozen=True)
class AtCommit:
    """The wanted files of a commit, and which of the asked-for commits are in its history (None: not known)."""

    tree: SourceTree
    history: dict[str, bool | None]


def at_commit(clone: Path, commit: str, paths: Collection[str], asked: Collection[str] = ()) -> AtCommit:
    """Files of a commit of a clone. `commit` and `asked`: 40 hex digits. Raises BadInput and FetchFailed."""
    folder = git_folder(clone)
    shallow = (folder / "shallow").exists()
    with bare(object_folder(folder)) as repository:
        kind = repository.git("cat-file", "-t", commit, check=False)
        if kind.rc != 0:
            cure = f"fetch it there: git -C {clone} fetch origin {commit}"
            raise BadInput(f"the clone has no commit {commit}", where=str(clone), cure=cure)
        if kind.stdout.strip() != "commit":
            cure = f"git -C {clone} rev-parse {commit}^{{commit}}"
            raise BadInput(f"{commit} is a {kind.stdout.strip()}, no commit", where=str(clone), cure=cure)
        try:
            return _read(repository, commit, paths, asked, shallow)
        except FetchFailed as problem:
            cure = f"git -C {clone} fetch --refetch --no-filter origin"
            raise BadInput(f"the clone lacks a part of it: {problem.what}", where=str(clone), cure=cure) from problem


def _read(
    repository: Repository, commit: str, paths: Collection[str], asked: Collection[str], shallow: bool
) -> AtCommit:
    top = repository.commit(commit).tree
    what = f"the tree of {commit} cannot be read"
    argv = ("ls-tree", "-r", "-z", "--name-only", "--full-tree", top)
    listed = repository.git(*argv, error=FetchFailed, what=what).stdout
    names = frozenset(name for name in listed.split("\0") if name)
    files: dict[str, bytes] = {}
    executable: set[str] = set()
    for path in sorted(names & set(paths)):
        mode, files[path] = repository.content(path, _entry(repository, top, path))
        executable |= {path} if mode == "100755" else set()
    history = {other: _in_history(repository, other, commit, shallow) for other in asked}
    return AtCommit(SourceTree(files, frozenset(executable), names), history)


def _entry(repository: Repository, tree: str, path: str) -> Entry:
    *folders, name = path.split("/")
    for folder in folders:
        tree = repository.tree(tree)[folder].id
    return repository.tree(tree)[name]


def _in_history(repository: Repository, other: str, commit: str, shallow: bool) -> bool | None:
    """None when the commit is not in the clone, or its history is cut off: then nothing can be said."""
    if not repository.has(other):
        return None
    code = repository.git("merge-base", "--is-ancestor", other, commit, check=False).rc
    return {0: True, 1: None if shallow else False}.get(code)
