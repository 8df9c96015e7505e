"""An image as files: read from an engine, and given to another one. Nothing but its own blobs, each by its hash."""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from graft import bundle
from graft.errors import BadInput, EngineMissing, FetchFailed

if TYPE_CHECKING:
    from docker import DockerClient

BLOB = re.compile(r"blobs/sha256/([0-9a-f]{64})")
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Blob:
    """One file of an image: a layer or the configuration; its name holds its hash."""

    name: str
    size: int

    @property
    def sha256(self) -> str:
        return self.name.rpartition("/")[2]


@dataclass(frozen=True)
class Saved:
    """The blobs of an image on an engine, in the order in which the engine gives them; layers: lowest first."""

    id: str
    blobs: tuple[Blob, ...]
    layers: tuple[str, ...]
    open: Callable[[], Blobs]


def list_saved(client: DockerClient, image_id: str) -> Saved:
    """Names and sizes of an image's blobs. Raises EngineMissing when the engine saves it in an unknown form."""
    sizes: dict[str, int] = {}
    manifest: Any = None
    with image_tar(client, image_id) as tar:
        for member in tar:
            if BLOB.fullmatch(member.name) and member.isreg():
                sizes[member.name] = member.size
            elif member.name == MANIFEST:
                stream = tar.extractfile(member)
                manifest = json.loads(stream.read()) if stream is not None else None
    try:
        entry = manifest[0]
        wanted = {str(entry["Config"]), *map(str, entry["Layers"])}
        blobs = tuple(Blob(name, size) for name, size in sizes.items() if name in wanted)
        layers = tuple(map(str, entry["Layers"]))
        fits = str(entry["Config"]) == _config(image_id)
    except (TypeError, KeyError, IndexError):
        blobs, layers, fits, wanted = (), (), False, set()
    if not fits or {blob.name for blob in blobs} != wanted:
        raise EngineMissing(
            f"the engine saves {image_id[:19]} in a form that Graft does not know", cure="use Docker 25 or newer"
        )
    return Saved(image_id, blobs, layers, lambda: Blobs(client, image_id))


class Blobs:
    """The blobs of an image, read again in the same order."""

    def __init__(self, client: DockerClient, image_id: str) -> None:
        self._tar = image_tar(client, image_id)

    def chunks(self, name: str) -> Iterator[bytes]:
        for member in self._tar:
            if member.name != name:
                continue
            stream = self._tar.extractfile(member)
            while stream is not None and (chunk := stream.read(bundle.CHUNK)):
                yield chunk
            return
        raise FetchFailed(f"the engine did not give {name} a second time", cure="run the same command again")


def load_saved(
    client: DockerClient,
    image_id: str,
    layers: Sequence[str],
    blobs: Iterable[tuple[str, int, Iterator[bytes]]],
) -> None:
    """Give an image to an engine, without a name. layers: names of blobs, lowest first; blobs: name, size, bytes.

    Raises BadInput when what comes out is not `image_id`.
    """
    from docker.errors import APIError, ImageNotFound

    def tar() -> Iterator[bytes]:
        for name, size, chunks in blobs:
            yield bundle.header(name, size)
            yield from chunks
            yield bundle.padding(size)
        text = json.dumps([{"Config": _config(image_id), "RepoTags": None, "Layers": list(layers)}]).encode()
        yield bundle.header(MANIFEST, len(text)) + bundle.padded(text) + b"\0" * (2 * tarfile.BLOCKSIZE)

    try:
        for line in client.api.load_image(tar()):  # type: ignore[no-untyped-call]
            if "error" in line:
                raise BadInput(f"the engine does not take the image: {line['error']}", where=image_id)
        client.images.get(image_id)
    except (APIError, ImageNotFound) as problem:
        raise BadInput(f"the engine does not take the image: {problem}", where=image_id) from problem


def _config(image_id: str) -> str:
    return f"blobs/sha256/{image_id.removeprefix('sha256:')}"


def image_tar(client: DockerClient, image_id: str) -> tarfile.TarFile:
    """What the engine saves of an image, as a stream; the caller closes it."""
    stream = io.BufferedReader(_Stream(client.api.get_image(image_id)), bundle.CHUNK)
    return tarfile.open(fileobj=stream, mode="r|")


class _Stream(io.RawIOBase):
    """Chunks as a file that is read from its start to its end."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._rest = chunks, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = chunk
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count
