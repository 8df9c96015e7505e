"""What a bare cubin says of itself: GPU code as ptxas writes it, an ELF file for machine 190.

Its architecture stands in the ELF flags: in the lowest byte, or, from CUDA 12.8 on and marked by ELF ABI version 8, in
the second one. That it is for an `a` target is bit 0x800 (ABI 7) or 0x8 (ABI 8 of CUDA 12.8), and attribute 9 of its
section .nv.compat from CUDA 12.9 on. An `f` target leaves no trace; such a cubin reads as sm_XY, which is judged alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lib import fatbin
from lib.fatbin import Entry, FatbinError

if TYPE_CHECKING:
    from lib.fatbin import Buffer

MARK = b"\x7fELF\x02\x01\x01"
ET_REL = 1
FLAG_A_7, FLAG_A_8 = 0x800, 0x8
# The bits meant something else before: cubins for 6.0 have them.
FIRST_A = 90
SHF_EXECINSTR = 4
ACCELERATOR_TARGET = 9
# Forms of an attribute: a byte or two bytes in place, or a size and as many bytes behind it.
IN_PLACE, SIZED = (1, 2, 3), 4


@dataclass(frozen=True)
class Cubin:
    """One cubin: what it is, and its size in bytes."""

    entry: Entry
    size: int


def read(data: Buffer) -> Cubin:
    """The cubin at the start of `data`, which may go on behind it. Raises FatbinError when there is none."""
    if len(data) < fatbin.ELF_HEADER.size:
        raise FatbinError("too short for an ELF header")
    ident, kind, machine, _, _, segments, _, flags, _, *counts = fatbin.ELF_HEADER.unpack_from(data)
    if machine != fatbin.EM_CUDA:
        raise FatbinError(f"an ELF file for machine {machine}, so no cubin")
    number = flags >> 8 & 0xFF if ident[8] >= 8 else flags & 0xFF
    accelerated = bool(flags & (FLAG_A_8 if ident[8] >= 8 else FLAG_A_7)) and number >= FIRST_A
    size = max(fatbin.ELF_HEADER.size, _table_end(data), segments + counts[0] * counts[1])
    for section in fatbin.sections(data):
        if section.kind != fatbin.SHT_NOBITS:
            size = max(size, section.end)
        if section.name == b".nv.compat":
            accelerated = accelerated or _attribute(bytes(data[section.start : section.end]), ACCELERATOR_TARGET)
    if size > len(data):
        raise FatbinError("a cubin is cut off")
    return Cubin(Entry("cubin", f"sm_{number}{'a' if accelerated else ''}", kind == ET_REL), size)


def has_kernels(data: Buffer) -> bool:
    """Whether a cubin holds any instructions. Raises FatbinError."""
    return any(s.flags & SHF_EXECINSTR and s.end > s.start for s in fatbin.sections(data))


def _table_end(data: Buffer) -> int:
    header = fatbin.ELF_HEADER.unpack_from(data)
    return int(header[6] + header[11] * header[12])


def _attribute(records: bytes, wanted: int) -> bool:
    """Whether an attribute of .nv.compat is there and not 0."""
    at = 0
    while at + 4 <= len(records):
        form, attribute, value = records[at], records[at + 1], int.from_bytes(records[at + 2 : at + 4], "little")
        if form in IN_PLACE and attribute == wanted:
            return value != 0
        at += 4 + (value if form == SIZED else 0)
    return False
