"""What all smoke tests share: the report line, the facts, the child processes."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest
from lib import child, facts
from lib.report import Report

FACTS = {
    "recipe": "toy",
    "arch": "sm90",
    "compute_capability": "9.0",
    "cuda": "13.0",
    "torch_arch_list": "9.0a",
    "nvcc_arch": "sm_90a",
    "python": "3.11",
    "site_packages": "/opt/venv/lib/python3.11/site-packages",
    "packages": {"torch": "2.13.0"},
    "components": {
        "torch": {"distribution": "torch", "version": "2.13.0", "commit": None, "overrides": None, "modules": []}
    },
    "patches": [{"component": "torch", "id": "x", "test": "patch-tests/torch/test_x.py", "files": {"a.py": "0"}}],
    "waivers": [{"check": "files", "file": "a*", "package": None, "arch": "sm120", "reason": "r", "until": "u"}],
    "env": {},
}


def finish(report: Report) -> int:
    with pytest.raises(SystemExit) as ended:
        report.finish()
    code = ended.value.code
    assert isinstance(code, int)
    return code


def test_the_last_line_is_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report("toy")
    report.check("one", True, "fine")
    report.check("two", False, "known", waived=True)
    report.check("three", True, "fine", waived=True)
    assert finish(report) == 0
    data = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert data["verdict"] == "pass"
    assert [check["verdict"] for check in data["checks"]] == ["pass", "waived", "pass"]


def test_one_failed_check_fails_the_test() -> None:
    report = Report("toy")
    report.check("one", True, "fine")
    report.check("two", False, "not fine")
    assert finish(report) == 1


def test_a_test_without_a_check_fails() -> None:
    assert finish(Report("toy")) == 1


def test_a_check_cannot_be_reported_twice() -> None:
    report = Report("toy")
    report.check("one", False, "bad")
    with pytest.raises(ValueError, match="twice"):
        report.check("one", True, "good")


def test_facts_are_read_from_the_folder_of_the_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "facts.json").write_text(json.dumps(FACTS))
    monkeypatch.setenv("GRAFT_FACTS", str(tmp_path / "facts.json"))
    known = facts.load()
    assert known.root == tmp_path
    assert known.components["torch"].version == "2.13.0"
    assert known.patches[0].files == {"a.py": "0"}


@pytest.mark.parametrize("change", [{"unknown": 1}, {"packages": None}])
def test_facts_of_another_format_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, object]
) -> None:
    data = {**FACTS, **change}
    if change.get("packages", 0) is None:
        del data["packages"]
    (tmp_path / "facts.json").write_text(json.dumps(data))
    monkeypatch.setenv("GRAFT_FACTS", str(tmp_path / "facts.json"))
    with pytest.raises(TypeError):
        facts.load()


def test_a_waiver_of_another_architecture_or_check_is_not_asked_for() -> None:
    book = facts.WaiverBook([facts.Waiver("files", "a*", "Some.Package", None, "r", "u")])
    assert book.find("b", ["some-package"]) is None
    assert book.find("abc", ["other"]) is None
    assert book.unused()
    assert book.find("abc", ["some_package"]) is not None
    assert not book.unused()


def test_a_child_that_hangs_is_ended_with_all_it_started() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    started = time.monotonic()
    done = child.run([sys.executable, "-c", code], seconds=0.5)
    assert done.rc is None
    assert "time limit" in done.why()
    assert time.monotonic() - started < 30


def test_a_childs_end_of_output_says_why() -> None:
    done = child.python("print('start'); raise SystemExit('the cause')", seconds=30)
    assert not done.ok
    assert done.why().endswith("the cause")
