"""Puts patched files over installed ones, in one layer: `python apply-onto.py JOB.json`, with the files beside it.

JOB: {"root": FOLDER, "record": RECORD below it, "time": seconds since 1970,
      "files": {path below root: {"before": sha256 or null, "after": sha256, "executable": bool}}}; the new bytes lie at
`files/<path>` beside JOB. All files are checked before one is touched. Owner and mode stay as they were (but for
execution), a new file gets the owner of its folder; cached bytecode of what changed goes, also out of RECORD; RECORD
gets the new hashes and sizes, by `overlay-wheel.py`, which lies beside this file. Exit 5 when a file is
not what JOB says.
"""

from __future__ import annotations

import csv
import hashlib
import importlib.util
import json
import os
import stat
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

MISMATCH = 5


class Mismatch(Exception):
    """A file is not what the job says."""


def main(job_file: str) -> int:
    job = json.loads(Path(job_file).read_text(encoding="utf-8"))
    root, beside = Path(job["root"]), Path(job_file).parent
    try:
        made = {path: (beside / "files" / path).read_bytes() for path in job["files"]}
        for path, facts in job["files"].items():
            expect(root / path, facts["before"])
            if sha256(made[path]) != facts["after"]:
                raise Mismatch(f"{path} of the context is not the patched file")
        gone: set[str] = set()
        for path, facts in job["files"].items():
            write(root / path, made[path], job["time"], facts["executable"])
            gone |= {cached.relative_to(root).as_posix() for cached in remove_bytecode(root / path)}
        rewrite_record(root / job["record"], made, gone, job["time"])
        for path, facts in job["files"].items():
            expect(root / path, facts["after"])
    except Mismatch as problem:
        print(f"apply-onto.py: {problem}", file=sys.stderr)
        return MISMATCH
    print(f"apply-onto.py: {len(made)} files, {len(gone)} of cached bytecode gone, RECORD rewritten")
    return 0


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def expect(file: Path, digest: str | None) -> None:
    found = sha256(file.read_bytes()) if file.is_file() else None
    if found != digest or file.is_symlink():
        raise Mismatch(f"{file} has sha256 {found}, expected {digest}")


def write(file: Path, data: bytes, time: int, executable: bool) -> None:
    """Exchange a file for another one; a hard link to it, as in a package cache, keeps its bytes."""
    new_folders = [folder for folder in file.parents if not folder.exists()]
    home = next(folder for folder in file.parents if folder.exists())
    kept = home.stat()
    for folder in reversed(new_folders):
        folder.mkdir(mode=0o755)
        os.chown(folder, kept.st_uid, kept.st_gid)
    old = file.stat() if file.exists() else None
    fresh = file.with_name(f".graft-{file.name}")
    fresh.write_bytes(data)
    os.chown(fresh, (old or kept).st_uid, (old or kept).st_gid)
    # chown takes special bits away, so the mode comes after it.
    fresh.chmod(with_execution(stat.S_IMODE(old.st_mode) if old else 0o644, executable))
    # Newer than what was made from the old one, and the same in every build of the same layer.
    stamp = max(time, int(old.st_mtime) + 1) if old else time
    os.utime(fresh, (stamp, stamp))
    fresh.replace(file)
    for folder in new_folders:
        os.utime(folder, (time, time))
    os.utime(home, ns=(kept.st_atime_ns, kept.st_mtime_ns))


def with_execution(mode: int, executable: bool) -> int:
    """The mode, to be executed by all who may read, or by nobody."""
    return mode | (mode & 0o444) >> 2 if executable else mode & ~0o111


def remove_bytecode(file: Path) -> list[Path]:
    """Every cached bytecode of a module: a cache whose recorded time and size still fit would win over the source."""
    if file.suffix != ".py":
        return []
    folder = file.parent / "__pycache__"
    cached = sorted(folder.glob(f"{file.stem}.*.pyc"))
    if cached:
        kept = folder.stat()
        for one in cached:
            one.unlink()
        os.utime(folder, ns=(kept.st_atime_ns, kept.st_mtime_ns))
    return cached


def rewrite_record(record: Path, made: dict[str, bytes], gone: set[str], time: int) -> None:
    if not record.is_file():
        raise Mismatch(f"{record} does not exist")
    old = record.read_bytes()
    fresh: bytes = overlay().new_record([], made, old if old.endswith(b"\n") else old + b"\n")
    lines = fresh.decode("utf-8").splitlines(keepends=True)
    left = [line for line in lines if next(csv.reader([line]), [""])[0] not in gone]
    write(record, "".join(left).encode("utf-8"), time, False)


def overlay() -> ModuleType:
    """overlay-wheel.py, whose name is no module's."""
    spec: Any = importlib.util.spec_from_file_location("overlay_wheel", Path(__file__).with_name("overlay-wheel.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
