"""What is attached to a published image, and the kinds it comes in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from graft.errors import RegistryFailed
from graft.gate import Receipt
from graft.registry.client import Registry
from graft.registry.manifest import Descriptor, Document, digest_of_bytes
from graft.registry.referrers import Attachment, artifacts_of, attach

Kind = Literal["receipt", "lock", "sbom", "provenance"]
KINDS: tuple[Kind, ...] = ("receipt", "lock", "sbom", "provenance")
#: The artifact type, which is also the media type of the one blob in it.
TYPES: Mapping[Kind, str] = {
    "receipt": "application/vnd.graft.receipt.v1+json",
    "lock": "application/vnd.graft.lock.v2+yaml",
    "sbom": "application/vnd.cyclonedx+json",
    "provenance": "application/vnd.in-toto+json",
}


def is_passing(receipt: Receipt) -> bool:
    """Whether this is the receipt of a passed gate: of the tests without a GPU, which is what tags are moved by."""
    return receipt.verdict == "pass" and receipt.tier == "cpu" and not receipt.contradictions()


@dataclass(frozen=True)
class Evidence:
    """The documents, as they are stored."""

    documents: Mapping[Kind, bytes]

    @property
    def digests(self) -> dict[str, str]:
        return {kind: digest_of_bytes(self.documents[kind]) for kind in KINDS}

    def attach(self, registry: Registry, subject: Descriptor) -> None:
        """Attach all of them. Raises RegistryFailed."""
        attach(registry, subject, [Attachment(TYPES[kind], self.documents[kind], title(kind)) for kind in KINDS])


def title(kind: str) -> dict[str, str]:
    """The annotation by which tools name the file."""
    return {"org.opencontainers.image.title": f"graft-{kind}"}


def attached(registry: Registry, digest: str, kind: Kind, wanted: str | None = None) -> bytes:
    """One document that is attached to a manifest.

    wanted: its digest, when a signature names it; else the last one that is listed counts.
    Raises RegistryFailed: none there, or none of the wanted bytes.
    """
    where = registry.name(digest)
    found = [_only_blob(artifact, where) for artifact in artifacts_of(registry, digest, TYPES[kind])]
    if not found:
        raise RegistryFailed(
            f"has no {kind} attached", where=where, cure="it was not published by graft push, or in part"
        )
    chosen = found[-1] if wanted is None else next((blob for blob in found if blob.digest == wanted), None)
    if chosen is None:
        raise RegistryFailed(
            f"the attached {kind} is not the one that was signed",
            where=where,
            cure="do not use it; ask who published it",
        )
    return registry.blob(chosen.digest, chosen.size, f"the {kind}")


def _only_blob(document: Document, where: str) -> Descriptor:
    blobs = document.layers(where)
    if len(blobs) != 1:
        raise RegistryFailed("an attached document has not exactly one file", where=where)
    return blobs[0]
