"""What is attached to an image: OCI referrers, and for registries without that interface the specification's tags."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from graft.errors import RegistryFailed
from graft.registry.blobs import BytesBlob, put_blob
from graft.registry.client import Registry, TagChanged
from graft.registry.manifest import (
    EMPTY,
    EMPTY_BYTES,
    INDEX,
    Descriptor,
    Document,
    artifact,
    descriptor,
    index,
)

#: How often the list is written again when somebody else wrote it at the same time.
ROUNDS = 5


def fallback_tag(digest: str) -> str:
    """The tag under which a registry without the interface keeps the list: `sha256-<hex>`."""
    return digest.replace(":", "-")


@dataclass(frozen=True)
class Attachment:
    """An artifact with one file, of the media type that is also its own type."""

    kind: str
    data: bytes
    annotations: Mapping[str, str]


def attach(registry: Registry, subject: Descriptor, attachments: Sequence[Attachment]) -> list[Document]:
    """Attach artifacts to a manifest; attaching the same again changes nothing. Raises RegistryFailed."""
    put_blob(registry, BytesBlob(EMPTY_BYTES))
    made, unlisted = [], []
    for entry in attachments:
        blob = BytesBlob(entry.data)
        put_blob(registry, blob)
        document = artifact(entry.kind, [blob.descriptor(entry.kind)], subject=subject, annotations=entry.annotations)
        reply = registry.put_manifest(document)
        made.append(document)
        if reply.headers.get("OCI-Subject") != subject.digest:
            unlisted.append(document.descriptor)
    if unlisted:
        _list_by_tag(registry, subject.digest, unlisted)
    return made


def referrers(registry: Registry, digest: str) -> list[Descriptor]:
    """Everything that is attached to a manifest. Raises RegistryFailed."""
    where = f"what is attached to {registry.name(digest)}"
    reply = registry.call("GET", f"referrers/{digest}", what=where, headers={"Accept": INDEX}, final=(404,))
    found: Iterable[Descriptor] = ()
    if reply.status == 200:
        try:
            entries = json.loads(reply.body)["manifests"]
        except (ValueError, KeyError, TypeError):
            raise RegistryFailed("the registry's list is none", where=where) from None
        found = [descriptor(entry, where) for entry in entries]
    # A list may also have been written by tag before the registry learned the interface.
    by_digest = {entry.digest: entry for entry in (*_by_tag(registry, digest), *found)}
    return list(by_digest.values())


def artifacts_of(registry: Registry, digest: str, artifact_type: str) -> list[Document]:
    """The attached artifacts of one kind. Raises RegistryFailed."""
    found = []
    for entry in referrers(registry, digest):
        if entry.artifact_type not in (None, "", artifact_type, EMPTY):
            continue
        made = registry.manifest(entry.digest)
        if made is None:
            raise RegistryFailed("is listed as attached and is not there", where=registry.name(entry.digest))
        content = made.content(registry.name(entry.digest))
        # The list is only a hint; what is attached says itself what it is and what it is about.
        if content.get("artifactType") == artifact_type and (content.get("subject") or {}).get("digest") == digest:
            found.append(made)
    return found


def _by_tag(registry: Registry, digest: str) -> list[Descriptor]:
    tag = fallback_tag(digest)
    found = registry.manifest(tag)
    if found is None:
        return []
    entries = found.content(registry.name(tag)).get("manifests") or []
    return [descriptor(entry, registry.name(tag)) for entry in entries]


def _list_by_tag(registry: Registry, digest: str, wanted: Sequence[Descriptor]) -> None:
    """Add entries to the list under the tag; read back, because somebody may write it at the same time."""
    tag = fallback_tag(digest)
    for _ in range(ROUNDS):
        entries = _by_tag(registry, digest)
        known = {entry.digest for entry in entries}
        lacking = [entry for entry in wanted if entry.digest not in known]
        if not lacking:
            return
        try:
            registry.put_manifest(index([*entries, *lacking]), tag)
            return
        except TagChanged:
            continue
    raise RegistryFailed("others write the list of what is attached all the time", where=registry.name(tag))
