"""images/scripts/cuda-links.sh on a toolkit laid out as the wheels lay it out, made from the one of this machine."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "images" / "scripts" / "cuda-links.sh"
NVCC = shutil.which("nvcc")


def run(toolkit: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", str(SCRIPT), str(toolkit)], capture_output=True, text=True)


def made_in(toolkit: Path) -> tuple[bytes, dict[str, str]]:
    """What the script made: the bytes of the stub, and each link with its target."""
    links = {path.name: str(path.readlink()) for path in sorted(toolkit.glob("lib/*")) if path.is_symlink()}
    return (toolkit / "lib/stubs/libcuda.so").read_bytes(), links


@pytest.fixture
def toolkit(tmp_path: Path) -> Path:
    if NVCC is None:
        pytest.skip("no nvcc on PATH")
    dry = subprocess.run([NVCC, "--dryrun", "x.cu"], capture_output=True, text=True, check=True).stderr
    top = next(line.split("=", 1)[1] for line in dry.splitlines() if line.startswith("#$ TOP="))
    folder = tmp_path / "cu13"
    (folder / "lib").mkdir(parents=True)
    for name in ("bin", "include", "nvvm"):
        (folder / name).symlink_to(Path(top) / name)
    for library in Path(top, "lib").glob("libcudart.so.*"):
        if not library.is_symlink():
            shutil.copy(library, folder / "lib" / f"libcudart.so.{library.name.split('.')[2]}")
    return folder


def test_makes_the_names_and_the_same_bytes_again(toolkit: Path) -> None:
    done = run(toolkit)
    assert done.returncode == 0, done.stderr
    made = made_in(toolkit)
    assert (toolkit / "lib64").readlink() == Path("lib")
    assert made[1]["libcudart.so"].startswith("libcudart.so.")
    shutil.rmtree(toolkit / "lib/stubs")
    assert run(toolkit).returncode == 0
    assert made_in(toolkit) == made


def test_stub_is_not_where_a_loader_looks(toolkit: Path) -> None:
    assert run(toolkit).returncode == 0
    assert [path.relative_to(toolkit).as_posix() for path in toolkit.glob("lib/**/libcuda.so*")] == [
        "lib/stubs/libcuda.so"
    ]


def test_two_versions_of_one_library(toolkit: Path) -> None:
    (toolkit / "lib/libcudart.so.12").touch()
    done = run(toolkit)
    assert done.returncode == 1
    assert "libcudart.so points to" in done.stderr


def test_a_file_in_the_place_of_a_link(toolkit: Path) -> None:
    (toolkit / "lib64").mkdir()
    done = run(toolkit)
    assert done.returncode == 1
    assert "lib64 exists and is no link" in done.stderr


def test_no_toolkit(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 1
    assert "is no CUDA toolkit" in done.stderr
