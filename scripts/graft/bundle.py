"""One file that carries a build, or an image, to a machine without network: a tar with a checked list of contents.

The first member is the list: `graft-bundle-<sha256 of the list>.json`, with path, size and sha256 of every other
member in their order. The same contents give the same bytes. Everything is read as a stream, so memory is bounded.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Annotated, Literal

from pydantic import Field, StringConstraints, ValidationError

from graft.errors import BadInput, FetchFailed
from graft.lock import Sha256
from graft.store import CHECKED_MTIME
from graft.yamlio import Model

FORMAT: Literal[1] = 1
CHUNK = 1 << 20
MAX_INDEX = 10_000_000
INDEX_NAME = re.compile(r"graft-bundle-([0-9a-f]{64})\.json")
INDEX_START = b"graft-bundle-"
#: What a member may be: nothing else is ever written, and none can leave its folder.
_WORD = r"[A-Za-z0-9_][A-Za-z0-9._+!~:%-]*"
_PROJECT = rf"project/(?:build\.yaml|(?:recipes|patches|images)(?:/{_WORD})+)"
MEMBER = rf"^(?:store/[0-9a-f]{{64}}/{_WORD}|{_PROJECT}|receipts/{_WORD}/{_WORD}|image/{_WORD}(?:/{_WORD})*)$"

OnBytes = Callable[[int], None]
ImageId = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]


class Member(Model):
    """One file of a bundle; size in bytes. executable: what it is where it is put."""

    path: Annotated[str, StringConstraints(pattern=MEMBER, max_length=500)]
    size: int = Field(ge=0)
    sha256: Sha256
    executable: bool = False

    @property
    def parts(self) -> tuple[str, str]:
        """What it is (store, project, receipts, image), and its path there."""
        kind, _, rest = self.path.partition("/")
        return kind, rest


class CarriedImage(Model):
    """An image of a bundle: its id, its layers (lowest first), and its references; the first of these never moves."""

    id: ImageId
    layers: tuple[Annotated[str, StringConstraints(pattern=r"^blobs/sha256/[0-9a-f]{64}$")], ...] = Field(strict=False)
    references: tuple[str, ...] = Field(min_length=1, strict=False)


class Index(Model):
    """The list of a bundle's contents. key: of the image that is built from it, or that it holds."""

    format: Literal[1]
    recipe: str
    arch: str
    key: Sha256
    lock: Sha256
    image: CarriedImage | None
    members: tuple[Member, ...] = Field(min_length=1, strict=False)

    @property
    def size(self) -> int:
        """Bytes of all members."""
        return sum(member.size for member in self.members)

    def bytes(self) -> bytes:
        """The list as it stands in the bundle."""
        return (json.dumps(self.model_dump(mode="json"), indent=1) + "\n").encode()

    @property
    def digest(self) -> str:
        """What names the whole bundle: `sha256:...` of its list."""
        return f"sha256:{hashlib.sha256(self.bytes()).hexdigest()}"


def write(target: Path, index: Index, chunks: Callable[[Member], Iterator[bytes]], on_bytes: OnBytes) -> None:
    """Write a bundle beside its name and move it there when it is whole.

    Raises FetchFailed when a file is not what the list says, BadInput when the disk has no room for it.
    """
    free = os.statvfs(target.parent)
    if free.f_bavail * free.f_frsize < index.size:
        raise BadInput(
            f"the bundle needs {index.size / 1e9:.1f} GB and {free.f_bavail * free.f_frsize / 1e9:.1f} GB are free",
            where=str(target.parent),
        )
    part = target.with_name(f".{target.name}.part")
    try:
        with part.open("wb") as sink:
            text = index.bytes()
            sink.write(header(f"graft-bundle-{index.digest.removeprefix('sha256:')}.json", len(text)))
            sink.write(padded(text))
            for member in index.members:
                sink.write(header(member.path, member.size))
                for chunk in checked(member, chunks(member)):
                    sink.write(chunk)
                    on_bytes(len(chunk))
                sink.write(padding(member.size))
            sink.write(b"\0" * (2 * tarfile.BLOCKSIZE))
            sink.flush()
            os.fsync(sink.fileno())
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def read_index(source: Path) -> Index:
    """The list of a bundle. Raises BadInput (no bundle), FetchFailed (cut short or damaged)."""
    with source.open("rb") as stream:
        return _Reader(source, stream).index


def members(source: Path) -> Iterator[tuple[Member, Iterator[bytes]]]:
    """Each member with its bytes, in order; the bytes have to be read before the next one.

    The end of a member's bytes raises FetchFailed when they are not the listed ones, and the end of the members when
    the bundle is cut short or goes on.
    """
    with source.open("rb") as stream:
        reader = _Reader(source, stream)
        for member in reader.index.members:
            yield member, checked(member, reader.chunks(member), str(source))
        reader.end()


def verify(source: Path, on_bytes: OnBytes) -> Index:
    """Read everything and compare every hash; writes nothing. Raises BadInput and FetchFailed."""
    for _, chunks in members(source):
        for chunk in chunks:
            on_bytes(len(chunk))
    return read_index(source)


class _Reader:
    """A tar read from its start to its end, that has to be exactly what its list says."""

    def __init__(self, source: Path, stream: IO[bytes]) -> None:
        self._where = str(source)
        self._stream = stream
        # The first member's name comes first of all: a file without it was never a bundle, cut short or not.
        if not stream.read(len(INDEX_START)) == INDEX_START:
            raise self._no_bundle()
        stream.seek(0)
        found = self._header()
        match = INDEX_NAME.fullmatch(found.name) if found is not None and found.isreg() else None
        if found is None or match is None or found.size > MAX_INDEX:
            raise self._no_bundle()
        data = self._read(found.size)
        self._read(len(padding(found.size)))
        if hashlib.sha256(data).hexdigest() != match[1]:
            raise self._damaged("its list of contents is damaged")
        self.index = _parse(data, self._where)

    def chunks(self, member: Member) -> Iterator[bytes]:
        found = self._header()
        if found is None or not found.isreg() or (found.name, found.size) != (member.path, member.size):
            raise self._damaged(f"where {member.path} should stand, there is something else")
        left = member.size
        while left:
            chunk = self._read(min(CHUNK, left))
            left -= len(chunk)
            yield chunk
        self._read(len(padding(member.size)))

    def end(self) -> None:
        if self._header() is not None:
            raise self._damaged("it goes on after its last file")

    def _header(self) -> tarfile.TarInfo | None:
        block = self._read(tarfile.BLOCKSIZE)
        if block == b"\0" * tarfile.BLOCKSIZE:
            return None
        try:
            found = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
            if found.type != tarfile.XHDTYPE:
                return found
            # A long name or a size that the plain header cannot hold: what follows is `length key=value` lines.
            data = self._read(min(found.size, MAX_INDEX))
            self._read(len(padding(found.size)))
            fields = dict(re.findall(r"\d+ ([A-Za-z]+)=(.*)\n", data.decode()))
            real = tarfile.TarInfo.frombuf(self._read(tarfile.BLOCKSIZE), "utf-8", "strict")
            real.name, real.size = fields.get("path", real.name), int(fields.get("size", real.size))
            return real
        except (tarfile.HeaderError, UnicodeDecodeError, ValueError):
            raise self._damaged("what should be a file's header is none") from None

    def _read(self, count: int) -> bytes:
        data = self._stream.read(count)
        if len(data) != count:
            raise self._damaged("it is cut short")
        return data

    def _no_bundle(self) -> BadInput:
        cure = "make one with: graft bundle export FILE"
        return BadInput("this is no bundle of Graft", where=self._where, cure=cure)

    def _damaged(self, what: str) -> FetchFailed:
        return FetchFailed(
            f"the bundle is not whole: {what}; nothing of it was taken", where=self._where, cure="copy it again"
        )


def header(name: str, size: int) -> bytes:
    """A member's tar header: nothing of the host, the owner or the moment in it."""
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = size, 0o644, CHECKED_MTIME
    return info.tobuf(tarfile.PAX_FORMAT)


def padding(size: int) -> bytes:
    return b"\0" * (-size % tarfile.BLOCKSIZE)


def padded(data: bytes) -> bytes:
    return data + padding(len(data))


def checked(member: Member, chunks: Iterator[bytes], where: str | None = None) -> Iterator[bytes]:
    """The same bytes; raises FetchFailed at their end when size or hash are not the member's."""
    found, count = hashlib.sha256(), 0
    for chunk in chunks:
        found.update(chunk)
        count += len(chunk)
        yield chunk
    if (count, found.hexdigest()) != (member.size, member.sha256):
        raise FetchFailed(
            f"{member.path} is not what the list says: {count} bytes, sha256 {found.hexdigest()}",
            where=where,
            cure="copy the bundle again" if where else "run the same command again",
        )


def file_chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK):
            yield chunk


def bytes_chunks(data: bytes) -> Iterator[bytes]:
    stream = io.BytesIO(data)
    while chunk := stream.read(CHUNK):
        yield chunk


def member_of(path: str, data: bytes) -> Member:
    return Member(path=path, size=len(data), sha256=hashlib.sha256(data).hexdigest())


def _parse(data: bytes, where: str) -> Index:
    try:
        index = Index.model_validate_json(data)
    except ValidationError as problem:
        first = problem.errors(include_url=False)[0]
        at = ".".join(str(part) for part in first["loc"])
        raise BadInput(
            f"its list of contents cannot be read: {at}: {first['msg']}", where=where, cure="use the Graft that made it"
        ) from None
    _check_paths(index.members, where)
    return index


def _check_paths(listed: Sequence[Member], where: str) -> None:
    """No path twice, none that leaves its folder, and what the store calls by its hash has that hash."""
    seen: set[str] = set()
    for member in listed:
        kind, rest = member.parts
        if member.path in seen or (kind == "store" and rest.partition("/")[0] != member.sha256):
            raise BadInput(f"its list of contents holds a path that no bundle has: {member.path}", where=where)
        seen.add(member.path)
