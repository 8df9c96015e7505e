"""OCI documents as plain data, and their one canonical form: the same image always has the same manifest bytes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graft.errors import RegistryFailed

IMAGE = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
DOCKER_IMAGE = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
EMPTY = "application/vnd.oci.empty.v1+json"
EMPTY_BYTES = b"{}"
LAYER_GZIP = "application/vnd.oci.image.layer.v1.tar+gzip"
LAYER_ZSTD = "application/vnd.oci.image.layer.v1.tar+zstd"
ACCEPT = ", ".join((IMAGE, INDEX, DOCKER_IMAGE, DOCKER_LIST))


def digest_of_bytes(data: bytes) -> str:
    """`sha256:...` of bytes."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def canonical(data: Mapping[str, Any]) -> bytes:
    """JSON in one form only."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


@dataclass(frozen=True)
class Descriptor:
    """What points to content: media type, digest, size in bytes."""

    media_type: str
    digest: str
    size: int
    annotations: Mapping[str, str] = field(default_factory=dict)
    artifact_type: str | None = None

    def as_dict(self) -> dict[str, Any]:
        data: dict[str, Any] = {"mediaType": self.media_type, "digest": self.digest, "size": self.size}
        if self.annotations:
            data["annotations"] = dict(self.annotations)
        if self.artifact_type:
            data["artifactType"] = self.artifact_type
        return data


def descriptor(data: object, where: str) -> Descriptor:
    """A descriptor as a registry gave it. Raises RegistryFailed."""
    found = data if isinstance(data, dict) else {}
    kind, digest, size = found.get("mediaType"), found.get("digest"), found.get("size")
    notes, artifact_type = found.get("annotations") or {}, found.get("artifactType") or None
    if (
        not isinstance(kind, str)
        or not isinstance(digest, str)
        or type(size) is not int
        or not isinstance(notes, dict)
        or not isinstance(artifact_type, str | None)
    ):
        raise RegistryFailed("holds a descriptor that is none", where=where)
    return Descriptor(kind, digest, size, {str(k): str(v) for k, v in notes.items()}, artifact_type)


@dataclass(frozen=True)
class Document:
    """A manifest or an index, with the bytes that its digest is of."""

    media_type: str
    data: bytes
    artifact_type: str | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        return digest_of_bytes(self.data)

    @property
    def descriptor(self) -> Descriptor:
        return Descriptor(self.media_type, self.digest, len(self.data), self.annotations, self.artifact_type)

    def content(self, where: str) -> dict[str, Any]:
        """The JSON. Raises RegistryFailed."""
        try:
            found = json.loads(self.data)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise RegistryFailed("the manifest is no JSON object", where=where)
        return found

    def layers(self, where: str) -> list[Descriptor]:
        """The layers of an image or the blobs of an artifact. Raises RegistryFailed."""
        found = self.content(where).get("layers")
        if not isinstance(found, list):
            raise RegistryFailed("the manifest lists no layers", where=where)
        return [descriptor(entry, where) for entry in found]

    def config(self, where: str) -> Descriptor:
        """The image's configuration; its digest is the image id. Raises RegistryFailed."""
        return descriptor(self.content(where).get("config"), where)

    @property
    def is_index(self) -> bool:
        return self.media_type in (INDEX, DOCKER_LIST)


def image_manifest(config: Descriptor, layers: Sequence[Descriptor]) -> Document:
    """The manifest of an image."""
    data = {
        "schemaVersion": 2,
        "mediaType": IMAGE,
        "config": config.as_dict(),
        "layers": [layer.as_dict() for layer in layers],
    }
    return Document(IMAGE, canonical(data))


def artifact(
    artifact_type: str,
    blobs: Sequence[Descriptor],
    *,
    subject: Descriptor | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Document:
    """The manifest of something that is no image; `subject` is the image that it is about."""
    notes = dict(annotations or {})
    data: dict[str, Any] = {
        "schemaVersion": 2,
        "mediaType": IMAGE,
        "artifactType": artifact_type,
        "config": {"mediaType": EMPTY, "digest": digest_of_bytes(EMPTY_BYTES), "size": len(EMPTY_BYTES)},
        "layers": [blob.as_dict() for blob in blobs],
    }
    if subject is not None:
        data["subject"] = {"mediaType": subject.media_type, "digest": subject.digest, "size": subject.size}
    if notes:
        data["annotations"] = notes
    return Document(IMAGE, canonical(data), artifact_type, notes)


def index(entries: Sequence[Descriptor]) -> Document:
    """An index of manifests."""
    data = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry.as_dict() for entry in entries]}
    return Document(INDEX, canonical(data))
