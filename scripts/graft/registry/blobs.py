"""Writing blobs: what the registry has is not sent, and what it has of an upload is not sent twice."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol
from urllib.parse import parse_qsl, urlencode, urlsplit

from graft.errors import RegistryFailed
from graft.net.exchange import TRANSIENT, Body, Reply, Unreached
from graft.registry.client import ATTEMPTS, Progress, Registry
from graft.registry.manifest import Descriptor, digest_of_bytes

OCTETS = {"Content-Type": "application/octet-stream"}
#: Bytes that go with the closing request, which spares one.
SMALL = 64_000
RANGE = re.compile(r"^(?:bytes=)?0-(\d+)$")


class Blob(Protocol):
    """Content that can be read from any place on, more than once."""

    @property
    def digest(self) -> str: ...
    @property
    def size(self) -> int: ...
    def open(self) -> IO[bytes]: ...


@dataclass(frozen=True)
class BytesBlob:
    """A small one."""

    data: bytes

    @property
    def digest(self) -> str:
        return digest_of_bytes(self.data)

    @property
    def size(self) -> int:
        return len(self.data)

    def open(self) -> IO[bytes]:
        return io.BytesIO(self.data)

    def descriptor(self, media_type: str) -> Descriptor:
        return Descriptor(media_type, self.digest, self.size)


@dataclass(frozen=True)
class FileBlob:
    """One on disk."""

    path: Path
    digest: str
    size: int

    def open(self) -> IO[bytes]:
        return self.path.open("rb")


class _Rest:
    """The end of a blob as the body of a request."""

    def __init__(self, stream: IO[bytes], start: int, size: int, on_bytes: Progress) -> None:
        stream.seek(start)
        self._stream, self._left, self._on_bytes = stream, size - start, on_bytes

    def __len__(self) -> int:
        return self._left

    def read(self, count: int = -1) -> bytes:
        found = self._stream.read(self._left if count < 0 else min(count, self._left))
        self._left -= len(found)
        self._on_bytes(len(found))
        return found


def put_blob(registry: Registry, blob: Blob, on_bytes: Progress = lambda count: None) -> bool:
    """Have the blob in the repository; False when it was there. Raises RegistryFailed.

    A small one goes in one request; else one PATCH with all of it, as every registry takes it. After a broken
    connection the registry is asked what it has, and the rest is sent.
    """
    if registry.has_blob(blob.digest):
        return False
    _Upload(registry, blob, on_bytes).run()
    return True


class _Upload:
    def __init__(self, registry: Registry, blob: Blob, on_bytes: Progress) -> None:
        self._registry, self._blob, self._on_bytes = registry, blob, on_bytes
        self._what = f"{blob.digest[:19]} to {registry.repository}"
        self._location: str | None = None
        self._offset = 0
        self._asks = False

    def run(self) -> None:
        failures, best = 0, 0
        while True:
            last: Reply | None = None
            try:
                last = self._advance()
                if last is None:
                    return
                reason = f"HTTP {last.status}"
            except Unreached as problem:
                reason = str(problem)
            self._asks = self._location is not None
            # Tries are counted from the last progress on, and only real progress counts.
            failures = 0 if self._offset > best else failures + 1
            best = max(best, self._offset)
            if failures >= ATTEMPTS:
                if last is not None:
                    raise self._registry.refused(last, self._what)
                raise RegistryFailed(
                    f"gave up after {ATTEMPTS} attempts ({reason})",
                    where=self._what,
                    cure="check the network, then run the same command: it goes on",
                )
            self._registry.wait(failures, last)

    def _advance(self) -> Reply | None:
        """Start or go on, send what is missing, finish. None when the blob is there; else the answer in the way."""
        if self._asks and self._location is not None:
            self._resume(self._location)
        if self._location is None:
            reply = self._registry.once("POST", "blobs/uploads/", headers={"Content-Length": "0"}, push=True)
            if reply.status != 202:
                return self._transient(reply)
            self._move(reply, 0)
        assert self._location is not None
        if self._offset == 0 and self._blob.size <= SMALL:
            with self._blob.open() as stream:
                reply = self._registry.once("PUT", self._closing(), headers=OCTETS, body=stream.read(), push=True)
            return None if reply.status in (201, 204) else self._transient(reply)
        if self._offset < self._blob.size:
            reply = self._send(self._location)
            if reply.status not in (201, 202, 204):
                return self._transient(reply)
            self._move(reply, self._blob.size)
        reply = self._registry.once("PUT", self._closing(), headers=OCTETS, body=b"", push=True)
        if reply.status in (201, 204):
            return None
        return self._transient(reply)

    def _send(self, location: str) -> Reply:
        size, start = self._blob.size, self._offset
        headers = dict(OCTETS)
        if start:
            headers["Content-Range"] = f"{start}-{size - 1}"
        with self._blob.open() as stream:
            make: Callable[[], Body] = lambda: _Rest(stream, start, size, self._on_bytes)  # noqa: E731
            return self._registry.once("PATCH", location, headers=headers, body=make, push=True)

    def _transient(self, reply: Reply) -> Reply:
        """Raises RegistryFailed for an answer that another try will not change."""
        # The upload was forgotten, or its bytes are not the blob's because a broken connection left some twice.
        again = self._location is not None and reply.status in (400, 404, 416)
        if reply.status in TRANSIENT or again:
            if again:
                self._location, self._offset = None, 0
            return reply
        raise self._registry.refused(reply, self._what)

    def _resume(self, location: str) -> None:
        """Ask what the registry has of the upload; start anew when it does not say."""
        reply = self._registry.once("GET", location, push=True)
        self._asks = False
        has = RANGE.match(reply.headers.get("Range", ""))
        # `0-0` is said of one byte and of none.
        if reply.status != 204 or has is None or int(has[1]) == 0 or int(has[1]) >= self._blob.size:
            self._location, self._offset = None, 0
        else:
            self._move(reply, int(has[1]) + 1)

    def _move(self, reply: Reply, offset: int) -> None:
        location = reply.headers.get("Location")
        if location is not None:
            self._location = self._registry.absolute(location)
        elif self._location is None:
            raise RegistryFailed("the registry does not say where to upload to", where=self._what)
        self._offset = offset

    def _closing(self) -> str:
        assert self._location is not None
        parts = urlsplit(self._location)
        return parts._replace(query=urlencode([*parse_qsl(parts.query), ("digest", self._blob.digest)])).geturl()
