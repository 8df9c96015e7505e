"""All GPU code of an image: what each ELF file, archive, cubin and fatbin holds, for which architectures.

Files are known by their first bytes, not by their names. Only headers are read, and the data in which code could be
hidden (lib/hidden.py); nothing is decompressed.
"""

from __future__ import annotations

import mmap
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lib import cubin, fatbin, hidden, runtime_code
from lib.fatbin import Entry, FatbinError

if TYPE_CHECKING:
    from lib.fatbin import Buffer

    Fatbin = tuple[str, Iterable[tuple[Entry, int, int]]]

# library: what a process loads or runs. object, archive: what a linker reads.
Form = Literal["library", "object", "archive", "cubin", "fatbin"]

ELF, AR, FATBIN = b"\x7fELF", b"!<arch>\n", fatbin.CONTAINER.pack(fatbin.MAGIC, 0, 0, 0)[:4]
ET_REL = 1
AR_HEADER = 60
# What a kernel, not the image, puts there.
NOT_OF_THE_IMAGE = ("proc", "sys", "dev")
# The code of 24,000 fatbins of cuFFT is of 14 kinds; a file without end of them is made to fill the memory.
MAX_KINDS = 10_000


@dataclass
class Holding:
    """The GPU code of one file.

    code: (section, entry) -> how many, as cuobjdump counts them. fatbins: the entries with kernels that belong
    together -> how many such fatbins. bytes: size of the file.
    """

    path: str
    bytes: int
    form: Form
    code: Counter[tuple[str, Entry]] = field(default_factory=Counter)
    fatbins: Counter[frozenset[Entry]] = field(default_factory=Counter)

    def add(self, where: str, entries: Iterable[tuple[Entry, bool]]) -> None:
        """One fatbin: each of its entries, and whether it may hold a kernel. Raises FatbinError."""
        held = set()
        for entry, kernels in entries:
            self.code[where, entry] += 1
            if kernels:
                held.add(entry)
        if held:
            self.fatbins[frozenset(held)] += 1
        if len(self.code) > MAX_KINDS or len(self.fatbins) > MAX_KINDS:
            raise FatbinError("more kinds of GPU code than there can be")


@dataclass
class Census:
    """What was found below a root. unreadable: path -> why; runtime: (package, compiler) -> kernels."""

    holdings: list[Holding] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)
    denied: int = 0
    files: int = 0
    elf_files: int = 0
    runtime: Counter[tuple[str, str]] = field(default_factory=Counter)


def take(root: Path) -> Census:
    """The census of the file system below `root`; paths are absolute as seen from there."""
    found = Census()
    top = str(root).rstrip("/")
    for place in sorted(_files(top, found)):
        try:
            count(found, place[len(top) :], place)
        except PermissionError:
            # What this user may not read, its processes cannot load.
            found.denied += 1
    return found


def wanted(path: str, start: bytes) -> bool:
    """Whether a file of this name, which starts with these 8 bytes, has to be read on."""
    return runtime_code.is_source(path) or start.startswith((ELF, FATBIN)) or start == AR


def count(found: Census, path: str, place: str) -> None:
    """Add one regular file, which lies at `place`, under its name in the image. Raises OSError."""
    found.files += 1
    descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    try:
        start = os.read(descriptor, runtime_code.MAX_BYTES if runtime_code.is_source(path) else 8)
    finally:
        os.close(descriptor)
    found.elf_files += start.startswith(ELF)
    if runtime_code.is_source(path):
        found.runtime.update(runtime_code.kernels(path, start))
    elif wanted(path, start):
        try:
            holding = read(Path(place), path)
        except FatbinError as problem:
            found.unreadable[path] = str(problem)
        else:
            if holding.code:
                found.holdings.append(holding)


def read(place: Path, path: str | None = None) -> Holding:
    """The GPU code of one file. path: its name in the image. Raises FatbinError, OSError."""
    with place.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        if size == 0:
            raise FatbinError("empty file")
        # Not closed by hand: that fails where an error that is on its way still holds a view of it.
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        holding = Holding(path or str(place), size, _form(data))
        for where, pieces in _code(data, holding.form, file.fileno()):
            holding.add(where, ((entry, _has_kernels(data, entry, start, end)) for entry, start, end in pieces))
    return holding


def _form(data: Buffer) -> Form:
    if data[:4] == FATBIN:
        return "fatbin"
    if data[:8] == AR:
        return "archive"
    if data[:4] != ELF:
        raise FatbinError("neither an ELF file nor an archive or a fatbin")
    if len(data) < fatbin.ELF_HEADER.size:
        raise FatbinError("too short for an ELF header")
    kind, machine = fatbin.ELF_HEADER.unpack_from(data)[1:3]
    if machine == fatbin.EM_CUDA:
        return "cubin"
    return "object" if kind == ET_REL else "library"


def _code(data: mmap.mmap, form: Form, descriptor: int) -> Iterator[Fatbin]:
    """Every fatbin of a file: its section, and its entries with where their payloads are."""
    if form == "fatbin":
        yield from _fatbins(data, "file", 0, len(data), relocatable=False)
    elif form == "cubin":
        one = cubin.read(data)
        yield "file", [(one.entry, 0, one.size)]
    elif form == "archive":
        for start, end in _members(data):
            if data[start : start + 4] == ELF:
                for where, pieces in _of_elf(memoryview(data)[start:end], descriptor, start):
                    yield where, ((entry, start + first, start + last) for entry, first, last in pieces)
    else:
        yield from _of_elf(data, descriptor, 0)


def _of_elf(data: Buffer, descriptor: int, offset: int) -> Iterator[Fatbin]:
    if data[4:6] != b"\x02\x01":
        # CUDA's hosts are 64-bit and little-endian; others, as emulators and test data, cannot load GPU code.
        return
    for section, relocatable in fatbin.gpu_sections(data):
        yield from _fatbins(data, section.name.decode(), section.start, section.end, relocatable)
    for piece in hidden.search(data, descriptor, offset):
        yield piece.where, piece.entries


def _fatbins(data: Buffer, where: str, start: int, end: int, relocatable: bool) -> Iterator[Fatbin]:
    for first, last in fatbin.containers(data, start, end):
        yield where, ((Entry(e.kind, e.arch, relocatable), a, b) for e, a, b in fatbin.entries(data, first, last))


def _members(data: mmap.mmap) -> Iterator[tuple[int, int]]:
    """Where the members of an archive are (ar(5)). Raises FatbinError."""
    at = len(AR)
    while at < len(data):
        header = data[at : at + AR_HEADER]
        digits = header[48:58].strip()
        start = at + AR_HEADER
        if header[58:] != b"`\n" or not digits.isdigit() or start + int(digits) > len(data):
            raise FatbinError(f"the archive is damaged at offset {at}")
        yield start, start + int(digits)
        at = start + int(digits) + int(digits) % 2


def _has_kernels(data: mmap.mmap, entry: Entry, start: int, end: int) -> bool:
    """Whether an entry may hold a kernel. The device linker leaves a cubin without any where it had nothing to do."""
    if entry.kind != "cubin" or data[start : start + 4] != ELF:
        return True
    try:
        return cubin.has_kernels(memoryview(data)[start:end])
    except FatbinError:
        return True


def _files(root: str, found: Census) -> Iterator[str]:
    """Every regular file; no link is followed, and what may not be listed is counted."""
    waiting = [root or "/"]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as listed:
                inside = list(listed)
        except PermissionError:
            found.denied += 1
            continue
        except FileNotFoundError:
            continue
        for each in inside:
            if each.is_dir(follow_symlinks=False):
                if folder != (root or "/") or each.name not in NOT_OF_THE_IMAGE:
                    waiting.append(each.path)
            elif each.is_file(follow_symlinks=False):
                yield each.path
