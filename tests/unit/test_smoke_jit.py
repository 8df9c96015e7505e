"""images/smoke/jit.py: green with stand-ins for FlashInfer and Triton (tests/fixtures/jit_site), red on each defect."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import gpu_elf
import jit
import pytest
from cuda_code import AOT

FIXTURE = Path(__file__).parents[1] / "fixtures" / "jit_site"

Run = Callable[..., dict[str, str]]

CHECKS = {"tools", "driver", "no-compiler", "ahead:norm", "flashinfer", "triton", "triton-launcher"}


@pytest.fixture
def toolkit(tmp_path: Path) -> Path:
    """What the image offers a compiler: programs (that do nothing) and link names."""
    folder = tmp_path / "toolkit"
    for name in [*(f"bin/{tool}" for tool in jit.TOOLS), *jit.LINK_NAMES, "lib/stubs/libcuda.so"]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch(0o755)
    return folder


@pytest.fixture
def run(toolkit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the smoke test with one defect; returns the ids of the checks that failed, each with its detail."""
    library = tmp_path / "site" / AOT / "norm" / "norm.so"
    library.parent.mkdir(parents=True)
    library.write_bytes(gpu_elf.gpu_library("sm_90a"))
    (tmp_path / "right").write_bytes(gpu_elf.gpu_library("sm_90a"))
    (tmp_path / "other").write_bytes(gpu_elf.gpu_library("sm_100a"))
    component = {"version": "1", "commit": None, "overrides": None, "modules": ["norm"]}
    facts = {
        "recipe": "test",
        "arch": "sm90",
        "compute_capability": "9.0",
        "cuda": "13.0",
        "torch_arch_list": "9.0a",
        "nvcc_arch": "sm_90a",
        "python": "3.11",
        "site_packages": str(tmp_path / "site"),
        "packages": {},
        "components": {"flashinfer": {"distribution": "flashinfer-python", **component}},
        "patches": [],
        "waivers": [],
        "env": {},
    }
    (tmp_path / "facts.json").write_text(json.dumps(facts))
    (tmp_path / "tmp").mkdir()
    env = {
        "GRAFT_FACTS": tmp_path / "facts.json",
        "PATH": toolkit / "bin",
        "CUDA_HOME": toolkit,
        "PYTHONPATH": FIXTURE,
        "PYTHONDONTWRITEBYTECODE": 1,
        "SITE": tmp_path / "site",
        "COMPILED": tmp_path,
    }
    for name, value in env.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))

    def run(defect: str = "") -> dict[str, str]:
        monkeypatch.setenv("DEFECT", defect)
        with pytest.raises(SystemExit) as ended:
            jit.main()
        report = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert report["test"] == "jit"
        assert {check["id"] for check in report["checks"]} == CHECKS
        assert list((tmp_path / "tmp").iterdir()) == []
        failed = {check["id"]: check["detail"] for check in report["checks"] if check["verdict"] == "fail"}
        assert ended.value.code == bool(failed)
        return failed

    return run


def test_green(run: Run) -> None:
    assert run() == {}


@pytest.mark.parametrize(
    ("defect", "red"),
    [
        ("not found", "ahead:norm"),
        ("another file", "ahead:norm"),
        ("cannot be loaded", "ahead:norm"),
        ("not loaded", "ahead:norm"),
        ("does not compile", "flashinfer"),
        ("compiles for another arch", "flashinfer"),
        ("linked with another runtime", "flashinfer"),
        ("not linked with the stub", "flashinfer"),
        ("Triton compiles for another arch", "triton"),
        ("Triton compiles without the suffix", "triton"),
        ("no Python headers", "triton-launcher"),
    ],
)
def test_defect_is_red(run: Run, defect: str, red: str) -> None:
    assert set(run(defect)) == {red}


def test_the_end_of_a_failed_compile_is_shown(run: Run) -> None:
    assert "cannot find -lcudart" in run("does not compile")["flashinfer"]
    assert "ptxas failed" in run("Triton does not compile")["triton"]


@pytest.mark.parametrize("name", ["bin/c++", "bin/ninja", "lib64/libcudart.so", "lib64/stubs/libcuda.so"])
def test_missing_tool_is_red(run: Run, toolkit: Path, name: str) -> None:
    (toolkit / name).unlink()
    assert Path(name).name in run()["tools"]


def test_no_toolkit_is_red(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_HOME")
    assert "tools" in run()


def test_a_file_that_hides_the_driver_is_red(run: Run, toolkit: Path) -> None:
    (toolkit / "lib" / "libcuda.so.1").touch()
    assert set(run()) == {"driver"}


def test_child_that_hangs_is_red(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "SECONDS", 0.0)
    assert {"no-compiler", "ahead:norm", "flashinfer", "triton", "triton-launcher"} <= set(run())
