"""images/smoke/lib/loader.py: what it says would be loaded is what the loader of this machine loads."""

from __future__ import annotations

import json
import platform
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from lib.dynamic import DynamicError
from lib.loader import CACHE, Library, Loaded, Process, read_cache
from shared_objects import compile_library, rpath, runpath

MACHINE = platform.machine()

# Opens files one after the other, and says which of the folder's files are mapped then.
REAL = """
import ctypes, json, sys
for file in sys.argv[2:]:
    try:
        ctypes.CDLL(file)
    except OSError as error:
        print(json.dumps(str(error)))
        raise SystemExit
with open("/proc/self/maps") as maps:
    print(json.dumps(sorted({line.split()[-1] for line in maps if sys.argv[1] in line})))
"""


def real(folder: Path, *files: Path, path: str = "") -> list[str] | str:
    """What is mapped of a folder's files after opening some, or why that failed."""
    env = {"LD_LIBRARY_PATH": path} if path else {}
    done = subprocess.run([sys.executable, "-c", REAL, str(folder), *map(str, files)], env=env, capture_output=True)
    found: list[str] | str = json.loads(done.stdout)
    return found


def worked_out(folder: Path, *files: Path, path: str = "") -> list[str]:
    library = Library(MACHINE, {"LD_LIBRARY_PATH": path})
    process = Process(library)
    process.open(Path(sys.executable), everywhere=True)
    for file in files:
        process.open(file)
    return sorted(str(file) for file in process.files if file.is_relative_to(folder))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two different libraries of one name, in a and b."""
    for name in ("a", "b"):
        compile_library(tmp_path / name / "libx.so.1", f"int x_{name}(void) {{ return 1; }}")
    return tmp_path


def user(folder: Path, name: str, flags: list[str], needs: str = "a/libx.so.1") -> Path:
    return compile_library(folder / name, flags=flags, needs=[folder / needs])


@pytest.mark.parametrize(
    ("flags", "path"),
    [
        (rpath("$ORIGIN/a:$ORIGIN/b"), ""),
        (runpath("$ORIGIN/b:$ORIGIN/a"), ""),
        (rpath("${ORIGIN}/a"), "b"),
        (runpath("$ORIGIN/a"), "b"),
        (runpath("$ORIGIN/nowhere"), "b"),
        ([], "b"),
    ],
)
def test_the_loader_takes_the_same_file(folder: Path, flags: list[str], path: str) -> None:
    file = user(folder, "user.so", flags)
    where = str(folder / path) if path else ""
    assert real(folder, file, path=where) == worked_out(folder, file, path=where)


def test_the_old_run_path_holds_for_what_is_brought_in_and_the_new_one_does_not(folder: Path) -> None:
    middle = user(folder, "libmiddle.so", [])
    for name, flags, complete in (
        ("old.so", rpath("$ORIGIN:$ORIGIN/a"), True),
        ("new.so", runpath("$ORIGIN:$ORIGIN/a"), False),
    ):
        top = compile_library(folder / name, flags=flags, needs=[middle])
        found = real(folder, top)
        assert ("cannot open" not in found) == complete
        assert (str(folder / "a/libx.so.1") in worked_out(folder, top)) == complete


def test_what_is_loaded_already_answers_to_its_name(folder: Path) -> None:
    first, second = user(folder, "first.so", rpath("$ORIGIN/a")), user(folder, "second.so", rpath("$ORIGIN/b"))
    found = worked_out(folder, first, second)
    assert found == real(folder, first, second)
    assert str(folder / "b/libx.so.1") not in found


def test_a_file_for_another_machine_is_passed_over(folder: Path) -> None:
    wrong = folder / "a/libx.so.1"
    data = bytearray(wrong.read_bytes())
    data[18:20] = struct.pack("<H", 183)
    file = user(folder, "user.so", runpath("$ORIGIN/a:$ORIGIN/b"))
    wrong.write_bytes(data)
    assert worked_out(folder, file) == real(folder, file)
    assert str(folder / "b/libx.so.1") in worked_out(folder, file)


def test_every_file_that_a_name_can_lead_to(folder: Path) -> None:
    file = user(folder, "user.so", runpath("$ORIGIN/a"))
    library = Library(MACHINE, {"LD_LIBRARY_PATH": f"{folder / 'b'}:{folder / 'b'}"})
    found = list(library.all("libx.so.1", Loaded(library.elf(file), None)))
    assert set(found) == {folder / "a/libx.so.1", folder / "b/libx.so.1"}
    assert found[0] == folder / "b/libx.so.1"


def test_symbols_are_found_everywhere_and_in_what_was_brought_in_alone(folder: Path) -> None:
    code = "extern int x_a(void); int f(void) { return x_a(); }"
    linked = compile_library(folder / "linked.so", code, needs=[folder / "a/libx.so.1"], flags=rpath("$ORIGIN/a"))
    unlinked = compile_library(folder / "unlinked.so", code)
    library = Library(MACHINE, {})
    for opened_everywhere, missing in ((False, ["x_a"]), (True, [])):
        process = Process(library)
        process.open(linked, everywhere=opened_everywhere)
        other = process.open(unlinked)
        assert [need.name for need in process.missing(other, other.elf.needs)] == missing
        assert not process.missing(process.file(linked), library.elf(linked).needs)


def test_a_process_made_from_another_leaves_it_alone(folder: Path) -> None:
    library = Library(MACHINE, {})
    base = Process(library)
    Process(library, base).open(folder / "a/libx.so.1", everywhere=True)
    assert (base.files, base.everywhere) == ((), [])


def test_the_cache_is_read_as_ldconfig_prints_it() -> None:
    ldconfig = shutil.which("ldconfig", path="/sbin:/usr/sbin") or "ldconfig"
    printed = subprocess.run([ldconfig, "-p"], check=True, capture_output=True, text=True).stdout.splitlines()
    wanted: dict[str, str] = {}
    for line in printed[1:]:
        name, _, rest = line.strip().partition(" (")
        kind, _, path = rest.partition(") => ")
        if kind == "libc6,x86-64":
            wanted.setdefault(name, path)
    assert wanted
    assert read_cache(CACHE.read_bytes(), 0x0303) == wanted


def test_another_format_of_the_cache_is_refused() -> None:
    with pytest.raises(DynamicError, match="unknown format"):
        read_cache(b"ld.so-1.7.0" + bytes(100), 0x0303)


def test_no_cache_is_an_empty_one(folder: Path) -> None:
    assert Library(MACHINE, {}, folder / "nothing").cached == {}
