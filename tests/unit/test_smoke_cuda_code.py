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

    # A program, as every image has one.
    (tmp_path / "ls").write_bytes(gpu_elf.elf({".text": b"x"}))
    monkeypatch.setattr(cuda_code, "ROOT", tmp_path)

    def run(
        *,
        arch: str = "sm90",
        modules: Sequence[str] = ("norm", "page"),
        file: str | None = None,
        package: str | None = None,
        waiver_arch: str | None = None,
    ) -> dict[str, Any]:
        waiver = {"check": "cuda-code", "file": file, "package": package, "arch": waiver_arch}
        waiver |= {"reason": "test", "until": "x"}
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
        "census": "pass",
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


VLLM = "vllm/_C.abi3.so"


def add(aot: Path, name: str, data: bytes) -> None:
    """A file below site-packages."""
    place = aot.parents[2] / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(data)


@pytest.mark.parametrize(
    "archs", [["sm_90"], ["sm_90a"], ["sm_80", "sm_90", "compute_120"]], ids=["exact", "a", "among others"]
)
def test_a_library_with_code_for_the_arch(run: Run, aot: Path, archs: list[str]) -> None:
    add(aot, VLLM, gpu_elf.gpu_library(*archs))
    got = run()
    assert (got["exit"], got[f"file:{VLLM}"]) == (0, "pass")


@pytest.mark.parametrize(
    "data",
    [
        gpu_elf.gpu_library("sm_80", "sm_100f", "sm_120"),
        gpu_elf.gpu_library("compute_80"),
        gpu_elf.gpu_library("sm_80", "compute_80"),
        gpu_elf.gpu_library("lto_90"),
        gpu_elf.elf({"__nv_relfatbin": gpu_elf.container("sm_90")}),
        gpu_elf.elf({".rodata": gpu_elf.container("sm_80")}),
        gpu_elf.gpu_library("sm_90")[:-70],
        gpu_elf.elf({".nv_fatbin": gpu_elf.container("sm_90")[:-8]}),
    ],
    ids=["no ARCH", "only PTX", "older and PTX", "LTO", "not linked", "hidden", "file cut off", "code cut off"],
)
def test_a_library_without_code_for_the_arch_is_red(run: Run, aot: Path, data: bytes) -> None:
    add(aot, VLLM, data)
    got = run()
    assert (got["exit"], got[f"file:{VLLM}"]) == (1, "fail")
    got = run(file=VLLM, waiver_arch="sm90")
    assert (got["exit"], got[f"file:{VLLM}"], got["waivers"]) == (0, "waived", "pass")
    assert run(file=VLLM, waiver_arch="sm100")["exit"] == 1


@pytest.mark.parametrize(
    "data",
    [
        gpu_elf.elf({"__nv_relfatbin": gpu_elf.container("sm_80")}, kind=1),
        gpu_elf.archive(a=gpu_elf.elf({"__nv_relfatbin": gpu_elf.container("sm_80")})),
        gpu_elf.elf({".rodata": gpu_elf.cubin("sm_80", relocatable=True)}),
        gpu_elf.elf({".rodata": gpu_elf.container("lto_75")}),
    ],
    ids=["object", "archive", "relocatable cubin in data", "LTO in data"],
)
def test_what_only_a_linker_reads_is_not_judged(run: Run, aot: Path, data: bytes) -> None:
    add(aot, VLLM, data)
    assert run()[f"file:{VLLM}"] == "pass"
    # ... and so needs no waiver.
    assert run(file=VLLM)["waivers"] == "fail"


def test_a_file_anywhere_in_the_image(run: Run, aot: Path) -> None:
    (aot.parents[3] / "usr/lib").mkdir(parents=True)
    (aot.parents[3] / "usr/lib/libgpu.so").write_bytes(gpu_elf.gpu_library("sm_100"))
    assert run()["file:/usr/lib/libgpu.so"] == "fail"
    assert run(file="/usr/lib/libgpu.so")["exit"] == 0
    assert run(arch="sm100")["file:/usr/lib/libgpu.so"] == "pass"


def test_a_bare_cubin_and_a_fatbin(run: Run, aot: Path) -> None:
    add(aot, "kernels/k.cubin", gpu_elf.cubin("sm_100a"))
    add(aot, "kernels/k.fatbin", gpu_elf.container("sm_90", "compute_90"))
    got = run()
    assert (got["file:kernels/k.cubin"], got["file:kernels/k.fatbin"]) == ("fail", "pass")


def test_a_waiver_for_the_package_that_owns_the_file(run: Run, aot: Path) -> None:
    add(aot, VLLM, gpu_elf.gpu_library("compute_80"))
    add(aot, "vllm-1.dist-info/RECORD", f"{VLLM},,\n".encode())
    assert run(file="vllm/*", package="vllm")["exit"] == 0
    got = run(file="vllm/*", package="torch")
    assert (got[f"file:{VLLM}"], got["waivers"]) == ("fail", "fail")


def test_a_waiver_that_the_file_has_outgrown_is_red(run: Run, aot: Path) -> None:
    add(aot, VLLM, gpu_elf.gpu_library("sm_90", "compute_80"))
    assert run(file=VLLM)["waivers"] == "fail"


def test_an_image_without_any_program_was_not_looked_at(run: Run, tmp_path: Path) -> None:
    (tmp_path / "ls").unlink()
    assert run(modules=[])["census"] == "fail"


@pytest.mark.usefixtures("aot")
def test_modules_of_flashinfer_are_judged_once_and_by_the_stricter_rule(run: Run, aot: Path) -> None:
    plant(aot, "norm", gpu_elf.gpu_library("sm_90a", "compute_90"))
    got = run()
    assert got["code:norm/norm.so"] == "fail"
    assert not [name for name in got if name.startswith(f"file:{cuda_code.AOT}")]
