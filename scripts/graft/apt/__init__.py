"""Debian packages, exactly: where this host's archives are, what they offer, and pins for a lock."""

from __future__ import annotations

from graft.apt.archive import Archive, DebPin, DebSet
from graft.apt.sources import Mirrors, Source, host_mirrors, host_sources, pockets_of

__all__ = ["Archive", "DebPin", "DebSet", "Mirrors", "Source", "host_mirrors", "host_sources", "pockets_of"]
