"""images/smoke/lib/dynamic.py reads what pyelftools reads, and takes no damaged file for a sound one."""

from __future__ import annotations

import contextlib
import random
import sys
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection, GNUVerSymSection
from lib import dynamic
from lib.dynamic import DynamicError, Elf, Exports, Need
from shared_objects import compile_library, rpath, runpath


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with a versioned neighbour, run path, weak and strong needs."""
    folder = tmp_path_factory.mktemp("elf")
    code = "int old(void) { return 1; }\nint fresh(void) { return 2; }\n"
    versioned = compile_library(folder / "libversioned.so.1", code, versions={"V_1": ["old"], "V_2": ["fresh"]})
    return compile_library(
        folder / "libmine.so",
        "extern int old(void); extern int fresh(void); extern int absent(void);\n"
        "extern int perhaps(void) __attribute__((weak));\n"
        "int mine(void) { return old() + fresh() + absent() + (perhaps ? perhaps() : 0); }\n"
        "static int hidden(void) { return 0; }\n",
        needs=[versioned],
        soname="libmine.so.4",
        flags=runpath("$ORIGIN/../other:/opt/lib"),
    )


def test_what_a_file_needs(library: Path) -> None:
    elf = dynamic.read(library)
    assert (elf.machine, elf.soname, elf.needed) == ("x86_64", "libmine.so.4", ("libversioned.so.1",))
    assert (elf.rpath, elf.runpath, elf.interpreter) == ((), ("$ORIGIN/../other", "/opt/lib"), None)
    assert {str(need): (need.file, need.weak) for need in elf.needs} == {
        "old@V_1": ("libversioned.so.1", False),
        "fresh@V_2": ("libversioned.so.1", False),
        "absent": (None, False),
        "perhaps": (None, True),
    }
    assert [(need.file, need.version) for need in elf.version_needs] == [
        ("libversioned.so.1", "V_1"),
        ("libversioned.so.1", "V_2"),
    ]


def test_what_a_file_gives(library: Path) -> None:
    given = dynamic.read_exports(library)
    assert given.symbols["mine"] == {None}
    assert "hidden" not in given.symbols
    assert "old" not in given.symbols
    versioned = dynamic.read_exports(library.with_name("libversioned.so.1"))
    assert versioned.versions == {"V_1", "V_2"}
    assert versioned.symbols["old"] == {"V_1"}


def test_the_old_kind_of_run_path(tmp_path: Path) -> None:
    assert dynamic.read(compile_library(tmp_path / "x.so", flags=rpath("/a:/b"))).rpath == ("/a", "/b")


@pytest.mark.parametrize("style", ["gnu", "sysv", "both"])
@pytest.mark.parametrize("code", ["", "int a, b, c, d, e; int f(void) { return 0; }"])
def test_symbols_are_counted_without_section_headers(tmp_path: Path, style: str, code: str) -> None:
    path = compile_library(tmp_path / "x.so", f"{code}\nextern int needed(void); int g(void) {{ return needed(); }}",
                           flags=[f"-Wl,--hash-style={style}"])  # fmt: skip
    expected = dynamic.read(path).needs, dynamic.read_exports(path).symbols
    data = bytearray(path.read_bytes())
    data[40:48] = bytes(8)
    path.write_bytes(data)
    assert (dynamic.read(path).needs, dynamic.read_exports(path).symbols) == expected


def test_a_program_has_an_interpreter() -> None:
    elf = dynamic.read(Path(sys.executable).resolve())
    assert elf.interpreter is not None
    assert "libc.so.6" in elf.needed


def by_pyelftools(path: Path) -> tuple[Elf, Exports]:
    with path.open("rb") as file:
        elf = ELFFile(file)
        sections = list(elf.iter_sections())
        symbols = next(s for s in sections if s.name == ".dynsym")
        numbers = next((s for s in sections if isinstance(s, GNUVerSymSection)), None)
        named: dict[int, tuple[str, str]] = {}
        for section in (s for s in sections if isinstance(s, GNUVerNeedSection)):
            for entry, parts in section.iter_versions():
                named |= {part["vna_other"]: (part.name, entry.name) for part in parts}
        needs, given = [], {}
        for index, symbol in enumerate(symbols.iter_symbols()):
            if not symbol.name or symbol["st_info"]["bind"] == "STB_LOCAL":
                continue
            number = numbers.get_symbol(index)["ndx"] if numbers is not None else 0
            if symbol["st_shndx"] == "SHN_UNDEF":
                version, of = named.get(number, (None, None))
                needs.append(Need(symbol.name, version, of, symbol["st_info"]["bind"] == "STB_WEAK"))
            else:
                given[symbol.name] = frozenset[str | None]()
        tags = [tag for s in sections if isinstance(s, DynamicSection) for tag in s.iter_tags()]
        needed = tuple(tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED")
    return Elf(path, "x86_64", dynamic=True, needed=needed, needs=tuple(needs)), Exports(given)


@pytest.mark.parametrize("name", ["mine", "versioned", "python", "zlib"])
def test_pyelftools_reads_the_same(library: Path, name: str) -> None:
    files = {
        "mine": library,
        "versioned": library.with_name("libversioned.so.1"),
        "python": Path(sys.executable).resolve(),
        "zlib": Path(sys.modules["math"].__file__ or sys.executable).resolve(),
    }
    elf, given = by_pyelftools(files[name])
    own = dynamic.read(files[name])
    assert (own.needed, own.needs) == (elf.needed, elf.needs)
    assert dynamic.read_exports(files[name]).symbols.keys() == given.symbols.keys()


def test_a_file_that_is_cut_off_is_refused_or_reads_the_same(library: Path, tmp_path: Path) -> None:
    data = library.read_bytes()
    whole = dynamic.read(library)
    refused = 0
    for length in [*range(0, 1200, 13), *range(1200, len(data), 211)]:
        cut = tmp_path / "cut.so"
        cut.write_bytes(data[:length])
        try:
            assert dynamic.read(cut).needs == whole.needs
        except DynamicError:
            refused += 1
    assert refused > 60


def test_damage_never_ends_in_another_error(library: Path, tmp_path: Path) -> None:
    data = library.read_bytes()
    chance = random.Random(7)
    damaged = tmp_path / "damaged.so"
    for _ in range(250):
        changed = bytearray(data)
        for _ in range(chance.randint(1, 4)):
            # Most of what matters stands at the start and in the tables.
            changed[chance.randrange(len(data) if chance.random() < 0.5 else 1024)] = chance.randrange(256)
        damaged.write_bytes(changed)
        for read in (dynamic.read, dynamic.read_exports):
            with contextlib.suppress(DynamicError):
                read(damaged)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "empty file"),
        (b"#!/bin/sh\n" * 20, "not an ELF file"),
        (b"\x7fELF\x01\x01" + bytes(60), "not a 64-bit"),
        (b"\x7fELF\x02\x01" + bytes(4), "the ELF header is cut off"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, data: bytes, says: str) -> None:
    path = tmp_path / "x.so"
    path.write_bytes(data)
    with pytest.raises(DynamicError, match=says):
        dynamic.read(path)


def test_versions_are_matched_as_the_loader_does() -> None:
    given = Exports({"f": frozenset({"V_1"}), "g": frozenset({None})}, frozenset({"V_1", "V_2"}))
    assert given.answer(Need("f", "V_1"))
    assert not given.answer(Need("f", "V_2"))
    assert given.answer(Need("f"))
    assert not given.answer(Need("h"))
    assert Exports({"f": frozenset({None})}).answer(Need("f", "V_2"))
