"""GPU code that lies in the data of an ELF file, outside of the sections that nvcc uses and cuobjdump knows.

NVIDIA's libraries carry much of theirs so and hand it to the driver themselves: cuFFT in .ldata, cuBLASLt, cuDNN and
cuSPARSELt in .cask_resource, cuSPARSE and CUPTI in .rodata, as fatbins or as bare cubins. Their data is searched for
the first bytes of both; what follows has to be complete and of a known form in every header, or it is no code.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from lib import cubin, fatbin
from lib.fatbin import Entry, FatbinError, Section

if TYPE_CHECKING:
    from lib.fatbin import Buffer

# Magic, version and the only header size that was ever seen: the longer, the faster it is found.
FATBIN_MARK = fatbin.CONTAINER.pack(fatbin.MAGIC, 1, fatbin.CONTAINER.size, 0)[:8]
MARKS = (FATBIN_MARK, cubin.MARK)
SHT_PROGBITS, SHF_ALLOC, SHF_EXECINSTR = 1, 2, 4
NEVER = (b".eh_frame", b".gcc_except_table")
CHUNK = 1 << 20
OVERLAP = max(map(len, MARKS))
# Headers that look like code and lead to nothing; a file of nothing else must not cost more than its size.
MAX_FALSE = 1 << 20
# No fatbin is for so many devices.
MAX_ENTRIES = 1 << 10


@dataclass(frozen=True)
class Hidden:
    """One fatbin or cubin: the section it lies in, its entries with where their payloads are, and where it is."""

    where: str
    entries: Sequence[tuple[Entry, int, int]]
    start: int
    end: int


def search(data: Buffer, descriptor: int, offset: int = 0) -> Iterator[Hidden]:
    """The hidden code of an ELF file, in file order. Raises FatbinError.

    descriptor: the open file, `data` stands `offset` bytes into it. The data is read from it in pieces: a file of any
    size takes a megabyte.
    """
    false = 0
    for name, start, end in _regions(data):
        for at in _marks(descriptor, offset, start, end):
            found, tried = _read(data, name, at.offset, end)
            if found is not None:
                at.go_on = found.end
                yield found
            false += 0 if found is not None else tried
            if false > MAX_FALSE:
                raise FatbinError(f"its section {name} is full of what looks like GPU code and is none")


def _regions(data: Buffer) -> Iterator[tuple[str, int, int]]:
    """(section, start, end) of all data that a program could hand to the driver, each byte once."""
    table = sorted((s for s in fatbin.sections(data) if _is_data(s)), key=lambda section: section.start)
    if not table and next(fatbin.sections(data), None) is None:
        yield "no section", fatbin.ELF_HEADER.size, len(data)
    done = 0
    for section in table:
        start, end = max(section.start, done), min(section.end, len(data))
        if start < end:
            yield section.name.decode("utf-8", "replace"), start, end
            done = end


def _is_data(section: Section) -> bool:
    return (
        section.kind == SHT_PROGBITS
        and section.flags & (SHF_ALLOC | SHF_EXECINSTR) == SHF_ALLOC
        and section.name not in fatbin.SECTIONS
        and not section.name.startswith(NEVER)
    )


@dataclass
class _Mark:
    """Where something starts; who looks at it may say where to go on."""

    offset: int
    go_on: int


def _marks(descriptor: int, offset: int, start: int, end: int) -> Iterator[_Mark]:
    at = start
    while at < end:
        wanted = min(CHUNK, end - at)
        chunk = os.pread(descriptor, wanted, offset + at)
        if len(chunk) < wanted:
            raise FatbinError("it became shorter while it was read")
        inside = 0
        hits = [chunk.find(mark) for mark in MARKS]
        while any(hit >= 0 for hit in hits):
            mark = _Mark(at + min(hit for hit in hits if hit >= 0), 0)
            mark.go_on = mark.offset + 1
            yield mark
            inside = mark.go_on - at
            hits = [chunk.find(MARKS[i], inside) if 0 <= hit < inside else hit for i, hit in enumerate(hits)]
        last = at + len(chunk) >= end
        at = max(at + inside, end if last else at + len(chunk) - OVERLAP + 1)


def _read(data: Buffer, name: str, at: int, end: int) -> tuple[Hidden | None, int]:
    """The code that starts at an offset, or none; and how many headers were looked at."""
    if bytes(data[at : at + len(FATBIN_MARK)]) == FATBIN_MARK:
        return _fatbin(data, name, at, end)
    try:
        found = cubin.read(memoryview(data)[at:end])
    except FatbinError:
        return None, 1
    payload = (found.entry, at, at + found.size)
    return Hidden(name, [payload], at, at + found.size), 1


def _fatbin(data: Buffer, name: str, at: int, end: int) -> tuple[Hidden | None, int]:
    start = at + fatbin.CONTAINER.size
    if start > end:
        return None, 1
    stop = start + fatbin.CONTAINER.unpack_from(data, at)[3]
    if stop > end:
        return None, 1
    entries: list[tuple[Entry, int, int]] = []
    try:
        entries.extend(islice(fatbin.entries(data, start, stop), MAX_ENTRIES + 1))
    except FatbinError:
        return None, 1 + len(entries)
    known = 0 < len(entries) <= MAX_ENTRIES and all(entry.kind != "other" for entry, _, _ in entries)
    return (Hidden(name, entries, at, stop) if known else None), 1 + len(entries)
