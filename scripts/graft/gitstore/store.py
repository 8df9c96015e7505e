"""The door of this package: from what a recipe says of a source to a tree in the store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from graft.gitstore.compose import compose
from graft.gitstore.mirror import Mirrors
from graft.gitstore.submodules import Submodule, content_of
from graft.gitstore.tree import Packed, pack, tar_of
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
    """Source trees below `.graft/store`: `git/` has the mirrors, `trees/` what builds are given."""

    def __init__(self, store: Path, address: Callable[[str], str] = lambda url: url, *, offline: bool = False) -> None:
        self.mirrors = Mirrors(store / "git", address, offline=offline)
        self.trees = store / "trees"

    def tar(self, tree: str) -> Path:
        """Where a tree lies, or would lie."""
        return tar_of(self.trees, tree)

    def git(self, name: str, source: GitSource) -> GitTree:
        """Fetch and compose a git source. Raises FetchFailed and BadInput; nothing half is left in the store."""
        with bare() as scratch:
            composed = compose(self.mirrors, scratch, name, source)
            content = content_of(self.mirrors, scratch, name, composed.tree, source.url, source.submodules)
            packed = pack(self.trees, scratch, name, content)
        return GitTree(packed, composed.tree, composed.heads, tuple(content.submodules), composed.date)
