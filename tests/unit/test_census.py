"""images/smoke/lib/census.py, hidden.py, cubin.py and runtime_code.py: all GPU code of a file and of a folder."""

from __future__ import annotations

import ast
import struct
import tracemalloc
from collections import Counter
from pathlib import Path

import gpu_elf
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lib import census, cubin, hidden, runtime_code
from lib.fatbin import Entry, FatbinError

SMOKE = Path(__file__).parents[2] / "images" / "smoke"


def entry(arch: str, *, relocatable: bool = False) -> Entry:
    return Entry({"s": "cubin", "c": "ptx", "l": "lto"}[arch[0]], arch, relocatable)  # type: ignore[arg-type]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "file"


def code_of(file: Path, data: bytes) -> dict[tuple[str, str], int]:
    """(section, architecture) -> how many; relocatable code is marked with an r."""
    file.write_bytes(data)
    found = census.read(file).code
    return {(where, item.arch + "r" * item.relocatable): number for (where, item), number in found.items()}


def test_sections_are_counted_as_cuobjdump_does(file: Path) -> None:
    code = gpu_elf.container("sm_80", "sm_90a", "compute_90") + bytes(8) + gpu_elf.container("sm_90a")
    data = gpu_elf.elf({".nv_fatbin": code, "__nv_relfatbin": gpu_elf.container("sm_90")})
    assert code_of(file, data) == {
        (".nv_fatbin", "sm_80"): 1,
        (".nv_fatbin", "sm_90a"): 2,
        (".nv_fatbin", "compute_90"): 1,
        ("__nv_relfatbin", "sm_90r"): 1,
    }


def test_a_payload_is_not_looked_into(file: Path) -> None:
    inner = gpu_elf.container("sm_100")
    body = gpu_elf.entry("sm_90", inner) + gpu_elf.entry("compute_90", gpu_elf.cubin("sm_80"))
    outer = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body
    for section in (".nv_fatbin", ".rodata"):
        assert code_of(file, gpu_elf.elf({section: outer})) == {(section, "sm_90"): 1, (section, "compute_90"): 1}


def test_fatbins_are_counted_by_what_they_hold(file: Path) -> None:
    code = gpu_elf.container("sm_80", "sm_80") + gpu_elf.container("sm_90") + gpu_elf.container("sm_80")
    file.write_bytes(gpu_elf.elf({".nv_fatbin": code}))
    assert census.read(file).fatbins == {frozenset([entry("sm_80")]): 2, frozenset([entry("sm_90")]): 1}


def test_a_cubin_without_kernels_is_listed_and_makes_no_fatbin(file: Path) -> None:
    body = gpu_elf.entry("sm_75", gpu_elf.cubin("sm_75", kernel=False))
    code = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body
    file.write_bytes(gpu_elf.elf({".nv_fatbin": code}))
    found = census.read(file)
    assert (found.code, found.fatbins) == ({(".nv_fatbin", entry("sm_75")): 1}, {})


@pytest.mark.parametrize("section", [".rodata", ".ldata", ".cask_resource", ".data"])
def test_code_hidden_in_data(file: Path, section: str) -> None:
    data = b"x" * 5 + gpu_elf.container("sm_90", "lto_75") + b"text" + gpu_elf.cubin("sm_100a") + b"more"
    data += gpu_elf.cubin("sm_120", relocatable=True) + gpu_elf.container("sm_80")
    assert code_of(file, gpu_elf.elf({section: data})) == {
        (section, "sm_90"): 1,
        (section, "lto_75"): 1,
        (section, "sm_100a"): 1,
        (section, "sm_120r"): 1,
        (section, "sm_80"): 1,
    }


def test_hidden_code_at_every_place_around_the_end_of_a_piece(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hidden, "CHUNK", 4096)
    piece = gpu_elf.container("sm_90")
    for back in range(len(piece) + 2):
        assert code_of(file, gpu_elf.elf({".rodata": bytes(hidden.CHUNK - back) + piece})) == {(".rodata", "sm_90"): 1}


@pytest.mark.parametrize(
    "data",
    [
        gpu_elf.container("sm_90")[:-1],
        gpu_elf.container(),
        gpu_elf.container("sm_1000"),
        hidden.FATBIN_MARK,
        hidden.FATBIN_MARK + b"\xff" * 8,
        struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 64) + b"\xff" * 64,
        gpu_elf.cubin()[:-1],
        gpu_elf.cubin()[:40],
        gpu_elf.elf({".text": b"a program"}),
        cubin.MARK,
    ],
)
def test_what_only_looks_like_hidden_code(file: Path, data: bytes) -> None:
    assert code_of(file, gpu_elf.elf({".rodata": data})) == {}
    # ... and does not keep what follows from being seen.
    assert code_of(file, gpu_elf.elf({".rodata": data + gpu_elf.container("sm_90")})) == {(".rodata", "sm_90"): 1}


def test_machine_code_debug_data_and_tables_are_not_searched(file: Path) -> None:
    code = gpu_elf.container("sm_90")
    data = {".text": code, ".eh_frame": code, ".gcc_except_table": code, ".bss": code}
    assert code_of(file, gpu_elf.elf(data, nobits=(".bss",))) == {}


def test_a_file_without_a_section_table_is_searched_whole(file: Path) -> None:
    data = bytearray(gpu_elf.elf({".rodata": gpu_elf.container("sm_90")}))
    data[40:48], data[60:62] = bytes(8), bytes(2)
    assert code_of(file, bytes(data)) == {("no section", "sm_90"): 1}


def test_data_full_of_false_beginnings_is_given_up(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hidden, "MAX_FALSE", 50)
    file.write_bytes(gpu_elf.elf({".rodata": hidden.FATBIN_MARK * 100}))
    with pytest.raises(FatbinError, match="looks like GPU code"):
        census.read(file)


def test_archives_cubins_fatbins_and_objects(file: Path) -> None:
    kernel = gpu_elf.elf({"__nv_relfatbin": gpu_elf.container("sm_90")}, kind=1)
    data = gpu_elf.archive(index=b"odd", a=kernel, b=gpu_elf.elf({".rodata": gpu_elf.container("sm_80")}), c=kernel)
    assert code_of(file, data) == {("__nv_relfatbin", "sm_90r"): 2, (".rodata", "sm_80"): 1}
    assert census.read(file).form == "archive"
    assert code_of(file, kernel) == {("__nv_relfatbin", "sm_90r"): 1}
    assert census.read(file).form == "object"
    assert code_of(file, gpu_elf.container("sm_90a", "compute_90")) == {
        ("file", "sm_90a"): 1,
        ("file", "compute_90"): 1,
    }
    assert census.read(file).form == "fatbin"
    assert code_of(file, gpu_elf.cubin("sm_90a")) == {("file", "sm_90a"): 1}
    assert census.read(file).form == "cubin"


def test_elf_files_that_cannot_hold_gpu_code(file: Path) -> None:
    for ident in (b"\x7fELF\x01\x01", b"\x7fELF\x02\x02"):
        assert code_of(file, ident + gpu_elf.gpu_library("sm_90")[6:]) == {}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty"),
        (b"\x7fELF", "too short"),
        (b"#!/bin/sh\n", "neither"),
        (gpu_elf.gpu_library("sm_90")[:-70], "cut off"),
        (gpu_elf.container("sm_90")[:-1], "cut off"),
        (gpu_elf.archive(a=gpu_elf.gpu_library("sm_90"))[:-9], "damaged"),
        (gpu_elf.archive(a=gpu_elf.gpu_library("sm_90")[:-70]), "cut off"),
        (gpu_elf.archive(a=b"x").replace(b"1 ", b"-1"), "damaged"),
        (gpu_elf.cubin()[:-1], "cut off"),
    ],
)
def test_refuses(file: Path, data: bytes, message: str) -> None:
    file.write_bytes(data)
    with pytest.raises(FatbinError, match=message):
        census.read(file)


def test_more_kinds_of_code_than_there_can_be(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(census, "MAX_KINDS", 20)
    code = b"".join(gpu_elf.container(f"sm_{number}") for number in range(50, 75))
    file.write_bytes(gpu_elf.elf({".nv_fatbin": code}))
    with pytest.raises(FatbinError, match="more kinds"):
        census.read(file)


@pytest.mark.parametrize(
    ("abi", "flags", "arch"),
    [
        # As ptxas of CUDA 12.8 wrote them; the bits are in use for something else before 9.0.
        (7, 0x5A055A, "sm_90"),
        (7, 0x5A0D5A, "sm_90a"),
        (7, 0x3C0D3C, "sm_60"),
        (8, 0x600640A, "sm_100a"),
        (8, 0x6006402, "sm_100"),
        (8, 0x6004B04, "sm_75"),
    ],
)
def test_what_a_cubins_flags_say(abi: int, flags: int, arch: str) -> None:
    ident = bytes([0x33, abi]) + bytes(7)
    data = gpu_elf.elf({".text.k": b"code"}, kind=2, machine=190, ident=ident, flags=flags)
    assert cubin.read(data + b"more") == cubin.Cubin(entry(arch), len(data))


REAL = [
    gpu_elf.gpu_library("sm_90a", "compute_120", "sm_100f", "lto_90"),
    gpu_elf.elf({".rodata": b"text" + gpu_elf.container("sm_90") + gpu_elf.cubin("sm_90a"), "__nv_relfatbin": b""}),
    gpu_elf.archive(a=gpu_elf.gpu_library("sm_90"), b=gpu_elf.elf({".ldata": gpu_elf.container("sm_80")})),
    gpu_elf.container("sm_90", "compute_90") + bytes(16) + gpu_elf.container("sm_80"),
    gpu_elf.cubin("sm_120a"),
]


@given(
    data=st.sampled_from(REAL),
    edits=st.lists(st.tuples(st.integers(0, 4000), st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))),
    keep=st.integers(0, 5000),
    move=st.tuples(st.integers(0, 4000), st.integers(0, 4000), st.integers(0, 200)),
)
def test_any_damage_is_a_result_or_an_error_of_its_own(
    tmp_path_factory: pytest.TempPathFactory,
    data: bytes,
    edits: list[tuple[int, int]],
    keep: int,
    move: tuple[int, int, int],
) -> None:
    damaged = bytearray(data)
    for at, value in edits:
        damaged[at % len(damaged)] = value
    source, target, length = move
    damaged[target % len(data) : target % len(data) + length] = damaged[source % len(data) :][:length]
    place = tmp_path_factory.getbasetemp() / "damaged"
    place.write_bytes(damaged[: max(keep, 8)])
    found = census.Census()
    census.count(found, "/damaged", str(place))
    assert len(found.holdings) + len(found.unreadable) <= 1
    assert all(holding.code for holding in found.holdings)


@given(numbers=st.lists(st.integers(0, 2**64 - 1), min_size=8, max_size=8), at=st.sampled_from([32, 40, 48, 56, 60]))
def test_any_numbers_in_the_headers(tmp_path_factory: pytest.TempPathFactory, numbers: list[int], at: int) -> None:
    data = bytearray(gpu_elf.gpu_library("sm_90"))
    (table,) = struct.unpack_from("<Q", data, 40)
    struct.pack_into("<8Q", data, table + 64, *numbers)
    struct.pack_into("<Q", data, at, numbers[0])
    place = tmp_path_factory.getbasetemp() / "numbers"
    place.write_bytes(data)
    census.count(census.Census(), "/numbers", str(place))


def test_half_a_gigabyte_takes_a_few_megabytes(file: Path) -> None:
    head = bytearray(gpu_elf.elf({".nv_fatbin": b"", ".rodata": gpu_elf.container("sm_90"), ".more": b""}))
    (table,) = struct.unpack_from("<Q", head, 40)
    size = 500 << 20
    # A hole of zeros each, as padding and as data; only their headers are in the table.
    struct.pack_into("<QQ", head, table + 64 + 24, len(head), size)
    struct.pack_into("<QQ", head, table + 3 * 64 + 24, len(head) + size, size // 16)
    with file.open("wb") as out:
        out.write(head)
        out.truncate(len(head) + size + size // 16)
    tracemalloc.start()
    try:
        found = census.read(file)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.code == {(".rodata", entry("sm_90")): 1}
    assert peak < 8 << 20


def test_a_folder_tree(tmp_path: Path) -> None:
    """One small image from end to end: what is found is known by its bytes, each file once, nothing outside."""
    files = {
        "usr/lib/libplain.so": gpu_elf.elf({".text": b"x"}),
        "usr/lib/libgpu.so.1": gpu_elf.gpu_library("sm_90"),
        "opt/data/no-suffix": gpu_elf.container("sm_80"),
        "opt/data/k.cubin": gpu_elf.cubin("sm_90a"),
        "opt/data/broken.so": gpu_elf.gpu_library("sm_90")[:-70],
        "opt/data/a.txt": b"text",
        "opt/empty.so": b"",
        "proc/1/libproc.so": gpu_elf.gpu_library("sm_90"),
        "opt/proc/libnot.so": gpu_elf.gpu_library("sm_75"),
        "v/site-packages/pkg/k.py": b"import triton\n@triton.jit\ndef k(): pass\n  @triton.jit\n# @triton.jit\n",
        "v/site-packages/pkg/k.cu": b"__global__ void k() {}",
        "v/site-packages/one.py": b"@cute.kernel\ndef k(): pass\n",
    }
    for name, data in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    (tmp_path / "usr/lib/libgpu.so").symlink_to("libgpu.so.1")
    (tmp_path / "loop").symlink_to(tmp_path)
    found = census.take(tmp_path)
    assert {holding.path: dict(holding.code) for holding in found.holdings} == {
        "/opt/data/k.cubin": {("file", entry("sm_90a")): 1},
        "/opt/data/no-suffix": {("file", entry("sm_80")): 1},
        "/opt/proc/libnot.so": {(".nv_fatbin", entry("sm_75")): 1},
        "/usr/lib/libgpu.so.1": {(".nv_fatbin", entry("sm_90")): 1},
    }
    assert list(found.unreadable) == ["/opt/data/broken.so"]
    assert (found.files, found.elf_files, found.denied) == (len(files) - 1, 5, 0)
    assert found.runtime == Counter({("pkg", "Triton"): 2, ("pkg", "CUDA C++ files"): 1, ("one", "CuTe DSL"): 1})


def test_a_file_that_may_not_be_read_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(gpu_elf.gpu_library("sm_90"))

    def deny(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(census.os, "open", deny)
    assert census.take(tmp_path).denied == 1


@pytest.mark.parametrize(
    ("text", "compiler"),
    [
        (b"@triton.jit\n", "Triton"),
        (b"    @triton.jit(do_not_specialize=[1])\n", "Triton"),
        (b"@cute.kernel\n", "CuTe DSL"),
        (b"@T.prim_func\n", "TileLang"),
        (b"@ct.kernel\n", "cuTile"),
        (b"@cuda.jit\n", "Numba"),
        (b"@cute.jit\n", None),
        (b"# @triton.jit\n", None),
        (b"@triton.jitter\n", None),
        (b"triton.jit(f)\n", None),
    ],
)
def test_kernels_compiled_at_run_time(text: bytes, compiler: str | None) -> None:
    found = runtime_code.kernels("/x/lib/python3.11/site-packages/pkg/sub/k.py", b"import x\n" + text)
    assert found == Counter({("pkg", compiler): 1} if compiler else {})


def test_the_census_runs_in_any_python_from_3_8_on() -> None:
    for name in ("__init__", "census", "cubin", "fatbin", "hidden", "runtime_code", "verdicts"):
        ast.parse((SMOKE / "lib" / f"{name}.py").read_text(), feature_version=(3, 8))
