"""images/smoke/cuda_code.py: green on what the build makes, red on each planted defect."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cuda_code
import gpu_elf
import pytest

Run = Callable[..., dict[str, Any]]


@pytest.fixture
def aot(tmp_path: Path) -> Path:
    """site-packages/flashinfer/data/aot with the modules norm and page for sm90."""
    folder = tmp_path / "site" / cuda_code.AOT
    for name in ("norm", "page"):
        plant(folder, name, gpu_elf.gpu_library("sm_90a", "sm_90a"))
    return folder


def plant(folder: Path, name: str, data: bytes) -> None:
    (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / name / f"{name}.so").write_bytes(data)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the smoke test; the verdict of each check by its id, and its exit status under "exit"."""

    def run(
        *, arch: str = "sm90", modules: Sequence[str] = ("norm", "page"), file: str | None = None
    ) -> dict[str, Any]:
        waiver = {"check": "cuda-code", "file": file, "package": None, "arch": None, "reason": "test", "until": "x"}
        component = {"version": "1", "commit": None, "overrides": None, "modules": list(modules)}
        facts = {
            "recipe": "test",
            "arch": arch,
            "compute_capability": "9.0",
            "cuda": "13.0",
            "torch_arch_list": "9.0a",
            "nvcc_arch": "sm_90a",
            "python": "3.11",
            "site_packages": str(tmp_path / "site"),
            "packages": {},
            "components": {"flashinfer": {"distribution": "flashinfer-python", **component}},
            "patches": [],
            "waivers": [waiver] if file else [],
            "env": {},
        }
        (tmp_path / "facts.json").write_text(json.dumps(facts))
        monkeypatch.setenv("GRAFT_FACTS", str(tmp_path / "facts.json"))
        with pytest.raises(SystemExit) as ended:
            cuda_code.main()
        report = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert report["test"] == "cuda-code"
        return {"exit": ended.value.code, **{check["id"]: check["verdict"] for check in report["checks"]}}

    return run


@pytest.mark.usefixtures("aot")
def test_green(run: Run) -> None:
    assert run() == {
        "exit": 0,
        "modules": "pass",
        "code:norm/norm.so": "pass",
        "code:page/page.so": "pass",
        "waivers": "pass",
    }


@pytest.mark.parametrize(
    "data",
    [
        gpu_elf.gpu_library("sm_100a"),
        gpu_elf.gpu_library("sm_90a", "sm_100a"),
        gpu_elf.gpu_library("sm_90a", "compute_90"),
        gpu_elf.gpu_library("compute_90"),
        gpu_elf.gpu_library("sm_80"),
        gpu_elf.elf({".text": b"host only"}),
        gpu_elf.elf({"__nv_relfatbin": gpu_elf.container("sm_90a")}),
        gpu_elf.gpu_library("sm_90a")[:200],
        b"",
        b"no library at all",
    ],
    ids=["other", "both", "PTX too", "only PTX", "older", "no code", "not linked", "cut off", "empty", "no ELF"],
)
def test_wrong_code_is_red(run: Run, aot: Path, data: bytes) -> None:
    plant(aot, "norm", data)
    got = run()
    assert (got["exit"], got["code:norm/norm.so"], got["code:page/page.so"]) == (1, "fail", "pass")


@pytest.mark.usefixtures("aot")
def test_code_for_another_image_is_red(run: Run) -> None:
    assert run(arch="sm100")["code:norm/norm.so"] == "fail"


@pytest.mark.usefixtures("aot")
def test_missing_module_is_red(run: Run) -> None:
    got = run(modules=["norm", "page", "rope"])
    assert (got["exit"], got["modules"]) == (1, "fail")


@pytest.mark.usefixtures("aot")
def test_module_nobody_asked_for_is_red(run: Run) -> None:
    assert run(modules=["norm"])["modules"] == "fail"


def test_nothing_compiled_is_red(run: Run) -> None:
    assert run()["modules"] == "fail"


def test_waived_code(run: Run, aot: Path) -> None:
    plant(aot, "norm", gpu_elf.gpu_library("sm_90a", "sm_100a"))
    got = run(file=f"{cuda_code.AOT}/norm/norm.so")
    assert (got["exit"], got["code:norm/norm.so"], got["waivers"]) == (0, "waived", "pass")


@pytest.mark.usefixtures("aot")
def test_waiver_that_nothing_needs_is_red(run: Run) -> None:
    got = run(file=f"{cuda_code.AOT}/norm/norm.so")
    assert (got["exit"], got["waivers"]) == (1, "fail")
