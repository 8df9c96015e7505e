"""Sources from git and from archives, as trees in the store: fetched by content, composed and proven."""

from graft.gitstore.mirror import Mirrors, Wanted
from graft.gitstore.store import GitTree, TreeStore
from graft.gitstore.submodules import Submodule
from graft.gitstore.tree import Packed, keep, newest_day, tree_id

__all__ = ["GitTree", "Mirrors", "Packed", "Submodule", "TreeStore", "Wanted", "keep", "newest_day", "tree_id"]
