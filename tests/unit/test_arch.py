"""The architecture table of build.yaml against pins, in every form."""

from __future__ import annotations

from pathlib import Path

import pytest

from graft.arch import Arch, check_cuda, select
from graft.errors import BadInput
from graft.project import Project, load_project

ROOT = Path(__file__).parents[2]

#: Name, capability, torch list, CMake, gencode, CuTe DSL, first CUDA: as NVIDIA's and torch's documents spell them.
TABLE = [
    ("sm80", "8.0", "8.0", "80", "compute_80", "sm_80", "11.0"),
    ("sm86", "8.6", "8.6", "86", "compute_86", "sm_86", "11.1"),
    ("sm89", "8.9", "8.9", "89", "compute_89", "sm_89", "11.8"),
    ("sm90", "9.0", "9.0a", "90a", "compute_90a", "sm_90a", "12.0"),
    ("sm100", "10.0", "10.0a", "100a", "compute_100a", "sm_100a", "12.8"),
    ("sm103", "10.3", "10.3a", "103a", "compute_103a", "sm_103a", "12.9"),
    ("sm110", "11.0", "11.0a", "110a", "compute_110a", "sm_110a", "13.0"),
    ("sm120", "12.0", "12.0a", "120a", "compute_120a", "sm_120a", "12.8"),
    ("sm121", "12.1", "12.1a", "121a", "compute_121a", "sm_121a", "12.9"),
]


@pytest.fixture(scope="module")
def project() -> Project:
    return load_project(ROOT / "build.yaml")


def test_the_table_has_these_rows_and_no_other(project: Project) -> None:
    assert list(project.arches) == [row[0] for row in TABLE]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row[0])
def test_every_form(project: Project, row: tuple[str, ...]) -> None:
    name, capability, torch_list, cmake, compute, sm, cuda = row
    arch = select(project.arches, name)
    assert (arch.row.capability, arch.torch_list, arch.cmake, arch.compute) == (capability, torch_list, cmake, compute)
    assert (arch.cute_dsl, arch.nvcc, arch.row.cuda) == (sm, sm, cuda)
    assert arch.row.devices
    assert arch.environment() == {
        "TORCH_CUDA_ARCH_LIST": torch_list,
        "FLASHINFER_CUDA_ARCH_LIST": torch_list,
        "CMAKE_CUDA_ARCHITECTURES": cmake,
        "NVCC_GENCODE": f"-gencode=arch={compute},code={sm}",
        "CUTE_DSL_ARCH": sm,
    }


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("sm_90", "did you mean sm90? "),
        ("9.0", "did you mean sm90? "),
        ("SM90", "did you mean sm90? "),
        ("sm90a", "did you mean sm90? "),
        ("sm102", "did you mean sm"),
        ("h100", "known: sm80, "),
        ("", "known: sm80, "),
        ("$(id)", "known: sm80, "),
        ("../sm90x/", "did you mean sm90? "),
    ],
)
def test_an_unknown_architecture_suggests_a_known_one(project: Project, name: str, hint: str) -> None:
    with pytest.raises(BadInput) as caught:
        select(project.arches, name)
    assert (caught.value.exit_code, caught.value.where) == (2, "ARCH")
    assert caught.value.what == f"unknown architecture {name!r}"
    assert hint in str(caught.value.cure)
    assert "sm121" in str(caught.value.cure)


@pytest.mark.parametrize(("cuda", "fits"), [("12.7", False), ("12.8", True), ("12.10", True), ("13.0", True)])
def test_cuda_must_know_the_architecture(project: Project, cuda: str, fits: bool) -> None:
    arch: Arch = select(project.arches, "sm120")
    if fits:
        check_cuda(arch, cuda, "r.yaml")
        return
    with pytest.raises(BadInput) as caught:
        check_cuda(arch, cuda, "r.yaml")
    assert caught.value.what == "sm120 needs CUDA 12.8 or newer, the recipe has 12.7"
    assert (caught.value.where, bool(caught.value.cure)) == ("r.yaml", True)
