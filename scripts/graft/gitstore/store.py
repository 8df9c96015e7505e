"""The door of this package: from what a recipe says of a source to a tree in the store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from graft.gitstore.compose import compose
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
    """

    packed: Packed
    merged: str
    heads: tuple[str, ...]
    submodules: tuple[Submodule, ...]
    date: str


class TreeStore:
    """Source trees in `.graft/store`, files among its other ones; `git/` has the mirrors."""

    def __init__(self, store: Path, address: Callable[[str], str] = lambda url: url, *, offline: bool = False) -> None:
        self.mirrors = Mirrors(store / "git", address, offline=offline)
        self.root = store

    def git(self, name: str, source: GitSource) -> GitTree:
        """Fetch and compose a git source. Raises FetchFailed and BadInput; nothing half is left in the store."""
        with bare() as scratch:
            composed = compose(self.mirrors, scratch, name, source)
            content = content_of(self.mirrors, scratch, name, composed.tree, source.url, source.submodules)
            packed = pack(self.root, scratch, name, content)
        return GitTree(packed, composed.tree, composed.heads, tuple(content.submodules), composed.date)

    def archive(self, name: str, file: Path) -> tuple[Packed, str]:
        """The files of an archive as a tree, and their newest day. Raises BadInput for an archive that is no source."""
        return keep(self.root, file, name), newest_day(file, name)
