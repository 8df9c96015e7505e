"""An image's layers and configuration into a repository, and the manifest that names them; no tag is touched."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from graft.errors import RegistryFailed
from graft.registry.blobs import BytesBlob, FileBlob, put_blob
from graft.registry.client import Progress, Registry
from graft.registry.compress import LEVEL, Compression, Packed, pack
from graft.registry.manifest import CONFIG, Descriptor, Document, descriptor, image_manifest
from graft.registry.saved import Source, read_saved

#: Layers that are sent at once, while the next one is compressed; also how many lie on disk.
AT_ONCE = 2


@dataclass(frozen=True)
class Sent:
    """An image whose bytes are all in the repository. image_id: digest of the configuration."""

    manifest: Document
    image_id: str
    config: bytes
    new_bytes: int


class Memory:
    """What earlier pushes found out, so that a layer is compressed once: only hints, each is asked of the registry."""

    def __init__(self, folder: Path, kind: Compression) -> None:
        self.folder = folder
        self._kind = kind
        self._file = folder / f"layers-{kind}-{LEVEL[kind]}.json"
        self._lock = threading.Lock()
        self._layers = self._read()

    def layer(self, diff_id: str) -> Descriptor | None:
        return self._layers.get(diff_id)

    def remember(self, packed: Packed) -> None:
        with self._lock:
            self._layers[packed.diff_id] = packed.layer
            data = {diff_id: layer.as_dict() for diff_id, layer in sorted(self._layers.items())}
            _write(self._file, json.dumps(data, indent=1).encode())

    def config(self, engine_id: str) -> bytes | None:
        """The configuration of an image, by the engine's name of it."""
        for file in sorted(self._configs.glob(f"{_hex(engine_id)}-*.json")):
            data = file.read_bytes()
            if file.name == f"{_hex(engine_id)}-{_hex(BytesBlob(data).digest)}.json":
                return data
        return None

    def image_id(self, source: Source) -> str | None:
        """The digest of the configuration, where it is known without reading the image."""
        if source.named_by_config:
            return source.id
        data = self.config(source.id)
        return None if data is None else BytesBlob(data).digest

    def remember_config(self, engine_id: str, data: bytes) -> None:
        _write(self._configs / f"{_hex(engine_id)}-{_hex(BytesBlob(data).digest)}.json", data)

    @property
    def _configs(self) -> Path:
        return self.folder / "configs"

    def _read(self) -> dict[str, Descriptor]:
        try:
            data = json.loads(self._file.read_bytes())
            return {diff_id: descriptor(entry, str(self._file)) for diff_id, entry in data.items()}
        except (OSError, ValueError, AttributeError, RegistryFailed):
            # Damaged or none: layers are compressed again.
            return {}


def send_image(
    registry: Registry, source: Source, memory: Memory, kind: Compression, threads: int, on_bytes: Progress
) -> Sent:
    """Have all of the image's blobs in the repository. Raises RegistryFailed.

    threads: for compression. At most three compressed layers lie on disk at one time.
    """
    config = memory.config(source.id)
    there = {diff_id for diff_id in source.diff_ids if _is_there(registry, memory.layer(diff_id))}
    new = 0
    if config is None or set(source.diff_ids) - there:
        config, new = _from_stream(registry, source, memory, kind, threads, on_bytes, there)
    blob = BytesBlob(config)
    put_blob(registry, blob)
    layers = []
    for diff_id in _diff_ids(config):
        known = memory.layer(diff_id)
        if known is None:
            raise RegistryFailed(f"the engine's export lacks layer {diff_id[:19]}", where=source.id[:19])
        layers.append(known)
    return Sent(image_manifest(blob.descriptor(CONFIG), layers), blob.digest, config, new)


def _hex(digest: str) -> str:
    return digest.removeprefix("sha256:")


def _is_there(registry: Registry, layer: Descriptor | None) -> bool:
    return layer is not None and registry.has_blob(layer.digest)


def _from_stream(
    registry: Registry,
    source: Source,
    memory: Memory,
    kind: Compression,
    threads: int,
    on_bytes: Progress,
    there: set[str],
) -> tuple[bytes, int]:
    """Compress and send every layer that is not there; the configuration and how many bytes were sent."""
    sizes: list[int] = []
    room = threading.Semaphore(AT_ONCE)
    memory.folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="layers-", dir=memory.folder, ignore_cleanup_errors=True) as name,
        ThreadPoolExecutor(AT_ONCE) as pool,
    ):
        sending: list[Future[None]] = []
        seen: set[str] = set()
        stop = threading.Event()

        def count(sent: int) -> None:
            if stop.is_set():
                raise RegistryFailed("stopped")
            on_bytes(sent)

        def send(packed: Packed, path: Path) -> None:
            try:
                if put_blob(registry, FileBlob(path, packed.layer.digest, packed.layer.size), count):
                    sizes.append(packed.layer.size)
                memory.remember(packed)
            finally:
                path.unlink(missing_ok=True)
                room.release()

        def on_layer(digest: str, stream: IO[bytes]) -> None:
            if digest in there or digest in seen:
                return
            seen.add(digest)
            room.acquire()
            _raise_first(sending)
            path = Path(name) / digest.removeprefix("sha256:")
            sending.append(pool.submit(send, pack(stream, path, kind, threads), path))

        try:
            saved = read_saved(source, on_layer)
            _raise_first(sending, wait=True)
        except BaseException:
            # An interrupt must not wait for gigabytes.
            stop.set()
            raise
    memory.remember_config(source.id, saved.config)
    return saved.config, sum(sizes)


def _raise_first(sending: list[Future[None]], wait: bool = False) -> None:
    for future in sending:
        if wait or future.done():
            future.result()


def _diff_ids(config: bytes) -> list[str]:
    try:
        found: Any = json.loads(config)["rootfs"]["diff_ids"]
    except (ValueError, KeyError, TypeError):
        found = None
    if not isinstance(found, list) or not all(isinstance(entry, str) for entry in found):
        raise RegistryFailed("the image's configuration lists no layers")
    return found


def _write(path: Path, data: bytes) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
