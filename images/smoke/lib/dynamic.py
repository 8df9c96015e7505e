"""What the dynamic loader reads of an ELF file: which libraries it needs, and the symbols it needs and gives.

Only the dynamic segment, its tables and the section that counts the symbols are read, through a memory map: a library
of a gigabyte costs as little as a small one. Layout and names: System V ABI (generic), "Dynamic Linking", and the
"Symbol Versioning" chapter of the Linux Standard Base. Nothing but the standard library, so it runs in any image.
"""

from __future__ import annotations

import contextlib
import mmap
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

MACHINES = {62: "x86_64", 183: "aarch64"}
ET_EXEC, ET_DYN = 2, 3
PT_LOAD, PT_DYNAMIC, PT_INTERP = 1, 2, 3
SHT_DYNSYM = 11
STB_WEAK, STB_LOCAL = 2, 0
SHN_UNDEF = 0
VERSYM_HIDDEN = 0x8000
VER_FLG_BASE, VER_FLG_WEAK = 1, 2

DT_NEEDED, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SONAME, DT_RPATH, DT_RUNPATH = 1, 4, 5, 6, 10, 14, 15, 29
DT_GNU_HASH, DT_VERSYM = 0x6FFFFEF5, 0x6FFFFFF0
DT_VERDEF, DT_VERDEFNUM, DT_VERNEED, DT_VERNEEDNUM = 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_DYNAMIC = struct.Struct("<qQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_VERNEED, _VERNAUX = struct.Struct("<HHIII"), struct.Struct("<IHHII")
_VERDEF, _VERDAUX = struct.Struct("<HHHHIII"), struct.Struct("<II")


class DynamicError(Exception):
    """The file is no ELF file that this can read, or its dynamic segment is damaged."""


@dataclass(frozen=True, order=True)
class Need:
    """A symbol that another file must give. version: with the file that should have it; weak: may stay absent."""

    name: str
    version: str | None = None
    file: str | None = None
    weak: bool = False

    def __str__(self) -> str:
        return f"{self.name}@{self.version}" if self.version else self.name


@dataclass(frozen=True, order=True)
class VersionNeed:
    """A symbol version that `file` must define, as GLIBC_2.34 of libc.so.6."""

    file: str
    version: str
    weak: bool = False


@dataclass(frozen=True)
class Elf:
    """The dynamic segment of one file, with the symbols that it needs.

    machine: as uname spells it; rpath, runpath: split, and still with $ORIGIN; interpreter: only programs have one.
    """

    path: Path
    machine: str
    dynamic: bool
    soname: str | None = None
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
    interpreter: str | None = None
    version_needs: tuple[VersionNeed, ...] = ()
    needs: tuple[Need, ...] = ()

    @property
    def name(self) -> str:
        """What other files call it."""
        return self.soname or self.path.name


@dataclass(frozen=True)
class Exports:
    """The symbols that a file gives. symbols: name -> versions, None for one without; versions: all it defines."""

    symbols: Mapping[str, frozenset[str | None]]
    versions: frozenset[str] = frozenset()

    def answer(self, need: Need) -> bool:
        """Whether the symbol is here, as the loader matches versions.

        A file that defines no versions answers for all of them, and a need without one takes any.
        """
        found = self.symbols.get(need.name)
        if found is None:
            return False
        return need.version is None or not self.versions or need.version in found


def is_elf(path: Path) -> bool:
    """Whether the file starts as an ELF file. Raises OSError."""
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def read(path: Path) -> Elf:
    """What a file needs. Raises DynamicError, OSError."""
    with _opened(path) as reader:
        return reader.elf()


def read_exports(path: Path) -> Exports:
    """What a file gives to others: of its own, because only few of them are asked. Raises DynamicError, OSError."""
    with _opened(path) as reader:
        return reader.exports()


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[_Reader]:
    with path.open("rb") as file:
        try:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:
            raise DynamicError(f"{path}: empty file") from None
    with data:
        try:
            yield _Reader(path, data)
        except DynamicError as error:
            raise DynamicError(f"{path}: {error}") from None


class _Reader:
    """One mapped file. Every offset that the file names is checked against its size."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path = path
        self.data = data
        header = self._at(_HEADER, 0, "the ELF header")
        ident, self.kind, machine = header[0], header[1], header[2]
        if ident[:4] != b"\x7fELF":
            raise DynamicError("not an ELF file")
        if ident[4:6] != b"\x02\x01":
            raise DynamicError("not a 64-bit little-endian ELF file")
        self.machine = MACHINES.get(machine, f"machine {machine}")
        self.sections, self.section_count = header[6], header[12]
        self.segments = [
            self._at(_SEGMENT, header[5] + index * _SEGMENT.size, "a program header") for index in range(header[10])
        ]
        self.tags: dict[int, list[int]] = {}
        self._table = b""

    def elf(self) -> Elf:
        interpreter = self._interpreter()
        if not self._read_tags():
            return Elf(self.path, self.machine, dynamic=False, interpreter=interpreter)
        names, version_needs, _ = self._versions()
        needs = []
        for name, version, weak, defined in self._symbols():
            if not defined:
                wanted, file = names.get(version, (None, None))
                needs.append(Need(self._text(name), wanted, file, weak))
        return Elf(
            self.path,
            self.machine,
            dynamic=True,
            soname=next(iter(self._texts(DT_SONAME)), None),
            needed=tuple(self._texts(DT_NEEDED)),
            rpath=self._folders(DT_RPATH),
            runpath=self._folders(DT_RUNPATH),
            interpreter=interpreter,
            version_needs=version_needs,
            needs=tuple(needs),
        )

    def exports(self) -> Exports:
        if not self._read_tags():
            return Exports({})
        names, _, defined_versions = self._versions()
        symbols: dict[str, frozenset[str | None]] = {}
        for name, number, _, defined in self._symbols():
            if defined:
                text, version = self._text(name), names.get(number, (None, None))[0]
                symbols[text] = symbols[text] | {version} if text in symbols else frozenset({version})
        return Exports(symbols, defined_versions)

    def _at(self, form: struct.Struct, at: int, what: str) -> tuple:  # type: ignore[type-arg]
        if at < 0 or at + form.size > len(self.data):
            raise DynamicError(f"{what} is cut off")
        return form.unpack_from(self.data, at)

    def _offset(self, address: int) -> int:
        """Where in the file the loader finds an address."""
        for kind, _, offset, start, _, in_file, _, _ in self.segments:
            if kind == PT_LOAD and start <= address < start + in_file:
                return int(offset + address - start)
        raise DynamicError(f"address {address:#x} is in no part of the file")

    def _interpreter(self) -> str | None:
        found = next((s for s in self.segments if s[0] == PT_INTERP), None)
        return (
            None
            if found is None
            else self.data[found[2] : found[2] + found[5]].rstrip(b"\0").decode("utf-8", "replace")
        )

    def _read_tags(self) -> bool:
        """Read the dynamic segment; False when there is none."""
        segment = next((s for s in self.segments if s[0] == PT_DYNAMIC), None)
        if segment is None:
            return False
        at, size = segment[2], segment[5]
        if at + size > len(self.data):
            raise DynamicError("the dynamic segment is cut off")
        for place in range(at, at + size - size % _DYNAMIC.size, _DYNAMIC.size):
            tag, value = _DYNAMIC.unpack_from(self.data, place)
            if tag == 0:
                break
            self.tags.setdefault(tag, []).append(value)
        start, length = self._offset(self._one(DT_STRTAB)), self._one(DT_STRSZ)
        if start + length > len(self.data):
            raise DynamicError("the string table is cut off")
        self._table = self.data[start : start + length]
        return True

    def _one(self, tag: int) -> int:
        if tag not in self.tags:
            raise DynamicError(f"the dynamic segment has no tag {tag:#x}")
        return self.tags[tag][0]

    def _texts(self, tag: int) -> Iterator[str]:
        return (self._text(value) for value in self.tags.get(tag, []))

    def _text(self, at: int) -> str:
        end = self._table.find(b"\0", at)
        if end < 0:
            raise DynamicError("a name is cut off")
        # Names are bytes to the loader; what is no UTF-8 stays readable.
        return self._table[at:end].decode("utf-8", "backslashreplace")

    def _folders(self, tag: int) -> tuple[str, ...]:
        return tuple(part for text in self._texts(tag) for part in text.split(":") if part)

    def _versions(self) -> tuple[dict[int, tuple[str, str | None]], tuple[VersionNeed, ...], frozenset[str]]:
        """(index in the version table -> (version, file that must have it), those needed, those defined)."""
        names: dict[int, tuple[str, str | None]] = {}
        needs: list[VersionNeed] = []
        defined: set[str] = set()
        at = self._offset(self._one(DT_VERNEED)) if DT_VERNEED in self.tags else 0
        for _ in range(self.tags.get(DT_VERNEEDNUM, [0])[0] if at else 0):
            _, count, file, aux, following = self._at(_VERNEED, at, "a needed version")
            place = at + aux
            for _ in range(count):
                _, flags, index, name, next_aux = self._at(_VERNAUX, place, "a needed version")
                names[index & ~VERSYM_HIDDEN] = (self._text(name), self._text(file))
                needs.append(VersionNeed(self._text(file), self._text(name), bool(flags & VER_FLG_WEAK)))
                place += next_aux
            if not following:
                break
            at += following
        at = self._offset(self._one(DT_VERDEF)) if DT_VERDEF in self.tags else 0
        for _ in range(self.tags.get(DT_VERDEFNUM, [0])[0] if at else 0):
            _, flags, index, _, _, aux, following = self._at(_VERDEF, at, "a defined version")
            name = self._text(self._at(_VERDAUX, at + aux, "a defined version")[0])
            if not flags & VER_FLG_BASE:
                names[index & ~VERSYM_HIDDEN] = (name, None)
                defined.add(name)
            if not following:
                break
            at += following
        return names, tuple(sorted(needs)), frozenset(defined)

    def _symbols(self) -> Iterator[tuple[int, int, bool, bool]]:
        """(offset of the name, index of the version, weak, defined) of every symbol that others can see."""
        count = self._count()
        start = self._offset(self._one(DT_SYMTAB))
        if start + count * _SYMBOL.size > len(self.data):
            raise DynamicError("the symbol table is cut off")
        versions: tuple[int, ...] = (1,) * count
        if DT_VERSYM in self.tags:
            versions = self._at(struct.Struct(f"<{count}H"), self._offset(self._one(DT_VERSYM)), "the version table")
        table = self.data[start : start + count * _SYMBOL.size]
        for (name, info, _, section, _, _), number in zip(_SYMBOL.iter_unpack(table), versions, strict=True):
            if name and info >> 4 != STB_LOCAL:
                yield name, number & ~VERSYM_HIDDEN, info >> 4 == STB_WEAK, section != SHN_UNDEF

    def _count(self) -> int:
        """How many symbols there are: no tag says it, a section header or the hash tables do."""
        for index in range(self.section_count if self.sections else 0):
            section = self._at(_SECTION, self.sections + index * _SECTION.size, "the section table")
            if section[1] == SHT_DYNSYM:
                return int(section[5] // _SYMBOL.size)
        if DT_HASH in self.tags:
            return int(self._at(struct.Struct("<II"), self._offset(self._one(DT_HASH)), "the hash table")[1])
        if DT_GNU_HASH in self.tags:
            return self._count_by_gnu_hash(self._offset(self._one(DT_GNU_HASH)))
        raise DynamicError("nothing says how many symbols there are")

    def _count_by_gnu_hash(self, at: int) -> int:
        """The end of the chain of the last bucket: its last entry has the lowest bit set."""
        buckets, first, bloom, _ = self._at(struct.Struct("<IIII"), at, "the hash table")
        at += 16 + 8 * bloom
        last = max(self._at(struct.Struct(f"<{buckets}I"), at, "the hash table"), default=0)
        if last < first:
            return int(first)
        chain = at + 4 * buckets
        one = struct.Struct("<I")
        while not self._at(one, chain + 4 * (last - first), "the hash table")[0] & 1:
            last += 1
        return int(last + 1)
