"""Which GPU architectures an ELF file holds code for, read from its fatbin headers.

nvcc puts GPU code into the section .nv_fatbin as containers of entries; __nv_relfatbin holds relocatable code, the
input of the device linker, whose result is in .nv_fatbin again:

    container  u32 magic 0xBA55ED50, u16 version 1, u16 header size, u64 size of the entries
    entry      u16 kind, u16 version, u32 header size, u64 payload size, ..., at 28 u32 architecture,
               ..., at 40 u64 flags (0x100000: an `a` target, 0x200000: an `f` target)

The layout is not documented; it was found by compiling for known targets, and agrees with cuobjdump entry by entry
(docs/gpu-code.md). cuobjdump decompresses everything; only headers are read here. Nothing but the standard library and
the syntax of Python 3.8, so it runs in any image.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

Kind = Literal["cubin", "ptx", "lto", "other"]
Rule = Literal["exact", "a", "family", "same major", "PTX"]
Verdict = Literal["covered", "ptx-only", "missing"]
if TYPE_CHECKING:
    Buffer = bytes | bytearray | memoryview | mmap.mmap

SECTIONS = {b".nv_fatbin": False, b"__nv_relfatbin": True}  # name: relocatable
MAGIC = 0xBA55ED50
KINDS: dict[int, Kind] = {1: "ptx", 2: "cubin", 8: "lto"}
PREFIX = {"ptx": "compute_", "cubin": "sm_", "lto": "lto_", "other": "other_"}
FLAG_A, FLAG_F = 0x100000, 0x200000
HIGHEST = 999
SHT_NOBITS = 8
EM_CUDA = 190

# The Jetson modules. Their cubins and those of other devices do not run on each other, whatever the numbers say
# (CUDA C++ Programming Guide, "Binary Compatibility").
JETSON = {(5, 3), (6, 2), (7, 2), (8, 7), (10, 1), (11, 0)}

ELF_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
CONTAINER = struct.Struct("<IHHQ")
ENTRY = struct.Struct("<HHIQ12xI8xQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_NAME_BYTES = 64
_ZEROS = bytes(1 << 16)
_ARCH = re.compile(r"[a-z]+_(\d+)(\d)([af]?)")
_TARGET = re.compile(r"sm(\d+)(\d)")


class FatbinError(Exception):
    """The file is no ELF file that this can read, or its GPU code is damaged."""


@dataclass(frozen=True, order=True)
class Entry:
    """One piece of GPU code: kind and architecture as nvcc spells it (sm_90a, compute_90, lto_90)."""

    kind: Kind
    arch: str
    relocatable: bool = False


@dataclass(frozen=True)
class Section:
    """One section of an ELF file: its name (the first 64 bytes), type and flags, and where its bytes are."""

    name: bytes
    kind: int
    flags: int
    start: int
    end: int


def is_elf(path: Path) -> bool:
    """Whether the file starts as an ELF file. Raises OSError."""
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def read(path: Path) -> list[Entry]:
    """The GPU code of one ELF file in file order; empty when it holds none. Raises FatbinError, OSError."""
    with path.open("rb") as file:
        try:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:
            raise FatbinError(f"{path}: empty file") from None
    with data:
        try:
            return [
                Entry(entry.kind, entry.arch, relocatable)
                for section, relocatable in gpu_sections(data)
                for start, end in containers(data, section.start, section.end)
                for entry, _, _ in entries(data, start, end)
            ]
        except FatbinError as error:
            raise FatbinError(f"{path}: {error}") from None


def verdict(held: Iterable[Entry], arch: str) -> Verdict:
    """What the entries mean for a device of `arch` (sm90, sm100, ...), by rule(): a cubin covers, PTX does not.

    Raises ValueError for an arch that is not of the form smXY.
    """
    rules = {rule(entry, arch) for entry in held}
    if rules - {None, "PTX"}:
        return "covered"
    return "ptx-only" if "PTX" in rules else "missing"


def rule(entry: Entry, arch: str) -> Rule | None:
    """Why an entry is of use on a device of `arch`; None: it is not.

    A cubin sm_XY runs on the same major and an equal or higher minor, sm_XYa on exactly X.Y, sm_XYf on its family.
    PTX is code that the driver could compile for the device: not verified. LTO and relocatable code needs a linker and
    counts for nothing. Raises ValueError for an arch that is not of the form smXY.
    """
    target = _target(arch)
    major, minor, suffix = _parse(entry.arch)
    if entry.relocatable or entry.kind not in ("cubin", "ptx"):
        return None
    exact = (major, minor) == target
    of_major = major == target[0] and minor <= target[1]
    if entry.kind == "ptx":
        runs = exact if suffix == "a" else of_major if suffix == "f" else (major, minor) <= target
        return "PTX" if runs else None
    if suffix == "a":
        return "a" if exact else None
    if suffix == "f":
        return "family" if of_major else None
    if exact:
        return "exact"
    return "same major" if of_major and not {(major, minor), target} & JETSON else None


def foreign(held: Iterable[Entry], arch: str) -> list[Entry]:
    """The entries that are not cubins made for `arch` itself, each once. Raises ValueError as verdict() does."""
    target = _target(arch)
    return sorted({entry for entry in held if entry.kind != "cubin" or _parse(entry.arch)[:2] != target})


def cubin_target(cubin: bytes) -> str:
    """The architecture of a bare cubin (what ptxas writes), as sm90, without its suffix.

    CUDA 13 moved the number from the lowest byte to the second one, and marks that with ELF ABI version 8.
    Raises FatbinError.
    """
    if len(cubin) < ELF_HEADER.size or cubin[:6] != b"\x7fELF\x02\x01":
        raise FatbinError("not a 64-bit ELF file, so no cubin")
    header = ELF_HEADER.unpack_from(cubin)
    machine, flags = header[2], header[7]
    if machine != EM_CUDA:
        raise FatbinError(f"an ELF file for machine {machine}, so no cubin")
    return f"sm{flags >> 8 & 0xFF if cubin[8] >= 8 else flags & 0xFF}"


def gpu_sections(data: Buffer) -> Iterator[tuple[Section, bool]]:
    """The sections of an ELF file that hold fatbins, and whether what they hold is relocatable. Raises FatbinError."""
    total = 0
    for section in sections(data):
        if section.kind == SHT_NOBITS or section.start == section.end or section.name not in SECTIONS:
            continue
        if section.end > len(data):
            raise FatbinError("a section with GPU code is cut off")
        total += section.end - section.start
        if total > len(data):
            raise FatbinError("its sections with GPU code lie over each other")
        yield section, SECTIONS[section.name]


def sections(data: Buffer) -> Iterator[Section]:
    """Every section of a 64-bit little-endian ELF file; they may reach over its end. Raises FatbinError."""
    size = len(data)
    if size < ELF_HEADER.size:
        raise FatbinError("too short for an ELF header")
    header = ELF_HEADER.unpack_from(data)
    ident, table, entry_size, count, names = header[0], header[6], header[11], header[12], header[13]
    if ident[:4] != b"\x7fELF":
        raise FatbinError("not an ELF file")
    if ident[4:6] != b"\x02\x01":
        raise FatbinError("not a 64-bit little-endian ELF file")
    if table == 0:
        return
    if entry_size != _SECTION.size or table + entry_size > size:
        raise FatbinError("the section table is cut off or of an unknown form")
    first = _SECTION.unpack_from(data, table)
    # More sections than 16 bits can count: the numbers are in section 0 (System V ABI, "extended numbering").
    count = count or first[5]
    names = first[6] if names == 0xFFFF else names
    if table + count * entry_size > size or names >= count:
        raise FatbinError("the section table is cut off")
    name_table = _SECTION.unpack_from(data, table + names * entry_size)[4]
    for index in range(count):
        name, kind, flags, _, start, length, *_ = _SECTION.unpack_from(data, table + index * entry_size)
        text = bytes(data[name_table + name : name_table + name + _NAME_BYTES]).partition(b"\0")[0]
        yield Section(text, kind, flags, start, start + length)


def containers(data: Buffer, start: int, end: int) -> Iterator[tuple[int, int]]:
    """(start, end) of the entries of each container between two offsets. Raises FatbinError."""
    # Containers are padded with zeros; a file whose GPU code was taken out is one long run of them.
    while (start := _skip_zeros(data, start, end)) < end:
        if start + CONTAINER.size > end:
            raise FatbinError(f"a fatbin at offset {start} is cut off")
        magic, version, header, length = CONTAINER.unpack_from(data, start)
        if magic != MAGIC or version != 1 or header < CONTAINER.size:
            raise FatbinError(f"no fatbin of a known form at offset {start}")
        start += header
        if start + length > end:
            raise FatbinError(f"the fatbin before offset {start} is cut off")
        yield start, start + length
        start += length


def entries(data: Buffer, start: int, end: int) -> Iterator[tuple[Entry, int, int]]:
    """Each entry of a container, and where its payload starts and ends. Raises FatbinError."""
    while start < end:
        if start + ENTRY.size > end:
            raise FatbinError(f"a fatbin entry at offset {start} is cut off")
        number, _, header, length, arch, flags = ENTRY.unpack_from(data, start)
        if header < ENTRY.size or start + header + length > end:
            raise FatbinError(f"a fatbin entry at offset {start} is cut off")
        if arch > HIGHEST:
            raise FatbinError(f"a fatbin entry at offset {start} is for no known architecture: {arch}")
        kind = KINDS.get(number, "other")
        suffix = "a" if flags & FLAG_A else "f" if flags & FLAG_F else ""
        yield Entry(kind, f"{PREFIX[kind]}{arch}{suffix}"), start + header, start + header + length
        start += header + length


def _skip_zeros(data: Buffer, at: int, end: int) -> int:
    while at < end:
        chunk = bytes(data[at : min(at + len(_ZEROS), end)])
        if chunk != _ZEROS[: len(chunk)]:
            return at + len(chunk) - len(chunk.lstrip(b"\0"))
        at += len(chunk)
    return end


def _target(arch: str) -> tuple[int, int]:
    match = _TARGET.fullmatch(arch)
    if match is None:
        raise ValueError(f"{arch!r} is not an architecture of the form sm90")
    return int(match[1]), int(match[2])


def _parse(arch: str) -> tuple[int, int, str]:
    match = _ARCH.fullmatch(arch)
    if match is None:
        return -1, -1, "a"  # what has no place in the scheme (kind "other") runs nowhere
    return int(match[1]), int(match[2]), match[3]
