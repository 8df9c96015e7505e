"""The door of this package: from what a recipe says of a source to a tree in the store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from graft.errors import FetchFailed
from graft.gitstore.compose import compose
from graft.gitstore.describe import describe
from graft.gitstore.mirror import Mirrors
from graft.gitstore.submodules import Submodule, content_of
from graft.gitstore.tree import Packed, keep, newest_day, pack
from graft.patching.repository import bare
from graft.sources import GitSource


@dataclass(frozen=True)
class GitTree:
    """What a git source is made of.

    merged: the tree of commit and heads, as git has it; packed: the same with its submodules in place.
    date:   the newest day among the commits.
    version: what the tags before the commit make of it, where that was asked for.
    """

    packed: Packed
    merged: str
    heads: tuple[str, ...]
    submodules: tuple[Submodule, ...]
    date: str
    version: str | None = None


class TreeStore:
    """Source trees in `.graft/store`, files among its other ones; `git/` has the mirrors."""

    def __init__(self, store: Path, address: Callable[[str], str] = lambda url: url, *, offline: bool = False) -> None:
        self.mirrors = Mirrors(store / "git", address, offline=offline)
        self.root = store

    def git(self, name: str, source: GitSource, *, versioned: bool = False) -> GitTree:
        """Fetch and compose a git source. Raises FetchFailed and BadInput; nothing half is left in the store.

        versioned: also ask its history and its host's tags for the version.
        """
        with bare() as scratch:
            try:
                composed = compose(self.mirrors, scratch, name, source, deep=versioned)
                version = describe(self.mirrors, scratch, name, source, composed.tree) if versioned else None
            except FetchFailed as problem:
                if not versioned:
                    raise
                raise _with_version(problem, name) from problem
            content = content_of(self.mirrors, scratch, name, composed.tree, source.url, source.submodules)
            packed = pack(self.root, scratch, name, content)
        return GitTree(packed, composed.tree, composed.heads, tuple(content.submodules), composed.date, version)

    def archive(self, name: str, file: Path) -> tuple[Packed, str]:
        """The files of an archive as a tree, and their newest day. Raises BadInput for an archive that is no source."""
        return keep(self.root, file, name), newest_day(file, name)


def _with_version(problem: FetchFailed, name: str) -> FetchFailed:
    """The same, with the way out: a version that is given needs neither history nor tags."""
    cure = f"{problem.cure}. With components.{name}.version in the recipe neither history nor tags are asked for"
    return FetchFailed(problem.what, where=problem.where, cure=cure, tail=problem.tail)
