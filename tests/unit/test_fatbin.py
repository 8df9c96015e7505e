"""images/smoke/lib/fatbin.py: what it reads, what it refuses, and what the rule of architectures says."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import gpu_elf
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lib import fatbin
from lib.fatbin import Entry, FatbinError


def cubin(arch: str) -> Entry:
    return Entry("cubin", arch)


def ptx(arch: str) -> Entry:
    return Entry("ptx", arch)


@pytest.fixture
def library(tmp_path: Path) -> Path:
    return tmp_path / "lib.so"


def test_reads_kind_and_arch_in_file_order(library: Path) -> None:
    library.write_bytes(gpu_elf.gpu_library("sm_90", "sm_90a", "sm_100f", "compute_120", "lto_90"))
    assert fatbin.read(library) == [
        cubin("sm_90"),
        cubin("sm_90a"),
        cubin("sm_100f"),
        ptx("compute_120"),
        Entry("lto", "lto_90"),
    ]


def test_reads_all_containers_and_skips_padding(library: Path) -> None:
    data = bytes(24) + gpu_elf.container("sm_80") + bytes(40) + gpu_elf.container("sm_90a") + bytes(8)
    library.write_bytes(gpu_elf.elf({".nv_fatbin": data, "__nv_relfatbin": gpu_elf.container("sm_75")}))
    assert fatbin.read(library) == [cubin("sm_80"), cubin("sm_90a"), Entry("cubin", "sm_75", relocatable=True)]


@pytest.mark.parametrize(
    "data",
    [
        gpu_elf.elf({".text": b"x"}),
        gpu_elf.elf({".nv_fatbin": b""}),
        gpu_elf.elf({".nv_fatbin": bytes(4096)}),
        gpu_elf.elf({".nv_fatbin_other": gpu_elf.container("sm_90")}),
        gpu_elf.elf({".nv_fatbin": gpu_elf.container("sm_90")}, nobits=(".nv_fatbin",)),
    ],
    ids=["no section", "empty section", "zeroed section", "other name", "not in the file"],
)
def test_no_code_is_no_error(library: Path, data: bytes) -> None:
    library.write_bytes(data)
    assert fatbin.read(library) == []


def test_more_sections_than_the_header_can_count(library: Path) -> None:
    data = bytearray(gpu_elf.gpu_library("sm_90a"))
    (table,) = struct.unpack_from("<Q", data, 40)
    count, names = struct.unpack_from("<HH", data, 60)
    struct.pack_into("<HH", data, 60, 0, 0xFFFF)
    struct.pack_into("<Q", data, table + 32, count)
    struct.pack_into("<I", data, table + 40, names)
    library.write_bytes(data)
    assert fatbin.read(library) == [cubin("sm_90a")]


def over_each_other() -> bytes:
    """A library with two more sections that are the first one again: reading them would take time for nothing."""
    code = gpu_elf.container(*["sm_90"] * 20)
    data = bytearray(gpu_elf.elf({".nv_fatbin": code, "__nv_relfatbin": b"x", ".text": b"x"}))
    (table,) = struct.unpack_from("<Q", data, 40)
    for index in (2, 3):
        data[table + index * 64 : table + index * 64 + 64] = data[table + 64 : table + 128]
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty"),
        (b"\x7fELF", "too short"),
        (b"#!/bin/sh\n" * 20, "not an ELF file"),
        (b"\x7fELF\x01\x01" + bytes(100), "64-bit little-endian"),
        (gpu_elf.gpu_library("sm_90")[:-70], "cut off"),
        (gpu_elf.elf({".nv_fatbin": b"garbage" * 10}), "no fatbin of a known form"),
        (gpu_elf.elf({".nv_fatbin": gpu_elf.container("sm_90")[:-8]}), "cut off"),
        (gpu_elf.elf({".nv_fatbin": gpu_elf.container("sm_90")[:10]}), "cut off"),
        (gpu_elf.gpu_library("sm_1000"), "no known architecture"),
        (over_each_other(), "over each other"),
    ],
)
def test_refuses(library: Path, data: bytes, message: str) -> None:
    library.write_bytes(data)
    with pytest.raises(FatbinError, match=message):
        fatbin.read(library)


@given(data=st.binary(max_size=300))
def test_any_bytes_as_gpu_code(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    read_or_refuse(tmp_path_factory, gpu_elf.elf({".nv_fatbin": data}))


@given(at=st.integers(0, 2000), value=st.integers(0, 255), keep=st.integers(0, 2000))
def test_any_damage(tmp_path_factory: pytest.TempPathFactory, at: int, value: int, keep: int) -> None:
    data = bytearray(gpu_elf.gpu_library("sm_90a", "compute_120", "sm_100f"))
    data[at % len(data)] = value
    read_or_refuse(tmp_path_factory, bytes(data[: max(keep, 200)]))


def read_or_refuse(factory: pytest.TempPathFactory, data: bytes) -> None:
    path = factory.getbasetemp() / "damaged.so"
    path.write_bytes(data)
    try:
        entries = fatbin.read(path)
    except FatbinError:
        return
    assert fatbin.verdict(entries, "sm90") in ("covered", "ptx-only", "missing")
    fatbin.foreign(entries, "sm90")


# What runs where, as NVIDIA documents it for cubins, their suffixes a and f, and PTX.
@pytest.mark.parametrize(
    ("held", "arch", "verdict"),
    [
        ("sm_90", "sm90", "covered"),
        ("sm_90a", "sm90", "covered"),
        ("sm_80", "sm86", "covered"),
        ("sm_86", "sm80", "missing"),
        ("sm_89", "sm90", "missing"),
        ("sm_100", "sm103", "covered"),
        ("sm_100a", "sm103", "missing"),
        ("sm_100f", "sm103", "covered"),
        ("sm_103f", "sm100", "missing"),
        ("sm_100f", "sm120", "missing"),
        ("sm_120f", "sm121", "covered"),
        ("sm_120a", "sm121", "missing"),
        ("sm_12", "sm120", "missing"),
        ("compute_80", "sm90", "ptx-only"),
        ("compute_90", "sm90", "ptx-only"),
        ("compute_90", "sm120", "ptx-only"),
        ("compute_120", "sm90", "missing"),
        ("compute_90a", "sm90", "ptx-only"),
        ("compute_90a", "sm100", "missing"),
        ("compute_100f", "sm103", "ptx-only"),
        ("sm_87", "sm87", "covered"),
        ("sm_80", "sm87", "missing"),
        ("sm_87", "sm89", "missing"),
        ("compute_80", "sm87", "ptx-only"),
        ("lto_90", "sm90", "missing"),
    ],
)
def test_verdict_of_one(library: Path, held: str, arch: str, verdict: str) -> None:
    library.write_bytes(gpu_elf.gpu_library(held))
    assert fatbin.verdict(fatbin.read(library), arch) == verdict


@pytest.mark.parametrize(
    ("held", "arch", "rule"),
    [
        ("sm_120", "sm120", "exact"),
        ("sm_120a", "sm120", "a"),
        ("sm_120f", "sm120", "family"),
        ("sm_120f", "sm121", "family"),
        ("sm_120", "sm121", "same major"),
        ("compute_90", "sm121", "PTX"),
        ("sm_120a", "sm121", None),
        ("lto_120", "sm120", None),
    ],
)
def test_rule_of_one(library: Path, held: str, arch: str, rule: str | None) -> None:
    library.write_bytes(gpu_elf.gpu_library(held))
    assert [fatbin.rule(entry, arch) for entry in fatbin.read(library)] == [rule]


def test_verdict_of_several() -> None:
    assert fatbin.verdict([ptx("compute_90"), cubin("sm_90")], "sm90") == "covered"
    assert fatbin.verdict([ptx("compute_90"), cubin("sm_80")], "sm90") == "ptx-only"
    assert fatbin.verdict([], "sm90") == "missing"


def test_relocatable_code_runs_nowhere() -> None:
    assert fatbin.verdict([Entry("cubin", "sm_90", relocatable=True)], "sm90") == "missing"


def test_foreign_is_everything_but_cubins_of_the_arch() -> None:
    held = [cubin("sm_90"), cubin("sm_90a"), cubin("sm_100a"), ptx("compute_90"), cubin("sm_80"), cubin("sm_80")]
    assert fatbin.foreign(held, "sm90") == [cubin("sm_100a"), cubin("sm_80"), ptx("compute_90")]


@pytest.mark.parametrize("arch", ["", "90", "sm_90", "sm90a", "sm9"])
def test_arch_must_have_its_form(arch: str) -> None:
    with pytest.raises(ValueError, match="form sm90"):
        fatbin.verdict([cubin("sm_90")], arch)


def test_is_elf(library: Path) -> None:
    library.write_bytes(gpu_elf.gpu_library("sm_90"))
    assert fatbin.is_elf(library)
    library.write_bytes(b"")
    assert not fatbin.is_elf(library)


# Headers of what nvcc 13.0 and the ptxas in Triton 3.7 (12.8) wrote: (ELF ABI version, flags).
@pytest.mark.parametrize(
    ("abi", "flags", "target"),
    [(8, 0x6005A04, "sm90"), (8, 0x6006402, "sm100"), (8, 0x6007802, "sm120"), (7, 0x5A0D5A, "sm90")],
)
def test_cubin_target(abi: int, flags: int, target: str) -> None:
    ident = b"\x7fELF\x02\x01\x01" + bytes([65, abi]) + bytes(7)
    header = struct.pack("<16sHHIQQQIHHHHHH", ident, 2, 190, 1, 0, 0, 0, flags, 64, 0, 0, 0, 0, 0)
    assert fatbin.cubin_target(header) == target


@pytest.mark.parametrize("data", [b"", b"\x7fELF", gpu_elf.gpu_library("sm_90")])
def test_no_cubin(data: bytes) -> None:
    with pytest.raises(FatbinError):
        fatbin.cubin_target(data)


NVCC = shutil.which("nvcc")


@pytest.mark.skipif(NVCC is None, reason="no nvcc on PATH; the image's smoke test jit compiles with the image's own")
def test_what_nvcc_makes(tmp_path: Path) -> None:
    source = tmp_path / "kernel.cu"
    source.write_text("__global__ void kernel(float* x) { *x = 1; }")
    targets = ["90,code=sm_90", "90a,code=sm_90a", "100f,code=sm_100f", "120,code=compute_120"]
    command = [str(NVCC), "-c", str(source), "-o", str(tmp_path / "kernel.o")]
    done = subprocess.run([*command, *(f"-gencode=arch=compute_{t}" for t in targets)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    held = fatbin.read(tmp_path / "kernel.o")
    assert sorted(held) == sorted([cubin("sm_90"), cubin("sm_90a"), cubin("sm_100f"), ptx("compute_120")])
