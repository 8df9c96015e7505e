"""Layers as they are stored: compressed on all cores, the same bytes for the same layer whatever the machine.

Both forms cut the stream at fixed places, so the number of threads does not show in the result.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import zstandard

from graft.registry.manifest import LAYER_GZIP, LAYER_ZSTD, Descriptor

Compression = Literal["zstd", "gzip"]
MEDIA_TYPE = {"gzip": LAYER_GZIP, "zstd": LAYER_ZSTD}
#: GPU code is compressed already; higher levels cost minutes and save a few per mille (docs/publish.md).
LEVEL = {"gzip": 6, "zstd": 3}
#: One gzip member; a layer is several of them, which every reader of gzip takes as one stream.
MEMBER = 4 << 20
READ = 1 << 20
#: gzip header: no name, no time, unknown system.
HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
GZIP_MAGIC, ZSTD_MAGIC = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


@dataclass(frozen=True)
class Packed:
    """A compressed layer. diff_id: digest of the bytes before."""

    diff_id: str
    layer: Descriptor


def pack(stream: IO[bytes], target: Path, kind: Compression, threads: int) -> Packed:
    """Write the layer (a tar, itself perhaps compressed in any form) to `target`, compressed as `kind`."""
    before, after, size = hashlib.sha256(), hashlib.sha256(), 0

    def plain() -> Iterator[bytes]:
        for piece in _unpacked(stream):
            before.update(piece)
            yield piece

    with target.open("wb") as sink:
        for piece in (_gzip if kind == "gzip" else _zstd)(plain(), threads):
            after.update(piece)
            size += len(piece)
            sink.write(piece)
    return Packed(f"sha256:{before.hexdigest()}", Descriptor(MEDIA_TYPE[kind], f"sha256:{after.hexdigest()}", size))


def _unpacked(stream: IO[bytes]) -> Iterator[bytes]:
    """What a layer's tar is, whatever the engine keeps it as. stream: has `peek` of at least 4 bytes."""
    head = stream.peek(4)[:4]  # type: ignore[attr-defined]
    source: Any = stream
    if head.startswith(GZIP_MAGIC):
        source = gzip.GzipFile(fileobj=stream)
    elif head == ZSTD_MAGIC:
        source = zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True)
    while piece := source.read(READ):
        yield piece


def _zstd(pieces: Iterator[bytes], threads: int) -> Iterator[bytes]:
    packer = zstandard.ZstdCompressor(level=LEVEL["zstd"], threads=max(1, threads)).compressobj()
    for piece in pieces:
        if out := packer.compress(piece):
            yield out
    yield packer.flush()


def _gzip(pieces: Iterator[bytes], threads: int) -> Iterator[bytes]:
    waiting: deque[Future[bytes]] = deque()
    with ThreadPoolExecutor(max(1, threads)) as pool:
        for member in _members(pieces):
            waiting.append(pool.submit(_member, member))
            if len(waiting) > 2 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _members(pieces: Iterator[bytes]) -> Iterator[bytes]:
    held = bytearray()
    for piece in pieces:
        held += piece
        while len(held) >= MEMBER:
            yield bytes(held[:MEMBER])
            del held[:MEMBER]
    yield bytes(held)


def _member(data: bytes) -> bytes:
    packer = zlib.compressobj(LEVEL["gzip"], zlib.DEFLATED, -15)
    body = packer.compress(data) + packer.flush()
    return HEADER + body + (zlib.crc32(data).to_bytes(4, "little") + (len(data) & 0xFFFFFFFF).to_bytes(4, "little"))
