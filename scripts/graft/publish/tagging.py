"""Tags. A registry has no compare-and-swap: one writer at a time here, and everything is read back."""

from __future__ import annotations

from graft.errors import RegistryFailed
from graft.registry.client import Registry, TagChanged
from graft.registry.manifest import Document

#: Seconds after which an immutable tag is looked at again: longer than another push needs between its own look at the
#: tag and its write.
SETTLE = 1.0


def put_immutable(registry: Registry, document: Document, tag: str) -> bool:
    """Give a manifest its tag for ever; False when it had it. Raises RegistryFailed when another has it, or wins it."""
    found = registry.digest_at(tag)
    if found == document.digest:
        return False
    if found is not None:
        raise taken(registry, tag, found)
    try:
        registry.put_manifest(document, tag)
    except TagChanged:
        found = registry.digest_at(tag)
    else:
        registry.pause(SETTLE)
        found = registry.digest_at(tag)
    if found != document.digest:
        raise RegistryFailed(
            f"another push, of {found}, won the tag at the same moment; this one, of {document.digest}, lost it",
            where=registry.name(tag),
            cure="run the same command again: it says whose image the tag is",
        )
    return True


def taken(registry: Registry, tag: str, found: str) -> RegistryFailed:
    """The error for an immutable tag that another image has."""
    return RegistryFailed(
        f"the tag exists with another image: {found}; an immutable tag is never moved",
        where=registry.name(tag),
        cure="the same inputs gave other bytes: `graft diff` the two; a changed input gives another tag by itself",
    )


def move(registry: Registry, document: Document, tag: str) -> bool:
    """Point a channel's tag at a manifest; False when it did already.

    Raises RegistryFailed when another moves it at the same time.
    """
    if registry.digest_at(tag) == document.digest:
        return False
    try:
        registry.put_manifest(document, tag)
    except TagChanged:
        found = registry.digest_at(tag)
        raise RegistryFailed(
            f"another command moved the channel to {found} at the same moment",
            where=registry.name(tag),
            cure="graft history shows who did; run the same command again if yours shall count",
        ) from None
    return True
