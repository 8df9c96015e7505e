"""What the locked wheels of an image say together: what they miss, and which files they write over each other.

The answer for a lock is kept by the hash of what it follows from, so that it costs one small file the next time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from graft.hashes import digest_of
from graft.linting.contents import FORMAT, Contents, Library
from graft.lock import FilePin, Lock, PackagePin
from graft.project import Base
from graft.store import Store


@dataclass(frozen=True)
class Mismatch:
    """`package` asks for `requires`, which names `wanted`; the lock installs version `found` of it, None: nothing."""

    package: str
    requires: str
    wanted: str
    found: str | None


@dataclass(frozen=True)
class Conflict:
    """A file below site-packages that several wheels write; owners: (distribution, hash as RECORD spells it)."""

    file: str
    owners: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Closure:
    """All wheels of a lock together.

    unread:  the files that are not at hand, so that nothing is known of them.
    pythons: (distribution, the Pythons it asks for) of those that do not want the base's.
    """

    unread: tuple[str, ...] = ()
    mismatches: tuple[Mismatch, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    pythons: tuple[tuple[str, str], ...] = ()


class Wheels:
    """Closures from the store's wheels, and from what is kept of them below `folder`."""

    def __init__(self, store: Store, folder: Path) -> None:
        self._library = Library(store, folder)

    def closure(self, lock: Lock, base: Base) -> Closure:
        """What the wheels of the image, and the sources of what is built for it, say together."""
        pins: list[FilePin] = [pin for pin in lock.packages if pin.use == "image"]
        pins += [pin for _, pin in sorted(lock.sources.items()) if not pin.alone]
        away = [pin.sha256 for pin in pins if not self._library.has(pin)]
        facts = [[pin.name, pin.version, pin.sha256, _arches(pin)] for pin in pins]
        name = f"lock-{digest_of([FORMAT, base.python, base.machine, facts, away])}.json"
        known = self._library.kept(name)
        if known is not None:
            return _closure_of(known)
        read = {pin.sha256: self._library.read(pin) for pin in pins}
        found = {digest: contents for digest, contents in read.items() if contents is not None}
        made = Closure(
            tuple(sorted(pin.file for pin in pins if pin.sha256 not in found)),
            tuple(_mismatches(pins, found, base)),
            _conflicts(pins, found),
            tuple(_pythons(pins, found, base)),
        )
        if found:
            self._library.keep(name, asdict(made))
        return made


def _closure_of(data: Mapping[str, Any]) -> Closure:
    return Closure(
        tuple(data["unread"]),
        tuple(Mismatch(**item) for item in data["mismatches"]),
        tuple(Conflict(item["file"], tuple((o[0], o[1]) for o in item["owners"])) for item in data["conflicts"]),
        tuple((item[0], item[1]) for item in data["pythons"]),
    )


def _arches(pin: FilePin) -> list[str] | None:
    """Where it is installed; None is everywhere, as for what is built."""
    return list(pin.arches) if isinstance(pin, PackagePin) and pin.arches is not None else None


def _meet(one: FilePin, other: FilePin) -> bool:
    """Whether two packages are ever installed together."""
    here, there = _arches(one), _arches(other)
    return here is None or there is None or bool({*here} & {*there})


def _mismatches(pins: Sequence[FilePin], read: Mapping[str, Contents], base: Base) -> Iterator[Mismatch]:
    """Every requirement that what is installed does not fulfil, with the extras that others ask for."""
    by_name: dict[str, list[FilePin]] = {}
    for pin in pins:
        by_name.setdefault(canonicalize_name(pin.name), []).append(pin)
    waiting = [(pin, "") for pin in pins]
    seen: set[tuple[str, str]] = set()
    while waiting:
        pin, extra = waiting.pop()
        contents = read.get(pin.sha256)
        if contents is None or contents.requires is None or (pin.sha256, extra) in seen:
            continue
        seen.add((pin.sha256, extra))
        for text, wanted in _asked(contents.requires, extra, base):
            name = canonicalize_name(wanted.name)
            here = [other for other in by_name.get(name, ()) if _meet(pin, other)]
            if not here:
                yield Mismatch(pin.name, text, name, None)
            for other in here:
                if not wanted.specifier.contains(other.version, prereleases=True):
                    yield Mismatch(pin.name, text, name, other.version)
                waiting += [(other, asked) for asked in sorted(wanted.extras)]


def markers_of(base: Base, extra: str = "") -> dict[str, str]:
    """What environment markers are held against on a base (PEP 508), without an extra or with one."""
    return {
        "python_version": base.python,
        "python_full_version": f"{base.python}.0",
        "implementation_version": f"{base.python}.0",
        "os_name": "posix",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": base.machine,
        "platform_release": "",
        "platform_version": "",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "extra": extra,
    }


def _asked(requires: Iterable[str], extra: str, base: Base) -> Iterator[tuple[str, Requirement]]:
    """The requirements that hold for the base's Python and platform, without an extra or with one."""
    environment = markers_of(base, extra)
    for text in requires:
        try:
            wanted = Requirement(text)
        except InvalidRequirement:
            # Installers refuse such a wheel; the lock would not hold it.
            continue
        if wanted.url is None and (wanted.marker is None or wanted.marker.evaluate(environment)):
            yield text, wanted


def _conflicts(pins: Sequence[FilePin], read: Mapping[str, Contents]) -> tuple[Conflict, ...]:
    first: dict[str, FilePin] = {}
    shared: dict[str, list[FilePin]] = {}
    for pin in pins:
        for path in read[pin.sha256].files if pin.sha256 in read else ():
            other = first.setdefault(path, pin)
            if other is not pin:
                shared.setdefault(path, [other]).append(pin)
    found = []
    for path, writers in sorted(shared.items()):
        written = [(pin, read[pin.sha256].files[path]) for pin in writers]
        if any(a != b and _meet(one, other) for one, a in written for other, b in written):
            found.append(Conflict(path, tuple((pin.name, digest) for pin, digest in written)))
    return tuple(found)


def _pythons(pins: Sequence[FilePin], read: Mapping[str, Contents], base: Base) -> Iterator[tuple[str, str]]:
    for pin in pins:
        asked = read[pin.sha256].python if pin.sha256 in read else ""
        try:
            # A bound such as >=3.11.4 is of the patch release, which the base's suite decides.
            fits = SpecifierSet(asked).contains(f"{base.python}.99", prereleases=True)
        except InvalidSpecifier:
            continue
        if not fits:
            yield pin.name, asked
