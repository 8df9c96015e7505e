"""What dpkg knows of an image: its packages, which of them owns a file, and the file's hash.

Read from /var/lib/dpkg; no program is run. Paths are relative to the root and as the file system has them: where
/bin is a link to /usr/bin (merged /usr), dpkg's /bin/su is usr/bin/su.
"""

from __future__ import annotations

import fnmatch
import functools
import hashlib
import itertools
import os
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from lib.findings import Finding

DATABASE = "var/lib/dpkg"
#: Taken out of the base by images/scripts/rootfs-finish.sh: the image has no use for apt.
REMOVED = ("etc/apt", "etc/apt/*", "var/lib/apt", "var/lib/apt/*", "var/cache/apt", "var/cache/apt/*")
#: What Linux follows at most (path_resolution(7)).
LINKS = 40
BATCH = 200
KINDS: Mapping[str, str] = {
    "debian": "the Debian packages are the locked ones, each in its version",
    "debian-missing": "every file of a Debian package is there",
    "debian-changed": "every file of a Debian package is as the package brought it",
}


@dataclass(frozen=True)
class Debian:
    """packages: name -> version; owners: path -> package; sums: path -> md5; excluded: rules for leaving files out."""

    packages: Mapping[str, str]
    owners: Mapping[str, str]
    sums: Mapping[str, str]
    excluded: tuple[tuple[bool, str], ...]

    def is_excluded(self, path: str) -> bool:
        """Whether the base leaves a file of a package out (dpkg(1): the last rule that fits decides)."""
        if any(fnmatch.fnmatchcase(path, pattern) for pattern in REMOVED):
            return True
        fitting = [leave_out for leave_out, pattern in self.excluded if fnmatch.fnmatchcase(f"/{path}", pattern)]
        return bool(fitting) and fitting[-1]


def read(root: Path) -> Debian:
    """The database below `root`; empty where there is none."""
    database = root / DATABASE
    packages, sums = {}, {}
    status = database / "status"
    for stanza in status.read_text("utf-8").split("\n\n") if status.is_file() else ():
        fields = dict(re.findall(r"^([A-Za-z-]+):[ \t]*((?:.*)(?:\n[ \t].*)*)", stanza, re.MULTILINE))
        if fields.get("Status") == "install ok installed":
            packages[fields["Package"]] = fields["Version"]
            for line in fields.get("Conffiles", "").split("\n"):
                if len(words := line.split()) == 2:
                    sums[words[0]] = words[1]
    moved = diversions(database)
    place = functools.partial(real_place, root, functools.cache(os.path.realpath))
    owners: dict[str, str] = {}
    for file in sorted((database / "info").glob("*.list")):
        package = file.stem.partition(":")[0]
        for line in file.read_text("utf-8").splitlines():
            owners[place(moved_by(moved, package, line))] = package
    for file in sorted((database / "info").glob("*.md5sums")):
        package = file.stem.partition(":")[0]
        for line in file.read_text("utf-8").splitlines():
            digest, _, path = line.partition("  ")
            sums[moved_by(moved, package, f"/{path}")] = digest
    return Debian(packages, owners, {place(path): digest for path, digest in sums.items()}, tuple(exclusions(root)))


def diversions(database: Path) -> dict[str, tuple[str, str]]:
    """path -> (where dpkg puts it instead, the package that is not asked to move)."""
    file = database / "diversions"
    lines = file.read_text("utf-8").splitlines() if file.is_file() else []
    return {lines[at]: (lines[at + 1], lines[at + 2]) for at in range(0, len(lines) - 2, 3)}


def moved_by(moved: Mapping[str, tuple[str, str]], package: str, path: str) -> str:
    target, but = moved.get(path, (path, package))
    return path if but == package else target


def real_place(root: Path, realpath: Callable[[str], str], path: str) -> str:
    """A path as the file system has it, its last part as it stands (a link is its own file)."""
    folder, _, name = path.rstrip("/").rpartition("/")
    where = os.path.relpath(realpath(f"{root}{folder}"), root)
    return os.path.normpath(f"{where}/{name}")


def end_of(root: Path, path: str) -> str:
    """Where a link ends, as a path relative to the root, which an absolute link starts from."""
    for _ in range(LINKS):
        if not (root / path).is_symlink():
            break
        target = str((root / path).readlink())
        full = target if target.startswith("/") else f"/{Path(path).parent}/{target}"
        path = real_place(root, os.path.realpath, os.path.normpath(full))
    return path


def exclusions(root: Path) -> Iterator[tuple[bool, str]]:
    for file in sorted((root / "etc/dpkg/dpkg.cfg.d").glob("*")):
        for line in file.read_text("utf-8").splitlines():
            if match := re.fullmatch(r"path-(exclude|include)=(\S+)", line.strip()):
                yield match[1] == "exclude", match[2]


def check_packages(debian: Debian, wanted: Mapping[str, str]) -> Iterator[Finding]:
    """The installed packages against name -> version of the lock."""
    for name in sorted(debian.packages.keys() | wanted.keys()):
        found, locked = debian.packages.get(name), wanted.get(name)
        if found != locked:
            detail = f"{found} is installed, " if found else "it is not installed, "
            yield Finding("debian", name, (), detail + (f"the lock says {locked}" if locked else "not in the lock"))


def check_files(root: Path, debian: Debian) -> Iterator[Finding]:
    """Every file that a package brought, with the hash that the package says; each is read once."""
    missing = [p for p in debian.owners if not os.path.lexists(root / p) and not debian.is_excluded(p)]
    for path in sorted(missing):
        yield Finding("debian-missing", f"/{path}", (), f"{debian.owners[path]} brought it, and it is gone")
    there = sorted(path for path in debian.sums if os.path.lexists(root / path))
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        # To hand each of thousands of small files to a thread would cost more than reading it.
        batches = [there[at : at + BATCH] for at in range(0, len(there), BATCH)]
        found = pool.map(lambda batch: [md5(root / path) for path in batch], batches)
        for path, digest in zip(there, itertools.chain.from_iterable(found), strict=True):
            if digest != debian.sums[path]:
                owner = debian.owners.get(path, "a package")
                yield Finding("debian-changed", f"/{path}", (), f"its md5 is {digest}, {owner} has {debian.sums[path]}")


def md5(path: Path) -> str:
    # What dpkg records; it is no proof against somebody who means it, and finds what a build step did.
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    except OSError as problem:
        return f"unknown ({problem.strerror})"
