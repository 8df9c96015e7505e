"""What one wheel or sdist says of itself: what it requires, which Python it wants, and which files it writes.

Read from the store when it is there, and kept as JSON below .graft by its sha256. Nothing is downloaded, and a file
that is not as fetch left it is not read.
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
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from email.message import Message
from pathlib import Path
from typing import Any

from graft.lock import FilePin, SourcePin, write_atomic
from graft.store import CHECKED_MTIME, Store

#: Part of all that is kept: raised when it means something else.
FORMAT = 2
SCHEME = re.compile(r"[^/]+\.data/([a-z]+)/(.+)")


@dataclass(frozen=True)
class Contents:
    """files: path as installed -> hash as RECORD spells it; requires None: only its build would say."""

    requires: tuple[str, ...] | None
    python: str
    files: Mapping[str, str]


class Library:
    """The store's files, and what is kept of them below `folder`."""

    def __init__(self, store: Store, folder: Path) -> None:
        self._store = store
        self._folder = folder
        # Listed once: asking for each file of each lock costs more than all rules together.
        self._stored = _names(store.root)
        self._kept = _names(folder)

    def has(self, pin: FilePin) -> bool:
        """Whether it was read before, or lies in the store as fetch left it; else its hash would have to be taken."""
        if _file(pin) in self._kept:
            return True
        if pin.sha256 not in self._stored:
            return False
        try:
            facts = self._store.path(pin).stat()
        except OSError:
            return False
        return facts.st_size == pin.size and facts.st_mtime == CHECKED_MTIME

    def read(self, pin: FilePin) -> Contents | None:
        """What a file says; None when it is not at hand or says nothing that can be read."""
        if isinstance(pin, SourcePin) and pin.tree is not None:
            return Contents(pin.requires, "", {})
        known = self.kept(_file(pin))
        if known is not None:
            requires = known["requires"]
            return Contents(None if requires is None else tuple(requires), known["python"], known["files"])
        if not self.has(pin):
            return None
        path = self._store.path(pin)
        try:
            contents = of_wheel(path) if path.suffix == ".whl" else of_sdist(path)
        except (OSError, ValueError, KeyError, zipfile.BadZipFile, tarfile.TarError):
            return None
        self.keep(_file(pin), asdict(contents))
        return contents

    def kept(self, name: str) -> dict[str, Any] | None:
        """What was kept under a name; None when there is nothing that can be used."""
        try:
            data = json.loads((self._folder / name).read_bytes()) if name in self._kept else None
        except (OSError, ValueError):
            return None
        return data if isinstance(data, dict) and data.get("format") == FORMAT else None

    def keep(self, name: str, data: Mapping[str, Any]) -> None:
        """For the next run, by name."""
        with contextlib.suppress(OSError):
            # Only speed: where nothing can be written, everything is read again.
            self._folder.mkdir(parents=True, exist_ok=True)
            write_atomic(self._folder / name, json.dumps({"format": FORMAT, **data}, separators=(",", ":")))
            self._kept.add(name)


def of_wheel(path: Path) -> Contents:
    """From METADATA and RECORD. Raises KeyError for a wheel without them, BadZipFile, ValueError and OSError."""
    with zipfile.ZipFile(path) as archive:
        info = next((n for n in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", n)), None)
        if info is None:
            raise KeyError("METADATA")
        requires, python = _metadata(_headers(archive.read(info)))
        rows = csv.reader(archive.read(f"{posixpath.dirname(info)}/RECORD").decode("utf-8").splitlines())
        files = {_installed(row[0]): row[1] for row in rows if len(row) > 1 and row[1]}
    return Contents(requires, python, files)


def of_sdist(path: Path) -> Contents:
    """From PKG-INFO; its files are known after its build. Raises KeyError without it, TarError and OSError."""
    with tarfile.open(path, "r|gz") as archive:
        for member in archive:
            stream = archive.extractfile(member) if re.fullmatch(r"[^/]+/PKG-INFO", member.name) else None
            if stream is not None:
                headers = _headers(stream.read())
                requires, python = _metadata(headers)
                return Contents(None if _is_computed(headers) else requires, python, {})
    raise KeyError("PKG-INFO")


def _headers(raw: bytes) -> Message:
    return email.parser.HeaderParser().parsestr(raw.decode("utf-8", "replace"))


def _metadata(headers: Message) -> tuple[tuple[str, ...], str]:
    """(Requires-Dist, Requires-Python)."""
    requires = tuple(str(value) for value in headers.get_all("Requires-Dist") or ())
    return requires, str(headers.get("Requires-Python") or "")


def _is_computed(headers: Message) -> bool:
    """Whether an sdist leaves its requirements to its build (PEP 643); in a wheel the word is a note on its sdist."""
    return "requires-dist" in {str(value).lower() for value in headers.get_all("Dynamic") or ()}


def requirements_of(metadata: bytes) -> tuple[str, ...] | None:
    """Requires-Dist of a PKG-INFO or METADATA; None where it is declared dynamic, or too old to be believed."""
    headers = _headers(metadata)
    version = str(headers.get("Metadata-Version") or "0").split(".")
    # PEP 643: before 2.2 the metadata of an sdist may be other than that of what is built from it.
    old = [int(n) for n in version if n.isdigit()] < [2, 2]
    return None if old or _is_computed(headers) else _metadata(headers)[0]


def _installed(path: str) -> str:
    """Where a file of a wheel is installed, below site-packages or as `scheme:path` (PEP 427)."""
    scheme = SCHEME.fullmatch(path)
    if scheme is not None and scheme[1] not in ("purelib", "platlib"):
        return f"{scheme[1]}:{scheme[2]}"
    return posixpath.normpath(scheme[2] if scheme is not None else path)


def _file(pin: FilePin) -> str:
    return f"{pin.sha256}.json"


def _names(folder: Path) -> set[str]:
    try:
        return {entry.name for entry in os.scandir(folder)}
    except OSError:
        return set()
