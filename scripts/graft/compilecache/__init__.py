"""The compile cache that machines share: what ccache keeps of each compiled object, in Redis."""

from __future__ import annotations

from graft.compilecache.entries import entries_in
from graft.compilecache.names import compilers_of, namespace_of
from graft.compilecache.remote import Brought, Remote, Unusable, connect

__all__ = ["Brought", "Remote", "Unusable", "compilers_of", "connect", "entries_in", "namespace_of"]
