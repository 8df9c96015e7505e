"""The tier on GPUs: what its containers see, what a host without GPUs makes of it, and what it leaves alone."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import factories
import pytest
from docker.errors import APIError
from gate_engine import CANDIDATE, FakeEngine, FakeTest, gate, report

from graft.errors import GateFailed
from graft.gate import Receipt, find_receipt, gpu_tests
from graft.gate.receipt import folder_of

NO_DRIVER = 'could not select device driver "" with capabilities: [[gpu]]'


def on_gpus(engine: FakeEngine, tmp_path: Path, **changes: Any) -> Receipt:
    engine.tests |= {name: FakeTest(stdout=report(f"gpu-{name}")) for name in ("kernels", "nccl", "serve")}
    tests = gpu_tests(["torch", "vllm"])
    return gate(engine, tmp_path, **{"tests": tests, "tier": "gpu", "parallel": None, **changes})


def test_an_image_without_vllm_is_not_served() -> None:
    assert [test.id for test in gpu_tests(["torch"])] == ["gpu-kernels", "gpu-nccl"]
    assert {test.tier for test in gpu_tests(["torch", "vllm"])} == {"gpu"}


def test_a_container_of_the_tier_sees_all_gpus_in_the_default_runtime_and_no_network(tmp_path: Path) -> None:
    engine = FakeEngine({})
    receipt = on_gpus(engine, tmp_path)
    assert receipt.verdict == "pass"
    assert [made["entrypoint"][-1].rpartition("/graft/smoke/")[2] for made in engine.created] == [
        "gpu/kernels.py",
        "gpu/nccl.py",
        "gpu/serve.py",
    ]
    for made in engine.created:
        host = made["host_config"]
        assert host["device_requests"] == [
            {"Driver": "", "Count": -1, "DeviceIDs": [], "Capabilities": [["gpu"]], "Options": {}}
        ]
        assert "runtime" not in host
        assert host["network_mode"] == "none"
        assert host["init"] is True
        assert host["mem_limit"]
        assert host["pids_limit"]
        assert host["security_opt"] == ["no-new-privileges"]
    assert engine.most_at_once == 1, "the tests share the GPUs"


def test_the_receipt_says_its_tier_and_what_it_cannot_have_seen(tmp_path: Path) -> None:
    gpu = on_gpus(FakeEngine({}), tmp_path)
    cpu = gate(FakeEngine({"core": FakeTest()}), tmp_path)
    assert (gpu.tier, {test.tier for test in gpu.tests}) == ("gpu", {"gpu"})
    assert (cpu.tier, {test.tier for test in cpu.tests}) == ("cpu", {"cpu"})
    assert not any("no GPU was used" in limit for limit in gpu.limits)
    assert any("random" in limit for limit in gpu.limits)


def test_asked_for_and_absent_is_red_with_a_receipt(tmp_path: Path) -> None:
    engine = FakeEngine({})
    engine.refuses = NO_DRIVER
    with pytest.raises(GateFailed, match=r"no tag was moved.*gpu-kernels \(not-run\), gpu-nccl \(not-run\)") as failed:
        on_gpus(engine, tmp_path)
    assert failed.value.exit_code == 7
    assert "--gpus all" in (failed.value.tail or "")
    assert not engine.there, "containers that could not be started are removed"
    written = Receipt.model_validate_json((folder_of(tmp_path, CANDIDATE) / "receipt-failed-gpu.json").read_bytes())
    assert all(NO_DRIVER in test.detail for test in written.tests)
    assert find_receipt(tmp_path, CANDIDATE, "g", "gpu") is None


def test_an_engine_that_starts_no_container_without_gpus_is_no_result(tmp_path: Path) -> None:
    engine = FakeEngine({"core": FakeTest()})
    engine.refuses = "out of disk"
    with pytest.raises(GateFailed, match="the engine failed during the gate") as failed:
        gate(engine, tmp_path)
    assert isinstance(failed.value.__cause__, APIError)


def test_a_red_run_on_gpus_does_not_end_the_receipt_that_tags_are_moved_by(tmp_path: Path) -> None:
    receipt = gate(FakeEngine({"core": FakeTest()}), tmp_path)
    engine = FakeEngine({})
    engine.refuses = NO_DRIVER
    with pytest.raises(GateFailed):
        on_gpus(engine, tmp_path)
    assert find_receipt(tmp_path, CANDIDATE, "g") == receipt
    names = {path.name for path in folder_of(tmp_path, CANDIDATE).iterdir()}
    assert names == {
        "receipt.json",
        "junit.xml",
        "summary.md",
        "receipt-failed-gpu.json",
        "junit-gpu.xml",
        "summary-gpu.md",
    }


def test_a_green_run_on_gpus_is_no_receipt_of_the_gate_and_ends_its_own_red_one(tmp_path: Path) -> None:
    engine = FakeEngine({})
    engine.refuses = NO_DRIVER
    with pytest.raises(GateFailed):
        on_gpus(engine, tmp_path)
    receipt = on_gpus(FakeEngine({}), tmp_path)
    assert find_receipt(tmp_path, CANDIDATE, "g") is None
    assert find_receipt(tmp_path, CANDIDATE, "g", "gpu") == receipt
    assert not (folder_of(tmp_path, CANDIDATE) / "receipt-failed-gpu.json").exists()


def set_smoke(data: factories.Data, file: str, digest: str) -> None:
    data["smoke"][file] = digest


@pytest.mark.parametrize(
    ("file", "ends"), [("gpu/kernels.py", {"cpu", "gpu"}), ("core.py", {"cpu"}), ("lib/report.py", {"cpu", "gpu"})]
)
def test_an_edit_of_a_test_ends_what_its_own_tier_has_shown(file: str, ends: set[str]) -> None:
    before, after = (
        factories.make_plan(sources=functools.partial(set_smoke, file=file, digest=digit * 64)) for digit in "12"
    )
    changed = {"cpu": before.gate != after.gate, "gpu": before.gpu_gate != after.gpu_gate}
    assert {tier for tier, differs in changed.items() if differs} == ends
    assert before.image == after.image
