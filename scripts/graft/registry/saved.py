"""An image as `docker save` streams it: the OCI layout in a tar, read once from front to back."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Protocol

from graft.errors import RegistryFailed
from graft.registry.manifest import digest_of_bytes

if TYPE_CHECKING:
    from docker import DockerClient

BLOBS = "blobs/sha256/"
#: Documents of an image (configuration, manifests); a layer is anything else.
MAX_DOCUMENT = 16_000_000
PEEK = 1 << 16
CHUNK = 1 << 21


class Source(Protocol):
    """An image that can be read."""

    @property
    def id(self) -> str:
        """As the engine names it."""

    @property
    def named_by_config(self) -> bool:
        """Whether that is the digest of the configuration (the classic store) or of a manifest (containerd's)."""

    @property
    def diff_ids(self) -> Sequence[str]:
        """The digests of its layers before compression, in order."""

    def stream(self) -> Iterator[bytes]:
        """The tar that `docker save` gives."""


@dataclass(frozen=True)
class EngineImage:
    """An image in a Docker engine."""

    client: DockerClient
    id: str
    diff_ids: Sequence[str]
    named_by_config: bool

    def stream(self) -> Iterator[bytes]:
        from requests.exceptions import RequestException

        try:
            yield from self.client.api.get_image(self.id, chunk_size=CHUNK)
        except RequestException as problem:
            raise RegistryFailed(
                "the engine stopped while it gave out the image", where=self.id[:19], cure="run the same command again"
            ) from problem


@dataclass(frozen=True)
class Saved:
    """What a stream held beside layers: config is the bytes of the image's configuration."""

    config: bytes
    documents: dict[str, bytes] = field(default_factory=dict)

    @property
    def image_id(self) -> str:
        """The digest of the configuration: the identity of the image everywhere."""
        return digest_of_bytes(self.config)

    def holds(self, engine_id: str) -> bool:
        """Whether this is the image that an engine names so: by its configuration, or by a manifest of it."""
        return engine_id == self.image_id or engine_id in self.documents


def read_saved(source: Source, on_layer: Callable[[str, IO[bytes]], None]) -> Saved:
    """Go through the stream; `on_layer` gets each layer's file digest and bytes (which may be left unread).

    Raises RegistryFailed for a stream that is cut short or is no image.
    """
    documents: dict[str, bytes] = {}
    listing: Any = None
    where = f"the engine's export of {source.id[:19]}"
    try:
        with _tar(source.stream()) as tar:
            for member in tar:
                raw = tar.extractfile(member) if member.isfile() else None
                if raw is None:
                    continue
                with io.BufferedReader(raw, PEEK) as stream:  # type: ignore[type-var]
                    if member.name == "manifest.json":
                        listing = json.loads(stream.read(MAX_DOCUMENT))
                    elif member.name.startswith(BLOBS):
                        digest = "sha256:" + member.name.removeprefix(BLOBS)
                        if _is_document(stream, member.size):
                            documents[digest] = stream.read()
                        else:
                            on_layer(digest, stream)
    except (tarfile.TarError, EOFError, ValueError) as problem:
        raise RegistryFailed("cut short, or not an image", where=where, cure="run the same command again") from problem
    for digest, data in documents.items():
        if digest_of_bytes(data) != digest:
            raise RegistryFailed("a document's bytes are not those of its name", where=where)
    try:
        (image,) = listing
        config = documents["sha256:" + image["Config"].removeprefix(BLOBS)]
    except (TypeError, ValueError, KeyError) as problem:
        raise RegistryFailed("cut short, or not one image", where=where, cure="run the same command again") from problem
    saved = Saved(config, documents)
    if not saved.holds(source.id):
        raise RegistryFailed(f"the engine gave another image: {saved.image_id[:19]}", where=where)
    return saved


def _is_document(stream: io.BufferedReader[Any], size: int) -> bool:
    head = stream.peek(512)
    return size <= MAX_DOCUMENT and head[:1] == b"{" and head[257:262] != b"ustar"


@contextmanager
def _tar(chunks: Iterator[bytes]) -> Iterator[tarfile.TarFile]:
    with closing(_Stream(chunks)) as stream, tarfile.open(fileobj=stream, mode="r|", bufsize=CHUNK) as tar:  # type: ignore[call-overload]
        yield tar


class _Stream:
    """Pieces of bytes as something to read from."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._held = memoryview(b"")

    def read(self, count: int) -> bytes:
        found = []
        while count > 0:
            if not self._held:
                try:
                    self._held = memoryview(next(self._chunks))
                except StopIteration:
                    break
                continue
            piece = self._held[:count]
            self._held = self._held[len(piece) :]
            count -= len(piece)
            found.append(piece)
        return b"".join(found)

    def close(self) -> None:
        ending = getattr(self._chunks, "close", None)
        if ending is not None:
            ending()
