"""The gate's verdicts, its receipt and its containers, with an engine that only pretends."""

from __future__ import annotations

import os
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest
import requests
from gate_engine import CANDIDATE, FACTS, SMOKE, FakeEngine, FakeTest, gate, report

from graft.errors import BadInput, GateFailed, Interrupted
from graft.gate import Receipt, SmokeTest, find_receipt, smoke_tests
from graft.gate.containers import LABEL, OWNER_LABEL, is_dead, owner
from graft.gate.forms import junit
from graft.gate.receipt import FAILED, PASSED, folder_of
from graft.gate.tests import Ended, judge


def ended(exit_code: int | None = 0, stdout: str = "") -> Ended:
    return Ended(exit_code, stdout, "", 1.0, limit=1.0)


@pytest.mark.parametrize(
    ("how", "verdict"),
    [
        (ended(0, f"noise\n{report()}\n\n"), "pass"),
        (ended(0, report("core", "pass", ("a", "pass"), ("b", "waived"))), "pass"),
        (ended(1, report("core", "fail", ("a", "pass"), ("b", "fail"))), "fail"),
        (ended(None, report()), "hang"),
        (ended(0, ""), "no-report"),
        (ended(0, "all is well"), "no-report"),
        (ended(0, "{not json"), "no-report"),
        (ended(0, f"{report()}\n{report()}"), "no-report"),
        (ended(1, f"{report('core', 'fail')}\n{report()}"), "no-report"),
        (ended(0, f"{report()}\nmore output"), "no-report"),
        (ended(0, report("files")), "no-report"),
        (ended(0, '{"test": "core", "verdict": "pass", "checks": []}'), "no-report"),
        (ended(0, '{"test": "core", "verdict": "pass", "checks": [{"id": "a", "verdict": "fine"}]}'), "no-report"),
        (ended(0, '{"test": "core", "verdict": "pass"}'), "no-report"),
        (ended(0, report("core", "pass", ("a", "fail"))), "no-report"),
        (ended(0, report("core", "fail")), "no-report"),
        (ended(1, report()), "no-report"),
        (ended(1, "Traceback"), "crash"),
        (ended(3, ""), "crash"),
        (ended(139, report()), "crash"),
        (ended(137, ""), "crash"),
    ],
)
def test_only_one_complete_and_consistent_report_passes(how: Ended, verdict: str) -> None:
    assert judge(SmokeTest("core", "core.py"), how).verdict == verdict


def test_a_file_name_stands_for_the_id_of_the_recipe() -> None:
    assert judge(SmokeTest("cuda-code", "cuda_code.py"), ended(0, report("cuda_code"))).verdict == "pass"


def test_smoke_tests_are_found_by_the_names_of_the_recipe(tmp_path: Path) -> None:
    (tmp_path / "cuda_code.py").touch()
    assert [(test.id, test.file) for test in smoke_tests(tmp_path, ["cuda-code"])] == [("cuda-code", "cuda_code.py")]
    with pytest.raises(BadInput, match="no smoke test 'core'") as failed:
        smoke_tests(tmp_path, ["core"])
    assert failed.value.cure == "there is: cuda-code"


def test_a_green_gate_leaves_a_receipt_and_no_container(tmp_path: Path) -> None:
    engine = FakeEngine({"core": FakeTest(polls=2), "cuda-code": FakeTest(), "files": FakeTest()})
    receipt = gate(engine, tmp_path)
    assert receipt.verdict == "pass"
    assert [test.id for test in receipt.tests] == ["core", "cuda-code", "files"]
    assert not engine.there
    assert engine.most_at_once == 2
    assert find_receipt(tmp_path, CANDIDATE, "g") == receipt
    assert find_receipt(tmp_path, CANDIDATE, "other tests") is None
    assert find_receipt(tmp_path, SMOKE, "g") is None


def test_a_container_is_bounded_and_sees_no_network_gpu_or_proxy(tmp_path: Path) -> None:
    engine = FakeEngine({"core": FakeTest()})
    gate(engine, tmp_path)
    [made] = engine.created
    assert made["image"] == SMOKE
    assert made["use_config_proxy"] is False
    assert made["labels"][LABEL] in made["name"]
    assert "environment" not in made
    host = made["host_config"]
    assert host["network_mode"] == "none"
    assert host["init"] is True
    assert host["runtime"] == "runc"
    assert host["mem_limit"]
    assert host["pids_limit"]
    assert "device_requests" not in host


def test_a_test_that_hangs_is_killed_and_removed(tmp_path: Path) -> None:
    engine = FakeEngine({"core": FakeTest(polls=10**9), "files": FakeTest()})
    tests = [SmokeTest("core", "core.py", 0.3), SmokeTest("files", "files.py")]
    with pytest.raises(GateFailed, match=r"core \(hang\)"):
        gate(engine, tmp_path, tests=tests)
    assert not engine.there


def test_what_the_time_does_not_suffice_for_is_a_failure(tmp_path: Path) -> None:
    engine = FakeEngine({"core": FakeTest(polls=10**9), "files": FakeTest()})
    with pytest.raises(GateFailed, match=r"core \(hang\), files \(not-run\)"):
        gate(engine, tmp_path, parallel=1, total_seconds=0.3)
    assert not engine.there


def test_no_test_at_all_is_red(tmp_path: Path) -> None:
    with pytest.raises(GateFailed, match="no test ran"):
        gate(FakeEngine({}), tmp_path)


def test_a_red_gate_says_which_candidate_and_how_to_look_inside(tmp_path: Path) -> None:
    said = report("core", "fail", ("version:torch", "fail"))
    with pytest.raises(GateFailed) as failed:
        gate(FakeEngine({"core": FakeTest(1, said), "files": FakeTest()}), tmp_path)
    assert CANDIDATE in (failed.value.where or "")
    assert f"{FACTS.look_inside} {CANDIDATE}" in (failed.value.cure or "")
    assert "what it said on stderr" in (failed.value.tail or "")
    folder = folder_of(tmp_path, CANDIDATE)
    assert Receipt.model_validate_json((folder / FAILED).read_bytes()).verdict == "fail"
    assert not (folder / PASSED).exists()
    assert (folder / "junit.xml").exists()


def test_a_red_run_ends_an_earlier_passing_receipt(tmp_path: Path) -> None:
    gate(FakeEngine({"core": FakeTest()}), tmp_path)
    with pytest.raises(GateFailed):
        gate(FakeEngine({"core": FakeTest(1, "Traceback")}), tmp_path)
    assert find_receipt(tmp_path, CANDIDATE, "g") is None


@pytest.mark.parametrize("damage", ["", "{}", "no json"])
def test_a_damaged_receipt_is_none(tmp_path: Path, damage: str) -> None:
    gate(FakeEngine({"core": FakeTest()}), tmp_path)
    (folder_of(tmp_path, CANDIDATE) / PASSED).write_text(damage)
    assert find_receipt(tmp_path, CANDIDATE, "g") is None


def test_a_receipt_with_a_red_test_is_not_a_passing_one(tmp_path: Path) -> None:
    gate(FakeEngine({"core": FakeTest()}), tmp_path)
    place = folder_of(tmp_path, CANDIDATE) / PASSED
    place.write_text(
        place.read_text().replace('"tier": "cpu",\n   "verdict": "pass"', '"tier": "cpu",\n   "verdict": "hang"')
    )
    assert '"hang"' in place.read_text()
    assert find_receipt(tmp_path, CANDIDATE, "g") is None


def test_an_interrupt_leaves_no_container(tmp_path: Path) -> None:
    engine = FakeEngine({"core": FakeTest(polls=10**9), "files": FakeTest(polls=10**9)})

    def interrupt() -> None:
        engine.on_inspect = lambda: None
        raise KeyboardInterrupt

    engine.on_inspect = interrupt
    with pytest.raises(Interrupted):
        gate(engine, tmp_path)
    assert len(engine.created) == 2
    assert not engine.there
    assert not list(tmp_path.iterdir())


def test_an_engine_that_dies_is_a_failed_gate(tmp_path: Path) -> None:
    engine = FakeEngine({"core": FakeTest(polls=10**9)})

    def die() -> None:
        raise requests.ConnectionError("gone")

    engine.on_inspect = die
    with pytest.raises(GateFailed, match="the engine failed"):
        gate(engine, tmp_path)


def test_the_smoke_image_must_be_made_from_the_candidate(tmp_path: Path) -> None:
    engine = FakeEngine({"core": FakeTest()})
    engine.attrs[SMOKE]["RootFS"]["Layers"] = ["1", "other", "3"]
    with pytest.raises(GateFailed, match="not made from the candidate"):
        gate(engine, tmp_path)
    engine.attrs[SMOKE]["RootFS"]["Layers"] = ["1", "2"]
    engine.attrs[SMOKE]["Config"]["Env"] = ["A=1", "HELP=1"]
    with pytest.raises(GateFailed, match="another Env"):
        gate(engine, tmp_path)
    assert not engine.created


def test_containers_of_a_dead_run_are_removed_and_those_of_a_live_one_are_not(tmp_path: Path) -> None:
    engine = FakeEngine({"core": FakeTest()})
    machine = owner().rsplit("-", 2)[0]
    owners = {"dead": f"{machine}-{os.getpid()}-1", "alive": owner(), "elsewhere": "0-0-1-1"}
    for name, value in owners.items():
        engine.there[name] = {"labels": {OWNER_LABEL: value}, "test": FakeTest(), "name": name, "killed": False}
    gate(engine, tmp_path)
    assert sorted(engine.there) == ["alive", "elsewhere"]
    assert [is_dead(value) for value in owners.values()] == [True, False, False]


def test_junit_has_a_case_for_each_check_and_for_a_test_that_gave_none(tmp_path: Path) -> None:
    said = report("core", "fail", ("good", "pass"), ("bad\x00", "fail"), ("odd", "waived"))
    with pytest.raises(GateFailed):
        gate(FakeEngine({"core": FakeTest(1, said), "files": FakeTest(139, "")}), tmp_path)
    root = xml.fromstring((folder_of(tmp_path, CANDIDATE) / "junit.xml").read_text())
    core, files = root.findall("testsuite")
    assert [case.get("name") for case in core] == ["good", "bad?", "odd"]
    assert (core.get("tests"), core.get("failures"), core.get("skipped")) == ("3", "1", "1")
    assert (files.get("tests"), files.get("errors")) == ("1", "1")


def test_the_receipt_names_no_host_and_states_its_limits(tmp_path: Path) -> None:
    receipt = gate(FakeEngine({"core": FakeTest()}), tmp_path)
    text = receipt.model_dump_json() + junit(receipt)
    assert os.uname().nodename not in text
    assert any("no GPU" in limit for limit in receipt.limits)
