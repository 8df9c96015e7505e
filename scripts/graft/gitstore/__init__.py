"""Sources from git and from archives, as trees in the store: fetched by content, composed and proven."""

from graft.gitstore.mirror import Mirrors, Wanted
from graft.gitstore.store import GitTree, TreeStore
from graft.gitstore.submodules import Submodule
from graft.gitstore.tree import tar_of, tree_id, unpack

__all__ = ["GitTree", "Mirrors", "Submodule", "TreeStore", "Wanted", "tar_of", "tree_id", "unpack"]
