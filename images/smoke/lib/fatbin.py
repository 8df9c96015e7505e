"""Which GPU architectures an ELF file holds code for, read from its fatbin headers.

nvcc puts GPU code into the section .nv_fatbin as containers of entries; __nv_relfatbin holds relocatable code, the
input of the device linker, whose result is in .nv_fatbin again:

    container  u32 magic 0xBA55ED50, u16 version 1, u16 header size, u64 size of the entries
    entry      u16 kind, u16 version, u32 header size, u64 payload size, ..., at 28 u32 architecture,
               ..., at 40 u64 flags (0x100000: an `a` target, 0x200000: an `f` target)

The layout is not documented; it was found by compiling for known targets, and agrees with cuobjdump entry by entry
(which prints sm_100f as sm_100, and lists no relocatable code of a linked file). cuobjdump decompresses everything and
needs minutes for a big library; only headers are read here. Nothing but the standard library, so it runs in any image.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Kind = Literal["cubin", "ptx", "lto", "other"]
Verdict = Literal["covered", "ptx-only", "missing"]

SECTIONS = {b".nv_fatbin": False, b"__nv_relfatbin": True}  # name: relocatable
MAGIC = 0xBA55ED50
KINDS: dict[int, Kind] = {1: "ptx", 2: "cubin", 8: "lto"}
PREFIX = {"ptx": "compute_", "cubin": "sm_", "lto": "lto_", "other": "other_"}
FLAG_A, FLAG_F = 0x100000, 0x200000
SHT_NOBITS = 8
EM_CUDA = 190

_ELF_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_CONTAINER = struct.Struct("<IHHQ")
_ENTRY = struct.Struct("<HHIQ12xI8xQ")
_NOT_ZERO = re.compile(rb"[^\0]")
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
            return [entry for section in _sections(data) for entry in _entries(data, *section)]
        except FatbinError as error:
            raise FatbinError(f"{path}: {error}") from None


def verdict(entries: Iterable[Entry], arch: str) -> Verdict:
    """What the entries mean for a device of `arch` (sm90, sm100, ...).

    A cubin sm_XY runs on the same major and an equal or higher minor, sm_XYa on exactly X.Y, sm_XYf on its family.
    PTX that the driver could compile for the device is "ptx-only": not verified, so never covered. LTO and relocatable
    code needs a linker and counts for nothing. Raises ValueError for an arch that is not of the form smXY.
    """
    runs = {entry.kind for entry in entries if _runs(entry, arch) and not entry.relocatable}
    if "cubin" in runs:
        return "covered"
    return "ptx-only" if "ptx" in runs else "missing"


def foreign(entries: Iterable[Entry], arch: str) -> list[Entry]:
    """The entries that are not cubins made for `arch` itself, each once. Raises ValueError as verdict() does."""
    target = _target(arch)
    return sorted({entry for entry in entries if entry.kind != "cubin" or _parse(entry.arch)[:2] != target})


def cubin_target(cubin: bytes) -> str:
    """The architecture of a bare cubin (what ptxas writes), as sm90; its ELF flags do not tell sm_90 from sm_90a.

    CUDA 13 moved the number from the lowest byte to the second one, and marks that with ELF ABI version 8.
    Raises FatbinError.
    """
    if len(cubin) < _ELF_HEADER.size or cubin[:6] != b"\x7fELF\x02\x01":
        raise FatbinError("not a 64-bit ELF file, so no cubin")
    header = _ELF_HEADER.unpack_from(cubin)
    machine, flags = header[2], header[7]
    if machine != EM_CUDA:
        raise FatbinError(f"an ELF file for machine {machine}, so no cubin")
    return f"sm{flags >> 8 & 0xFF if cubin[8] >= 8 else flags & 0xFF}"


def _runs(entry: Entry, arch: str) -> bool:
    target = _target(arch)
    major, minor, suffix = _parse(entry.arch)
    if suffix == "a":
        return (major, minor) == target
    if entry.kind == "ptx" and not suffix:
        return (major, minor) <= target
    return major == target[0] and minor <= target[1]


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


def _sections(data: mmap.mmap) -> Iterator[tuple[int, int, bool]]:
    """(start, end, relocatable) of every section with GPU code."""
    size = len(data)
    if size < _ELF_HEADER.size:
        raise FatbinError("too short for an ELF header")
    header = _ELF_HEADER.unpack_from(data)
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
    name_table = _SECTION.unpack_from(data, table + names * entry_size)
    for index in range(count):
        name, kind, _, _, offset, length, *_ = _SECTION.unpack_from(data, table + index * entry_size)
        if kind == SHT_NOBITS or length == 0:
            continue
        for wanted, relocatable in SECTIONS.items():
            if not _named(data, name_table[4] + name, wanted):
                continue
            if offset + length > size:
                raise FatbinError("a section with GPU code is cut off")
            yield offset, offset + length, relocatable


def _named(data: mmap.mmap, at: int, wanted: bytes) -> bool:
    return data[at : at + len(wanted) + 1] == wanted + b"\0"


def _entries(data: mmap.mmap, start: int, end: int, relocatable: bool) -> Iterator[Entry]:
    at = start
    # Containers are padded with zeros; a file whose GPU code was taken out is one long run of them.
    while (found := _NOT_ZERO.search(data, at, end)) is not None:
        at = found.start()
        if at + _CONTAINER.size > end:
            raise FatbinError(f"a fatbin at offset {at} is cut off")
        magic, version, header, length = _CONTAINER.unpack_from(data, at)
        if magic != MAGIC or version != 1 or header < _CONTAINER.size:
            raise FatbinError(f"no fatbin of a known form at offset {at}")
        at += header
        stop = at + length
        if stop > end:
            raise FatbinError(f"the fatbin before offset {at} is cut off")
        while at < stop:
            if at + _ENTRY.size > stop:
                raise FatbinError(f"a fatbin entry at offset {at} is cut off")
            number, _, header, length, arch, flags = _ENTRY.unpack_from(data, at)
            if header < _ENTRY.size or at + header + length > stop:
                raise FatbinError(f"a fatbin entry at offset {at} is cut off")
            kind = KINDS.get(number, "other")
            suffix = "a" if flags & FLAG_A else "f" if flags & FLAG_F else ""
            yield Entry(kind, f"{PREFIX[kind]}{arch}{suffix}", relocatable)
            at += header + length
