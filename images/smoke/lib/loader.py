"""What ld.so(8) of glibc would load for a file, and in which order it would look for a symbol; nothing is loaded.

The search for a library: the run paths of the file and of those that brought it in, LD_LIBRARY_PATH, ld.so.cache, the
default folders. A name under which something is loaded already is not searched for, which is how extensions without
any run path find torch's libraries.
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lib import dynamic
from lib.dynamic import DynamicError, Elf, Exports, Need

CACHE = Path("/etc/ld.so.cache")
CACHE_MAGIC = b"glibc-ld.so.cache1.1"
_CACHE_HEADER, _CACHE_ENTRY = struct.Struct("<20sII5I"), struct.Struct("<iIIIQ")
#: Debian's order; the flag of an entry of the cache for the same machine (dl-cache.h: ELF libc6 | 64-bit).
TRIPLETS = {"x86_64": ("x86_64-linux-gnu", 0x0303), "aarch64": ("aarch64-linux-gnu", 0x0A03)}
TOKEN = re.compile(r"\$(?:\{(\w+)\}|(ORIGIN|LIB|PLATFORM)\b)")


@dataclass(frozen=True)
class Loaded:
    """A file in a process, and what brought it in."""

    elf: Elf
    by: Loaded | None


class Library:
    """The file system as the loader sees it: files read once, and where a name is looked for."""

    def __init__(self, machine: str, environ: Mapping[str, str], cache: Path = CACHE) -> None:
        self.machine = machine
        triplet, self._flag = TRIPLETS[machine]
        self.path = tuple(part for part in re.split("[:;]", environ.get("LD_LIBRARY_PATH", "")) if part)
        self.defaults = tuple(f"{top}{sub}" for sub in (f"/{triplet}", "") for top in ("/lib", "/usr/lib"))
        self._cache_file = cache
        self._elfs: dict[Path, Elf] = {}
        self._exports: dict[Path, Exports] = {}

    def elf(self, path: Path) -> Elf:
        """What the file needs. Raises DynamicError, OSError."""
        if path not in self._elfs:
            self._elfs[path] = dynamic.read(path)
        return self._elfs[path]

    def exports(self, path: Path) -> Exports:
        """What the file gives. Raises DynamicError, OSError."""
        if path not in self._exports:
            self._exports[path] = dynamic.read_exports(path)
        return self._exports[path]

    @functools.cached_property
    def cached(self) -> Mapping[str, str]:
        """ld.so.cache: name -> file, for this machine. Empty where there is no cache."""
        try:
            return read_cache(self._cache_file.read_bytes(), self._flag)
        except FileNotFoundError:
            return {}

    def find(self, name: str, by: Loaded) -> Path | None:
        """The file that the loader takes for a name that `by` needs; links resolved. None: there is none."""
        return next(self.all(name, by), None)

    def all(self, name: str, by: Loaded) -> Iterator[Path]:
        """Every file that the loader could take for a name that `by` needs, the one that it takes first."""
        places = [self._expanded(name, by.elf)] if "/" in name else self._places(name, by)
        for place in places:
            if (found := self._usable(place)) is not None:
                yield found

    def _places(self, name: str, by: Loaded) -> Iterator[str]:
        yield from (f"{folder}/{name}" for folder in self.folders(by))
        if name in self.cached:
            yield self.cached[name]
        yield from (f"{folder}/{name}" for folder in self.defaults)

    def folders(self, by: Loaded) -> Iterator[str]:
        """Where it looks before the cache, in order."""
        if not by.elf.runpath:
            above: Loaded | None = by
            while above is not None:
                if not above.elf.runpath:
                    yield from (self._expanded(part, above.elf) for part in above.elf.rpath)
                above = above.by
        yield from self.path
        yield from (self._expanded(part, by.elf) for part in by.elf.runpath)

    def _expanded(self, text: str, elf: Elf) -> str:
        values = {"ORIGIN": str(elf.path.parent), "LIB": f"lib/{TRIPLETS[self.machine][0]}", "PLATFORM": self.machine}
        return TOKEN.sub(lambda found: values.get(found[1] or found[2], found[0]), text)

    @functools.cache  # noqa: B019 - lives as long as the one test does
    def _usable(self, text: str) -> Path | None:
        """The file, if it is one for this machine: the loader goes on past those of another one."""
        path = Path(text)
        try:
            path = path.resolve(strict=True)
            return path if dynamic.is_elf(path) and self.elf(path).machine == self.machine else None
        except (OSError, DynamicError):
            return None


class Process:
    """The files of one process, in the order of loading, with the names that they go by.

    A process that is made from another one starts with what is loaded there.
    """

    def __init__(self, library: Library, parent: Process | None = None) -> None:
        self.library = library
        self._names: dict[str, Loaded] = dict(parent._names) if parent else {}
        self._files: dict[Path, Loaded] = dict(parent._files) if parent else {}
        #: What every file may use, whoever brought it in.
        self.everywhere: list[Loaded] = list(parent.everywhere) if parent else []

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(self._files)

    def file(self, path: Path) -> Loaded:
        """A file of this process."""
        return self._files[path]

    def open(self, path: Path, *, everywhere: bool = False) -> Loaded:
        """Load a file and what it needs, as dlopen does; everywhere: RTLD_GLOBAL. Raises DynamicError, OSError."""
        opened = self._add(path.resolve(), None)
        waiting = [opened]
        for loaded in waiting:
            for name in loaded.elf.needed:
                if name not in self._names and (found := self.library.find(name, loaded)) is not None:
                    known = found in self._files
                    self._names[name] = self._add(found, loaded)
                    if not known:
                        waiting.append(self._names[name])
        if everywhere:
            self.everywhere += [loaded for loaded in self.scope(opened) if loaded not in self.everywhere]
        return opened

    def _add(self, path: Path, by: Loaded | None) -> Loaded:
        if path not in self._files:
            elf = self.library.elf(path)
            loaded = self._files[path] = Loaded(elf, by)
            self._names.setdefault(elf.name, loaded)
        return self._files[path]

    def needed(self, loaded: Loaded) -> Iterator[tuple[str, Loaded | None]]:
        """The names that a file needs, and what answers to each."""
        return ((name, self._names.get(name)) for name in loaded.elf.needed)

    def scope(self, opened: Loaded) -> list[Loaded]:
        """Where symbols of a file opened alone are looked for beside `everywhere`: itself, then breadth first."""
        found = {opened.elf.path: opened}
        waiting = [opened]
        for loaded in waiting:
            for _, other in self.needed(loaded):
                if other is not None and other.elf.path not in found:
                    found[other.elf.path] = other
                    waiting.append(other)
        return list(found.values())

    def missing(self, opened: Loaded, needs: Sequence[Need]) -> list[Need]:
        """Those of `needs` that nothing in reach of `opened` gives."""
        places = [self.library.exports(loaded.elf.path) for loaded in [*self.everywhere, *self.scope(opened)]]
        return [need for need in needs if not any(place.answer(need) for place in places)]


def read_cache(data: bytes, flag: int) -> dict[str, str]:
    """/etc/ld.so.cache in its format of glibc 2.32 and newer: name -> file for entries with this flag.

    Entries for special processors come first and are left out. Raises DynamicError for another format.
    """
    if data[: len(CACHE_MAGIC)] != CACHE_MAGIC:
        raise DynamicError(f"{CACHE} is of an unknown format")
    count = _CACHE_HEADER.unpack_from(data)[1]
    found: dict[str, str] = {}
    for index in range(count):
        flags, name, path, _, special = _CACHE_ENTRY.unpack_from(data, _CACHE_HEADER.size + index * _CACHE_ENTRY.size)
        if flags == flag and not special:
            found.setdefault(_cached_text(data, name), _cached_text(data, path))
    return found


def _cached_text(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode()
