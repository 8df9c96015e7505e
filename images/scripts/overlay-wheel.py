"""Makes the overlay of a prebuilt wheel: its patched files, and the RECORD of the installed wheel with their hashes.

    python3 overlay-wheel.py --wheel FILE --site FOLDER --patches FOLDER --pristine TREE --result TREE --out FOLDER

--wheel:   the locked wheel; the touched files are taken from it, never from a tree that may be patched already.
--site:    site-packages in which that wheel is installed, or the touched files and RECORD out of it. Installers rewrite
           RECORD (INSTALLER, REQUESTED, scripts in bin), so the overlay continues the installed one.
--patches: as for apply-patches.sh, which lies beside this file and applies them; `touched` names the files.
--out:     becomes a layer on top of site-packages.

Exit 5 when the installed files are not the wheel's, or a tree is not the locked one. Refused: what an overlay cannot
take out (deleted files, cached bytecode of a touched module), compiled twins, metadata, .pth, sources of compiled code.
"""

from __future__ import annotations

import argparse
import base64
import csv
import hashlib
import io
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

MISMATCH = 5
COMPILED_SOURCES = (".cu", ".cuh", ".cpp", ".cc", ".cxx", ".c", ".h", ".hpp", ".hxx", ".pyx", ".rs")
COMPILED = (".so", ".pyd", ".dylib", ".dll", ".a", ".o", ".pyc")


class Mismatch(Exception):
    """The installed files or a patch are not what the lock says."""


def main(argv: Sequence[str] | None = None) -> int:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name in ("--wheel", "--site", "--patches", "--out"):
        arguments.add_argument(name, type=Path, required=True)
    for name in ("--pristine", "--result"):
        arguments.add_argument(name, required=True)
    given = arguments.parse_args(argv)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            make_overlay(given, Path(scratch))
    except Mismatch as problem:
        print(f"overlay-wheel.py: {problem}", file=sys.stderr)
        return MISMATCH
    return 0


def make_overlay(given: argparse.Namespace, work: Path) -> None:
    touched = read_touched(given.patches / "touched")
    with zipfile.ZipFile(given.wheel) as wheel:
        names = set(wheel.namelist())
        info = dist_info(names, given.wheel.name)
        for path, is_deleted in touched.items():
            refuse(path, is_deleted, names)
        pristine = {path: wheel.read(path) for path in touched if path in names}
    record = given.site / info / "RECORD"
    rows = read_record(record)
    check_installed(given.site, rows, pristine, touched)
    for path, data in pristine.items():
        write(work / path, data)
    apply_patches(given, work)
    made = sorted(p for p in work.rglob("*") if p.is_file())
    patched = {p.relative_to(work).as_posix(): p.read_bytes() for p in made}
    if patched.keys() != touched.keys():
        odd = ", ".join(sorted(patched.keys() ^ touched.keys()))
        raise Mismatch(f"the patches made other files than the lock names: {odd}")
    for path, data in patched.items():
        write(given.out / path, data)
    write(given.out / info / "RECORD", new_record(rows, patched, record.read_bytes()))
    print(f"overlay-wheel.py: {len(patched)} files of {info.removesuffix('.dist-info')}, and its RECORD")


def read_touched(file: Path) -> dict[str, bool]:
    """Path -> whether the patches delete it."""
    touched: dict[str, bool] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        _before, after, path = line.split(" ", 2)
        touched[path] = after == "-"
    if not touched:
        raise Mismatch(f"{file} names no file")
    return touched


def dist_info(names: Iterable[str], wheel: str) -> str:
    """The wheel's own .dist-info folder."""
    found = {name.partition("/")[0] for name in names if name.endswith(".dist-info/RECORD") and name.count("/") == 1}
    if len(found) != 1:
        raise Mismatch(f"{wheel} has {len(found)} .dist-info folders")
    return found.pop()


def refuse(path: str, is_deleted: bool, names: Iterable[str]) -> None:
    parts = PurePosixPath(path).parts
    if path.startswith("/") or "\\" in path or not parts or any(part in ("..", ".", "") for part in path.split("/")):
        raise Mismatch(f"{path!r} lies outside the wheel")
    if is_deleted:
        raise Mismatch(f"{path}: an overlay cannot delete a file")
    if parts[0].endswith((".dist-info", ".data", ".egg-info")) or path.endswith(".pth"):
        raise Mismatch(f"{path}: metadata, entry points and .pth files cannot be patched")
    if path.endswith((*COMPILED_SOURCES, *COMPILED)):
        raise Mismatch(f"{path} is compiled; the component must be built from source")
    refuse_twin(path, names)


def refuse_twin(path: str, names: Iterable[str]) -> None:
    """Python imports x.cpython-311-*.so instead of x.py."""
    stem = path.removesuffix(".py")
    for name in names:
        if path.endswith(".py") and name.startswith(f"{stem}.") and name.endswith((".so", ".pyd")):
            raise Mismatch(f"{path} has a compiled twin, {name}")


def read_record(record: Path) -> list[list[str]]:
    if not record.is_file():
        raise Mismatch(f"{record} does not exist: the wheel is not installed there")
    return [row for row in csv.reader(io.StringIO(record.read_text(encoding="utf-8"), newline="")) if row]


def check_installed(
    site: Path, rows: Sequence[Sequence[str]], pristine: dict[str, bytes], touched: Iterable[str]
) -> None:
    """What is installed must be the wheel's files, recorded once; no twin or bytecode may win over them."""
    recorded: dict[str, list[str]] = {}
    for row in rows:
        recorded.setdefault(row[0], []).append(row[1])
    for path in touched:
        if path not in pristine:
            if (site / path).exists():
                raise Mismatch(f"{path} is new in the patch, but exists in {site}")
        elif not (site / path).is_file() or (site / path).read_bytes() != pristine[path]:
            raise Mismatch(f"{site / path} is not the wheel's file")
        elif recorded.get(path) != [digest(pristine[path])]:
            raise Mismatch(f"RECORD does not list {path} once with the hash of the wheel's file")
        refuse_twin(path, (f"{path.rpartition('/')[0]}/{p.name}" for p in (site / path).parent.glob("*")))
        place = PurePosixPath(path)
        cached = f"{place.parent}/__pycache__/{place.stem}."
        on_disk = [p.relative_to(site).as_posix() for p in (site / path).parent.glob("__pycache__/*.pyc")]
        for found in (*recorded, *on_disk):
            if found.startswith(cached) and found.endswith(".pyc"):
                raise Mismatch(f"{found} would be used although the source changes; install without bytecode")


def apply_patches(given: argparse.Namespace, work: Path) -> None:
    environment = {
        **os.environ,
        "WORKTREE": str(work),
        "PATCHES": str(given.patches),
        "PRISTINE_TREE": given.pristine,
        "RESULT_TREE": given.result,
    }
    script = Path(__file__).resolve().parent / "apply-patches.sh"
    done = subprocess.run(["sh", script], env=environment, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise Mismatch(f"apply-patches.sh ended with status {done.returncode}")


def digest(data: bytes) -> str:
    """A file's hash as RECORD writes it."""
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def new_record(rows: Sequence[Sequence[str]], patched: dict[str, bytes], old: bytes) -> bytes:
    """The installed RECORD with the patched files' hashes and sizes; all other lines keep every byte."""
    fresh = {path: [path, digest(data), str(len(data))] for path, data in patched.items()}
    lines = old.decode("utf-8").splitlines(keepends=True)
    end = "\r\n" if lines and lines[0].endswith("\r\n") else "\n"
    made: list[str] = []
    for line in lines:
        row = next(csv.reader([line]), [])
        known = fresh.pop(row[0], None) if row else None
        made.append(line if known is None else written(known) + end)
    made += [written(fresh[path]) + end for path in sorted(fresh)]
    return "".join(made).encode("utf-8")


def written(row: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(row)
    return text.getvalue()


def write(target: Path, data: bytes) -> None:
    """A file with the mode and, under SOURCE_DATE_EPOCH, the times that make equal layers."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    target.chmod(0o644)
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    if epoch:
        os.utime(target, (int(epoch), int(epoch)))


if __name__ == "__main__":
    sys.exit(main())
