"""images/scripts/build-flashinfer-aot.py: the wheel it packs, and what it refuses before and after compiling."""

from __future__ import annotations

import base64
import csv
import hashlib
import importlib.util
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import gpu_elf
import pytest

SCRIPT = Path(__file__).parents[2] / "images" / "scripts" / "build-flashinfer-aot.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_flashinfer_aot", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def work(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(script, "WORK", tmp_path / "work")
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.fixture
def library(tmp_path: Path) -> Path:
    path = tmp_path / "norm.so"
    path.write_bytes(gpu_elf.gpu_library("sm_90a"))
    return path


def test_wheel_lists_each_file_with_its_hash(script: ModuleType, library: Path, tmp_path: Path) -> None:
    wheel = script.pack({"norm": library}, tmp_path, "0.7.0.post1", "sm90a")
    assert wheel.name.startswith("graft_flashinfer_aot-0.7.0.post1+sm90a-py3-none-linux_")
    info = "graft_flashinfer_aot-0.7.0.post1+sm90a.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        record = list(csv.reader(archive.read(f"{info}/RECORD").decode().splitlines()))
        assert [row[0] for row in record] == archive.namelist()
        for name, digest, size in record[:-1]:
            data = archive.read(name)
            algorithm, value = digest.split("=", 1)
            assert value == base64.urlsafe_b64encode(hashlib.new(algorithm, data).digest()).decode().rstrip("=")
            assert int(size) == len(data)
        assert archive.read("flashinfer/data/aot/norm/norm.so") == library.read_bytes()
        assert "Requires-Dist: flashinfer-python==0.7.0.post1" in archive.read(f"{info}/METADATA").decode()


def test_wheel_is_the_same_bytes_each_time(
    script: ModuleType, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = script.pack({"norm": library, "page": library}, tmp_path, "1", "sm90a").read_bytes()
    library.touch()
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert script.pack({"page": library, "norm": library}, tmp_path, "1", "sm90a").read_bytes() == first


@pytest.mark.parametrize("arch", ["", "9.0a 10.0a", "9.0a,10.0a", "sm90", "90a", "9.0b"])
def test_not_one_architecture(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arch: str) -> None:
    monkeypatch.setenv("FLASHINFER_CUDA_ARCH_LIST", arch)
    with pytest.raises(script.BuildError, match="one architecture"):
        script.build_modules(tmp_path, tmp_path, "1", ["norm"])


@pytest.mark.parametrize("held", [("sm_100a",), ("sm_90a", "sm_80"), ("sm_90a", "compute_90a"), ()])
def test_module_with_other_code_fails_the_build(
    script: ModuleType, work: Path, library: Path, monkeypatch: pytest.MonkeyPatch, held: tuple[str, ...]
) -> None:
    """With the compile itself left out: what it made is judged all the same."""
    library.write_bytes(gpu_elf.gpu_library(*held))
    monkeypatch.setenv("FLASHINFER_CUDA_ARCH_LIST", "9.0a")
    monkeypatch.setenv("CUDA_HOME", str(work))
    monkeypatch.setattr(script, "run", lambda *_args, **_more: f'{{"norm": ["norm", "x.ninja", "{library}"]}}')
    monkeypatch.setattr(script, "compile_all", lambda *_args: None)
    with pytest.raises(script.BuildError, match="module norm must hold code for sm90 and no other"):
        script.build_modules(work, work, "1", ["norm"])


def test_version_that_is_not_the_locked_one_fails_the_build(
    script: ModuleType, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(*_args: object, **_more: object) -> str:
        (tmp_path / "flashinfer_python-0.0.0+unknown-py3-none-any.whl").touch()
        return ""

    monkeypatch.setattr(script, "run", build)
    with pytest.raises(script.BuildError, match=r"0\.0\.0\+unknown"):
        script.build_wheel(tmp_path, tmp_path, "0.7.0.post1")


def test_header_that_is_not_the_tree_s_fails_the_build(script: ModuleType, tmp_path: Path) -> None:
    header = tmp_path / "include" / "flashinfer" / "norm.cuh"
    header.parent.mkdir(parents=True)
    (tmp_path / "csrc").mkdir()
    header.write_text("patched")
    for member, text in (("flashinfer/data/include/flashinfer/norm.cuh", "pristine"), ("other", "patched")):
        with zipfile.ZipFile(tmp_path / "x.whl", "w") as archive:
            archive.writestr(member, text)
        with pytest.raises(script.BuildError, match=r"norm\.cuh in x\.whl is not the tree's"):
            script.prove_wheel(tmp_path, tmp_path / "x.whl")


def test_ninja_file_of_another_form_fails_the_build(
    script: ModuleType, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ccache must not be left out silently when FlashInfer writes its ninja files in another way."""
    monkeypatch.setenv("CCACHE_DIR", str(work))
    ninja = work / "build.ninja"
    ninja.write_text("nvcc_launcher = \nrule x\n  command = nvcc\n")
    with pytest.raises(script.BuildError, match="ccache cannot be put in"):
        script.compile_all([ninja], work, {})


def test_end_of_a_failed_program_is_shown(script: ModuleType, work: Path) -> None:
    code = "print('first'); [print('line', n) for n in range(100)]; raise SystemExit('the cause')"
    with pytest.raises(script.BuildError) as caught:
        script.run([sys.executable, "-c", code], {}, cwd=work)
    assert "the cause" in str(caught.value)
    assert "first" not in str(caught.value)
