"""Entries of the store on disk: `<component>/<key>/component.json` and the wheels that it names.

An entry appears whole or not at all (a folder that is renamed, under the store's lock). What is damaged is removed and
built again; what says another key than its place is an error, because somebody put it there.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from filelock import FileLock
from pydantic import Field, ValidationError

from graft.built.stamp import key_in
from graft.errors import BuildFailed, FetchFailed
from graft.hashes import digest_of, file_sha256
from graft.sources import Sha256
from graft.store import CHECKED_MTIME
from graft.yamlio import Model, grammar

RECORD = "component.json"
#: Version of the record's form; an entry of another one is built again.
FORMAT = 1
MAX_RECORD = 1_000_000
NAME = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*")
WheelName = Annotated[str, grammar(r"[A-Za-z0-9_.+!]+(?:-[A-Za-z0-9_.+!]+){4,5}\.whl", "the file name of a wheel")]


class File(Model):
    """A wheel of an entry; size in bytes."""

    name: WheelName
    size: int = Field(ge=1)
    sha256: Sha256


class Record(Model):
    """component.json: what an entry is of. inputs: the named inputs that `key` is the hash of."""

    format: int
    component: str
    arch: str
    key: Sha256
    inputs: dict[str, str]
    files: tuple[File, ...] = Field(min_length=1, strict=False)

    def text(self) -> str:
        """The one form of it: the same component gives the same bytes everywhere."""
        return json.dumps(self.model_dump(mode="json"), indent=1, sort_keys=True) + "\n"


@dataclass(frozen=True)
class Entry:
    """A component in the store."""

    folder: Path
    record: Record

    @property
    def size(self) -> int:
        """Bytes of its wheels."""
        return sum(file.size for file in self.record.files)

    @property
    def used(self) -> float:
        """When a build last took it, or made it: seconds since 1970."""
        return (self.folder / RECORD).stat().st_mtime

    def wheels(self) -> dict[Path, File]:
        return {self.folder / file.name: file for file in self.record.files}


@dataclass(frozen=True)
class Wanted:
    """A component by its key, and what that is the hash of."""

    component: str
    arch: str
    key: str
    inputs: Mapping[str, str]


class BuiltStore:
    """Built components below one folder. say: told what was removed, and why."""

    def __init__(self, root: Path, say: Callable[[str], None] = lambda text: None) -> None:
        self.root = root
        self._say = say

    def has(self, wanted: Wanted) -> bool:
        """Whether there is an entry, without a look into it."""
        return (self._folder(wanted.component, wanted.key) / RECORD).is_file()

    def find(self, wanted: Wanted) -> Entry | None:
        """The entry, checked: every wheel whole and of this key. A damaged one is removed.

        Raises FetchFailed for a wheel, or a record, with another key inside.
        """
        folder = self._folder(wanted.component, wanted.key)
        if not os.path.lexists(folder):
            return None
        with self.locked():
            problem, entry = self._look(folder, wanted)
            if entry is None:
                if os.path.lexists(folder):
                    self._say(f"{wanted.component} {wanted.key[:12]} in the store is damaged ({problem}): removed")
                    _remove(folder)
                return None
            with contextlib.suppress(OSError):
                # When it was last of use, for gc.
                os.utime(folder / RECORD)
            return entry

    def add(self, wanted: Wanted, wheels: Sequence[Path]) -> Entry:
        """Move wheels into the store; an entry that is there already, and whole, stays and is returned.

        Raises BuildFailed when there is none, and FetchFailed for one with another key inside.
        """
        if not wheels:
            raise BuildFailed(f"the build of {wanted.component} made no wheel")
        folder = self._folder(wanted.component, wanted.key)
        with self.locked():
            _, there = self._look(folder, wanted)
            if there is not None:
                return there
            # Hours of compilers may be in these wheels: what is in their way is not worth them.
            if not folder.parent.is_dir():
                _remove(folder.parent)
            # Whoever left one was killed: the lock is ours.
            for half in folder.parent.glob(".*.new"):
                _remove(half)
            fresh = folder.with_name(f".{folder.name}.new")
            fresh.mkdir(parents=True)
            files = []
            for wheel in sorted(wheels):
                check_key(wheel, wanted)
                file = File(name=wheel.name, size=wheel.stat().st_size, sha256=file_sha256(wheel))
                shutil.move(wheel, fresh / wheel.name)
                mark(fresh / wheel.name, file.sha256)
                files.append(file)
            record = Record(
                format=FORMAT,
                component=wanted.component,
                arch=wanted.arch,
                key=wanted.key,
                inputs=dict(wanted.inputs),
                files=tuple(files),
            )
            (fresh / RECORD).write_text(record.text(), encoding="utf-8")
            _remove(folder)
            fresh.rename(folder)
        return Entry(folder, record)

    def entries(self) -> Iterator[Entry]:
        """All of them, by component and key; those whose record cannot be read are left out."""
        for file in sorted(self.root.glob(f"*/*/{RECORD}")):
            with contextlib.suppress(_Damaged, FileNotFoundError):
                yield Entry(file.parent, _read(file))

    def broken(self) -> list[Path]:
        """What lies in the place of an entry and is none: its record cannot be read, or a writer was killed."""
        whole = {entry.folder for entry in self.entries()}
        # A folder with a dot is where somebody pulls to, without the lock.
        there = [place for place in sorted(self.root.glob("*/*")) if not place.parent.name.startswith(".")]
        return [place for place in there if place not in whole]

    def remove(self, folders: Iterable[Path]) -> None:
        """Under the lock, so that no writer is in one of them."""
        with self.locked():
            for folder in folders:
                _remove(folder)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One writer at a time."""
        self.root.mkdir(parents=True, exist_ok=True)
        with FileLock(self.root / ".lock"):
            yield

    def _folder(self, component: str, key: str) -> Path:
        return self.root / component / key

    def _look(self, folder: Path, wanted: Wanted) -> tuple[str, Entry | None]:
        try:
            entry = Entry(folder, _read(folder / RECORD))
        except _Damaged as problem:
            return str(problem), None
        record = entry.record
        if (record.component, record.key) != (wanted.component, wanted.key):
            raise _foreign(str(folder / RECORD), f"{record.component} {record.key[:12]}", wanted)
        for path, file in entry.wheels().items():
            try:
                facts = path.lstat()
            except FileNotFoundError:
                return f"{file.name} is not there", None
            if not stat.S_ISREG(facts.st_mode):
                return f"{file.name} is no plain file", None
            if facts.st_size != file.size:
                return f"{file.name} has {facts.st_size} bytes of {file.size}", None
            if facts.st_mtime_ns != _checked_time(file.sha256):
                if file_sha256(path) != file.sha256:
                    return f"{file.name} has other bytes", None
                mark(path, file.sha256)
            check_key(path, wanted)
        return "", entry


def check_key(wheel: Path, wanted: Wanted, where: str | None = None) -> None:
    """Raises FetchFailed for a wheel with another key inside, or with none. where: it comes from, for the message."""
    found = key_in(wheel)
    if found != wanted.key:
        raise _foreign(where or str(wheel), f"the key {found[:12]}" if found else "no key", wanted)


def mark(path: Path, sha256: str) -> None:
    """The mode, and the time that says "checked".

    It differs with the content below the second: BuildKit takes a file of a context for unchanged when its size and
    time are, and the same component often has the same size again.
    """
    path.chmod(0o644)
    os.utime(path, ns=(_checked_time(sha256), _checked_time(sha256)))


def age_days(entry: Entry, now: float | None = None) -> float:
    """Days since it was last of use."""
    return ((time.time() if now is None else now) - entry.used) / 86400


def parse_record(data: bytes) -> Record | None:
    """A record from its bytes; None when it is none of this format."""
    try:
        found = Record.model_validate_json(data)
    except ValidationError:
        return None
    names = [file.name for file in found.files]
    fits = found.format == FORMAT and NAME.fullmatch(found.component) and len({*names}) == len(names)
    return found if fits and digest_of(found.inputs) == found.key else None


class _Damaged(Exception):
    pass


def _read(file: Path) -> Record:
    try:
        # A file, or a link to nowhere or to itself, in the place of the folder is no entry either.
        facts = file.lstat() if file.parent.is_dir() else None
    except FileNotFoundError:
        facts = None
    if facts is None:
        raise _Damaged(f"there is no {RECORD}")
    # Opening a pipe waits for somebody who writes; a link leads out of the store.
    if not stat.S_ISREG(facts.st_mode) or facts.st_size > MAX_RECORD:
        raise _Damaged(f"{RECORD} is none")
    found = parse_record(file.read_bytes())
    if found is None:
        raise _Damaged(f"{RECORD} is none")
    return found


def _remove(place: Path) -> None:
    """Whatever is there; of a link the link alone."""
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


def _checked_time(sha256: str) -> int:
    return CHECKED_MTIME * 1_000_000_000 + int(sha256[:7], 16)


def _foreign(where: str, has: str, wanted: Wanted) -> FetchFailed:
    return FetchFailed(
        f"it has {has} inside, and was to be {wanted.component} {wanted.key[:12]}",
        where=where,
        cure="somebody put another build in its place: find out who, and remove it; then it is built again",
    )
