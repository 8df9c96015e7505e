"""What locked wheels say of themselves: what they require, and which files they write. Read once, then kept.

A wheel's METADATA and RECORD are read from the store when it is there, and kept as JSON below .graft by the wheel's
sha256; what follows from all wheels of a lock together is kept by the hash of what it follows from. Nothing is
downloaded: a wheel that is not at hand is named, not passed.
"""

from __future__ import annotations

import contextlib
import csv
import email.parser
import json
import os
import posixpath
import re
import tarfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from graft.hashes import digest_of
from graft.lock import FilePin, Lock, PackagePin, write_atomic
from graft.project import Base
from graft.store import CHECKED_MTIME, Store

#: Part of every key: raised when what is kept means something else.
FORMAT = 1
SCHEME = re.compile(r"[^/]+\.data/([a-z]+)/(.+)")


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


@dataclass(frozen=True)
class Contents:
    """Of one wheel or sdist. files: path as installed -> hash; requires None: only its build would say."""

    requires: tuple[str, ...] | None
    python: str
    files: Mapping[str, str]


class Wheels:
    """The store's wheels, and what is kept of them below `folder`."""

    def __init__(self, store: Store, folder: Path) -> None:
        self._store = store
        self._folder = folder
        # Listed once: asking for each file of each lock costs more than all rules together.
        self._stored = _names(store.root)
        self._read = _names(folder)

    def closure(self, lock: Lock, base: Base) -> Closure:
        """What the wheels of the image say together."""
        pins = [pin for pin in lock.packages if pin.use == "image"]
        sources = [lock.sources[name] for name in sorted(lock.sources)]
        facts = [[p.name, p.version, p.sha256, list(p.arches) if p.arches else None] for p in pins]
        away = sorted(pin.sha256 for pin in [*pins, *sources] if not self._is_at_hand(pin))
        named = [[s.name, s.version, s.sha256] for s in sources]
        name = f"lock-{digest_of([FORMAT, base.python, base.machine, facts, named, away])}.json"
        known = _kept(self._folder / name) if name in self._read else None
        if known is not None:
            return _closure_of(known)
        read = {pin.sha256: self._contents(pin) for pin in [*pins, *sources]}
        unread = tuple(sorted(pin.file for pin in [*pins, *sources] if read[pin.sha256] is None))
        found = {digest: contents for digest, contents in read.items() if contents is not None}
        made = Closure(
            unread, tuple(_mismatches(pins, sources, found, base)), _conflicts(pins, found), _pythons(pins, found, base)
        )
        if found:
            self._keep(name, asdict(made))
        return made

    def _is_at_hand(self, pin: FilePin) -> bool:
        """Whether it was read before, or lies in the store as fetch left it; else its hash would have to be taken."""
        if f"{pin.sha256}.json" in self._read:
            return True
        if pin.sha256 not in self._stored:
            return False
        try:
            facts = self._store.path(pin).stat()
        except OSError:
            return False
        return facts.st_size == pin.size and facts.st_mtime == CHECKED_MTIME

    def _contents(self, pin: FilePin) -> Contents | None:
        known = _kept(self._folder / f"{pin.sha256}.json") if f"{pin.sha256}.json" in self._read else None
        if known is not None:
            requires = known["requires"]
            return Contents(None if requires is None else tuple(requires), known["python"], known["files"])
        if not self._is_at_hand(pin):
            return None
        path = self._store.path(pin)
        try:
            contents = _of_wheel(path) if path.suffix == ".whl" else _of_sdist(path)
        except (OSError, ValueError, KeyError, zipfile.BadZipFile, tarfile.TarError):
            return None
        self._keep(f"{pin.sha256}.json", asdict(contents))
        return contents

    def _keep(self, name: str, data: Mapping[str, Any]) -> None:
        with contextlib.suppress(OSError):
            # Only the next run's speed: where nothing can be written, everything is read again.
            self._folder.mkdir(parents=True, exist_ok=True)
            write_atomic(self._folder / name, json.dumps({"format": FORMAT, **data}, separators=(",", ":")))
            self._read.add(name)


def _names(folder: Path) -> set[str]:
    try:
        return {entry.name for entry in os.scandir(folder)}
    except OSError:
        return set()


def _kept(path: Path) -> dict[str, Any] | None:
    """What was kept; None when there is nothing that can be used."""
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) and data.get("format") == FORMAT else None


def _closure_of(data: Mapping[str, Any]) -> Closure:
    return Closure(
        tuple(data["unread"]),
        tuple(Mismatch(**item) for item in data["mismatches"]),
        tuple(Conflict(item["file"], tuple((o[0], o[1]) for o in item["owners"])) for item in data["conflicts"]),
        tuple((item[0], item[1]) for item in data["pythons"]),
    )


def _of_wheel(path: Path) -> Contents:
    """Raises KeyError for a wheel without METADATA or RECORD."""
    with zipfile.ZipFile(path) as archive:
        info = next((n for n in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", n)), None)
        if info is None:
            raise KeyError("METADATA")
        requires, python = _metadata(archive.read(info))
        rows = csv.reader(archive.read(f"{posixpath.dirname(info)}/RECORD").decode("utf-8").splitlines())
        files = {_installed(row[0]): row[1] for row in rows if len(row) > 1 and row[1]}
    return Contents(requires, python, files)


def _of_sdist(path: Path) -> Contents:
    """Raises KeyError for an sdist without PKG-INFO."""
    with tarfile.open(path, "r|gz") as archive:
        for member in archive:
            if re.fullmatch(r"[^/]+/PKG-INFO", member.name):
                stream = archive.extractfile(member)
                return Contents(*_metadata(stream.read() if stream is not None else b""), {})
    raise KeyError("PKG-INFO")


def _metadata(raw: bytes) -> tuple[tuple[str, ...] | None, str]:
    """(Requires-Dist, Requires-Python); the first is None where it is declared dynamic (PEP 643)."""
    headers = email.parser.HeaderParser().parsestr(raw.decode("utf-8", "replace"))
    dynamic = {str(value).lower() for value in headers.get_all("Dynamic") or ()}
    requires = tuple(str(value) for value in headers.get_all("Requires-Dist") or ())
    return None if "requires-dist" in dynamic else requires, str(headers.get("Requires-Python") or "")


def _installed(path: str) -> str:
    """Where a file of a wheel is installed, below site-packages or as `scheme:path` (PEP 427)."""
    scheme = SCHEME.fullmatch(path)
    if scheme is not None and scheme[1] not in ("purelib", "platlib"):
        return f"{scheme[1]}:{scheme[2]}"
    return posixpath.normpath(scheme[2] if scheme is not None else path)


def _mismatches(
    pins: Sequence[PackagePin], sources: Sequence[FilePin], read: Mapping[str, Contents], base: Base
) -> Iterable[Mismatch]:
    """Every requirement that what is installed does not fulfil, with the extras that others ask for."""
    owners: list[tuple[PackagePin | None, FilePin]] = [*((pin, pin) for pin in pins), *((None, s) for s in sources)]
    by_name: dict[str, list[tuple[PackagePin | None, FilePin]]] = {}
    for owner in owners:
        by_name.setdefault(canonicalize_name(owner[1].name), []).append(owner)
    waiting = [(owner, "") for owner in owners]
    seen: set[tuple[str, str]] = set()
    while waiting:
        owner, extra = waiting.pop()
        pin, asking = owner
        contents = read.get(asking.sha256)
        if contents is None or contents.requires is None or (asking.sha256, extra) in seen:
            continue
        seen.add((asking.sha256, extra))
        for text, wanted in _asked(contents.requires, extra, base):
            name = canonicalize_name(wanted.name)
            here = [file.version for other, file in by_name.get(name, ()) if _meet(pin, other)]
            if not here:
                yield Mismatch(asking.name, text, name, None)
            for version in here:
                if not wanted.specifier.contains(version, prereleases=True):
                    yield Mismatch(asking.name, text, name, version)
            waiting += [(other, asked) for asked in sorted(wanted.extras) for other in by_name.get(name, ())]


def _asked(requires: Iterable[str], extra: str, base: Base) -> Iterable[tuple[str, Requirement]]:
    """The requirements that hold for the base's Python and platform, and only because of `extra` if one is given."""
    environment = {
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
    for text in requires:
        try:
            wanted = Requirement(text)
        except InvalidRequirement:
            # Installers refuse such a wheel; the lock would not hold it.
            continue
        if wanted.url is None and (wanted.marker is None or wanted.marker.evaluate(environment)):
            yield text, wanted


def _meet(one: PackagePin | None, other: PackagePin | None) -> bool:
    """Whether two packages are ever installed together; what is built (None) is taken to be everywhere."""
    if one is None or other is None or one.arches is None or other.arches is None:
        return True
    return bool({*one.arches} & {*other.arches})


def _conflicts(pins: Sequence[PackagePin], read: Mapping[str, Contents]) -> tuple[Conflict, ...]:
    first: dict[str, PackagePin] = {}
    shared: dict[str, list[PackagePin]] = {}
    for pin in pins:
        for path in read[pin.sha256].files if pin.sha256 in read else ():
            other = first.setdefault(path, pin)
            if other is not pin:
                shared.setdefault(path, [other]).append(pin)
    found = []
    for path, writers in sorted(shared.items()):
        owners = tuple((pin.name, read[pin.sha256].files[path]) for pin in writers)
        differ = any(
            a[1] != b[1] and _meet(p, q)
            for p, a in zip(writers, owners, strict=True)
            for q, b in zip(writers, owners, strict=True)
        )
        if differ:
            found.append(Conflict(path, owners))
    return tuple(found)


def _pythons(pins: Sequence[PackagePin], read: Mapping[str, Contents], base: Base) -> tuple[tuple[str, str], ...]:
    found = []
    for pin in pins:
        asked = read[pin.sha256].python if pin.sha256 in read else ""
        try:
            fits = SpecifierSet(asked).contains(f"{base.python}.99", prereleases=True)
        except InvalidSpecifier:
            continue
        if not fits:
            found.append((pin.name, asked))
    return tuple(found)
