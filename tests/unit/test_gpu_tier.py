"""The tests on GPUs, as far as they can be tried without one and without torch."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gpu_ready
import pytest
import yaml
from gpu import cases, devices, kernels, models, nccl
from gpu.devices import Gpu
from gpu.run import TESTS
from lib import facts
from lib.child import Finished
from lib.facts import Facts
from lib.report import Report

from graft.gate.tests import GPU_TESTS, Ended, SmokeTest, gpu_tests, judge

SOURCE = Path(__file__).parents[2]
SMOKE = SOURCE / "images" / "smoke"
H100 = Gpu("NVIDIA H100", (9, 0))
NO_GPU = """
__version__ = "2.0"
class cuda:
    is_available = staticmethod(lambda: False)
"""


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Facts:
    return make(tmp_path, monkeypatch)


def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Facts:
    site = tmp_path / "site"
    (site / "nvidia/nccl/lib").mkdir(parents=True, exist_ok=True)
    modules = changes.pop("modules", ["norm"])
    data = {
        "recipe": "glm-dsa",
        "arch": "sm90",
        "compute_capability": "9.0",
        "cuda": "13.0",
        "torch_arch_list": "9.0a",
        "nvcc_arch": "sm_90a",
        "python": "3.11",
        "site_packages": str(site),
        "packages": {"nvidia-nccl-cu13": "2.30.4", "torch": "2.13.0"},
        "components": {
            "flashinfer": {
                "distribution": "flashinfer-python",
                "version": "0.7.0",
                "commit": None,
                "overrides": None,
                "modules": modules,
            }
        },
        "patches": [],
        "waivers": [],
        "env": {},
        **changes,
    }
    file = tmp_path / "facts.json"
    file.write_text(json.dumps(data), encoding="utf-8")
    monkeypatch.setenv("GRAFT_FACTS", str(file))
    return facts.load()


def found(report: Report) -> dict[str, tuple[str, str]]:
    """check -> (verdict, detail)."""
    listed: Any = report.as_dict()["checks"]
    return {check["id"]: (check["verdict"], check["detail"]) for check in listed}


# Devices


def test_no_gpu_is_red_and_never_skipped(known: Facts) -> None:
    report = Report("gpu-kernels")
    assert devices.judge(known, report, [], "torch sees no CUDA device") == []
    assert found(report) == {"devices": ("fail", "torch sees no CUDA device")}
    assert report.verdict == "fail"


@pytest.mark.parametrize(
    ("nvcc", "capability", "device", "runs"),
    [
        ("sm_90a", "9.0", (9, 0), True),
        ("sm_90a", "9.0", (10, 0), False),
        ("sm_100a", "10.0", (10, 3), False),
        ("sm_80", "8.0", (8, 9), True),
        ("sm_89", "8.9", (8, 0), False),
        ("sm_80", "8.0", (9, 0), False),
    ],
)
def test_code_for_another_chip_is_red(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    nvcc: str,
    capability: str,
    device: tuple[int, int],
    runs: bool,
) -> None:
    known = make(tmp_path, monkeypatch, nvcc_arch=nvcc, compute_capability=capability)
    report = Report("gpu-kernels")
    gpu = Gpu("a GPU", device)
    assert devices.judge(known, report, [gpu], "") == ([gpu] if runs else [])
    assert found(report)["capability"][0] == ("pass" if runs else "fail")


def test_the_tier_without_an_engine_is_red_on_a_host_without_a_gpu(known: Facts, tmp_path: Path) -> None:
    """As it is run in an image: the files themselves, with a torch that sees no device."""
    (tmp_path / "torch.py").write_text(NO_GPU, encoding="utf-8")
    data = json.loads((tmp_path / "facts.json").read_text(encoding="utf-8"))
    data["packages"]["vllm"] = "0.32.0"
    (tmp_path / "facts.json").write_text(json.dumps(data), encoding="utf-8")
    env = {"PYTHONPATH": str(tmp_path), "GRAFT_FACTS": str(tmp_path / "facts.json"), "PATH": "/usr/bin:/bin"}
    argv = [sys.executable, SMOKE / "gpu" / "run.py"]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert [json.loads(line)["test"] for line in lines] == ["gpu-kernels", "gpu-nccl", "gpu-serve"]
    for test, line in zip(gpu_tests(["torch", "vllm"]), lines, strict=True):
        result = judge(test, Ended(1, line, "", 1.0))
        assert (result.tier, result.verdict) == ("gpu", "fail")
        assert "sees no CUDA device" in result.checks[0].detail


def test_the_tier_without_an_engine_needs_the_facts_of_the_image(tmp_path: Path) -> None:
    env = {"GRAFT_FACTS": str(tmp_path / "none.json"), "PATH": "/usr/bin:/bin"}
    argv = [sys.executable, SMOKE / "gpu" / "run.py"]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "GRAFT_FACTS" in done.stderr
    assert "Traceback" not in done.stderr


def test_with_and_without_an_engine_the_same_tests_run() -> None:
    assert {f"gpu-{name}": needed for name, needed in TESTS.items()} == GPU_TESTS
    listed = {test.file for test in gpu_tests(["torch", "vllm"])}
    mains = {f"gpu/{p.name}" for p in (SMOKE / "gpu").glob("*.py") if "def main() -> None" in p.read_text("utf-8")}
    assert listed == mains


# Kernels


def compiled_modules() -> set[str]:
    recipes = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in (SOURCE / "recipes").rglob("*.yaml")]
    parts = [part for recipe in recipes if "components" in recipe for part in recipe["components"].values()]
    return {module for part in parts for module in part.get("modules", [])}


def test_every_module_that_a_recipe_compiles_has_a_case() -> None:
    assert {"norm", "page", "rope"} <= compiled_modules() <= cases.modules()


def test_a_module_without_a_case_is_red(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = Report("gpu-kernels")
    kernels.check(make(tmp_path, monkeypatch, modules=["mla"]), report, ["cuda:0"])
    assert found(report) == {"case:mla": ("fail", "no case: mla is not tested")}


def fake_compare(monkeypatch: pytest.MonkeyPatch, run: Callable[..., tuple[bool, str]]) -> None:
    compare = type(sys)("gpu.compare")
    vars(compare).update(run=run, name_of=lambda case, dtype: f"{case.name}[{dtype}]")
    monkeypatch.setitem(sys.modules, "gpu.compare", compare)
    monkeypatch.setattr("gpu.compare", compare, raising=False)
    case = FakeCase("c", ("half",), lambda t: {})
    monkeypatch.setattr(cases, "load", lambda name: [case])


@dataclass(frozen=True)
class FakeCase:
    name: str
    dtypes: tuple[str, ...]
    reference: Callable[[Any], Any]
    kernel: Callable[[Any], Any] | None = None


def run_cases(
    known: Facts, monkeypatch: pytest.MonkeyPatch, answers: Mapping[str, tuple[bool, str] | Exception]
) -> dict[str, tuple[str, str]]:
    """What the test reports when the kernels answer so, by device."""

    def run(case: Any, dtype: str, device: str) -> tuple[bool, str]:
        answer = answers[device]
        if isinstance(answer, Exception):
            raise answer
        return answer

    fake_compare(monkeypatch, run)
    report = Report("gpu-kernels")
    kernels.check(known, report, list(answers))
    return found(report)


def test_a_kernel_is_tried_on_every_device(known: Facts, monkeypatch: pytest.MonkeyPatch) -> None:
    said = run_cases(known, monkeypatch, {"cuda:0": (True, "close"), "cuda:1": (True, "close")})
    assert said["norm:c[half]"] == ("pass", "cuda:0: close; 2 devices")


@pytest.mark.parametrize("bad", [(False, "far off"), RuntimeError("illegal memory access")])
def test_a_kernel_that_is_wrong_on_one_device_is_red(
    known: Facts, monkeypatch: pytest.MonkeyPatch, bad: tuple[bool, str] | Exception
) -> None:
    verdict, detail = run_cases(known, monkeypatch, {"cuda:0": (True, "close"), "cuda:1": bad})["norm:c[half]"]
    assert verdict == "fail"
    assert detail.startswith("cuda:1: ")


def test_another_kernel_than_the_compiled_one_is_red(known: Facts, monkeypatch: pytest.MonkeyPatch) -> None:
    said = run_cases(known, monkeypatch, {"cuda:0": (True, "close")})
    assert said["mapped:norm"][0] == "fail"
    assert "another kernel ran" in said["mapped:norm"][1]


@pytest.mark.parametrize(
    ("right", "off", "says"),
    [
        (True, False, None),
        (False, False, "c[half] refuses detail"),
        (True, True, "c[half] takes detail"),
    ],
)
def test_a_reference_has_to_agree_with_itself_and_with_nothing_else(
    known: Facts, monkeypatch: pytest.MonkeyPatch, right: bool, off: bool, says: str | None
) -> None:
    def run(case: FakeCase, dtype: str, device: str) -> tuple[bool, str]:
        return (right if case.kernel is case.reference else off), "detail"

    fake_compare(monkeypatch, run)
    report = Report("gpu-ready")
    gpu_ready.check_cases(known, report)
    assert found(report)["reference:norm"] == (
        ("fail", says) if says else ("pass", "1 kernels, 1 with types, on the CPU")
    )


def test_a_module_without_a_case_is_known_before_there_is_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = Report("gpu-ready")
    gpu_ready.check_cases(make(tmp_path, monkeypatch, modules=["mla"]), report)
    assert found(report) == {"cases": ("fail", "no case for: mla")}


# NCCL


def rank(number: int, site: Path, **changes: Any) -> Finished:
    line = {
        "rank": number,
        "wrong": [],
        "mapped": [str(site / "nvidia/nccl/lib/libnccl.so.2")],
        "nccl": [2, 30, 4],
        "seconds": 0.1,
        **changes,
    }
    return Finished(0, f"a library says hello\n{json.dumps(line)}\n", "")


def test_an_exact_sum_by_the_locked_library_is_green(known: Facts) -> None:
    report = Report("gpu-nccl")
    nccl.check(known, report, [rank(0, known.site_packages), rank(1, known.site_packages)])
    assert {name: verdict for name, (verdict, _) in found(report).items()} == dict.fromkeys(
        ("ranks", "all-reduce", "library", "version"), "pass"
    )


@pytest.mark.parametrize(
    ("second", "check", "says"),
    [
        (Finished(1, "", "NCCL error"), "ranks", "rank 1: exit 1: NCCL error"),
        (Finished(None, "", ""), "ranks", "rank 1: no end within the time limit"),
        (Finished(0, "", ""), "ranks", "rank 1"),
        ({"wrong": ["3 of 7 float32 differ"]}, "all-reduce", "rank 1: 3 of 7 float32 differ"),
        ({"mapped": []}, "library", ""),
        ({"mapped": ["/usr/lib/libnccl.so.2"]}, "library", "/usr/lib/libnccl.so.2"),
        ({"nccl": [2, 29, 7]}, "version", "NCCL 2.29.7, 2.30.4, the lock says 2.30.4"),
    ],
)
def test_what_one_rank_does_wrong_is_red(known: Facts, second: Any, check: str, says: str) -> None:
    report = Report("gpu-nccl")
    other = second if isinstance(second, Finished) else rank(1, known.site_packages, **second)
    first = rank(0, known.site_packages)
    # A rank that maps none at all is seen when no other rank does either.
    first = rank(0, known.site_packages, mapped=[]) if second == {"mapped": []} else first
    nccl.check(known, report, [first, other])
    verdict, detail = found(report)[check]
    assert verdict == "fail"
    assert says in detail


# Models


@pytest.mark.parametrize("model", [models.LLAMA, models.DEEPSEEK, models.GLM_DSA], ids=lambda model: model.name)
def test_a_model_is_written_with_a_tokenizer_of_all_bytes(tmp_path: Path, model: models.Model) -> None:
    models.write(model, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    vocabulary = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    assert sorted(vocabulary.values()) == list(range(config["vocab_size"]))
    assert len({*models.byte_letters()}) == 256
    assert (models.byte_letters()[ord("a")], models.byte_letters()[0x20]) == ("a", "Ġ")
    assert model.drafts == ("num_nextn_predict_layers" in config) == ("--speculative-config" in model.arguments)


@pytest.mark.parametrize(
    ("major", "names"),
    [
        (8, ["llama", "deepseek-mtp"]),
        (9, ["llama", "glm-dsa-mtp"]),
        (10, ["llama", "glm-dsa-mtp"]),
        (12, ["llama", "glm-dsa-mtp"]),
    ],
)
def test_sparse_attention_is_served_where_vllm_has_it(major: int, names: list[str]) -> None:
    assert [model.name for model in models.models_for(major)] == names


def test_a_test_of_the_tier_has_time_for_two_servers() -> None:
    assert {test.id: test.seconds for test in gpu_tests(["torch", "vllm"])}["gpu-serve"] > SmokeTest("x", "x").seconds
