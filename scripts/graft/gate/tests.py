"""Which smoke tests run, and how the end of one is judged."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from graft.gate.receipt import Check, TestResult, Tier, Verdict
from graft.recipe import smoke_file

# On two busy cores, with no bytecode in the image, the patch tests needed five minutes.
TEST_SECONDS = 900.0
# Two servers, each compiling its graphs anew.
GPU_SECONDS = 1200.0
TAIL_LINES = 30

#: The tests of the GPU tier, in images/smoke/gpu/: id -> the distribution that an image has to hold for it. run.py
#: there has the same table, because it runs without Graft.
GPU_TESTS: Mapping[str, str | None] = {"gpu-kernels": None, "gpu-nccl": "torch", "gpu-serve": "vllm"}


@dataclass(frozen=True)
class SmokeTest:
    """One file of images/smoke. id: as the recipe writes it; seconds: its time limit.

    judged: how its end is judged, where that is not by its own report.
    """

    id: str
    file: str
    seconds: float = TEST_SECONDS
    tier: Tier = "cpu"
    judged: Callable[[SmokeTest, Ended], TestResult] | None = None


@dataclass(frozen=True)
class Ended:
    """How a test's container ended. exit_code None: a time limit ended it, and `limit` is that limit in seconds."""

    exit_code: int | None
    stdout: str
    stderr: str
    seconds: float
    limit: float = 0.0
    out_of_memory: bool = False

    def tail(self) -> str:
        """The end of what it printed, errors last."""
        return "\n".join([*self.stdout.splitlines(), *self.stderr.splitlines()][-TAIL_LINES:])


def smoke_tests(folder: Path, names: Sequence[str]) -> list[SmokeTest]:
    """The tests that a recipe names, in its order. Raises BadInput for one that does not exist."""
    return [SmokeTest(name, smoke_file(folder, name).name) for name in names]


def gpu_tests(distributions: Collection[str]) -> list[SmokeTest]:
    """The tests of the GPU tier for an image that holds these distributions."""
    return [
        SmokeTest(name, f"gpu/{name.removeprefix('gpu-')}.py", GPU_SECONDS, "gpu")
        for name, needed in GPU_TESTS.items()
        if needed is None or needed in distributions
    ]


def judge(test: SmokeTest, ended: Ended) -> TestResult:
    """The verdict of one test that ran. Only a single, complete, consistent report on the last line can pass."""
    if test.judged is not None:
        return test.judged(test, ended)
    verdict, detail, checks = _judge(test, ended)
    return TestResult(
        id=test.id, tier=test.tier, verdict=verdict, seconds=round(ended.seconds, 1), detail=detail, checks=checks
    )


def not_run(test: SmokeTest, why: str) -> TestResult:
    return TestResult(id=test.id, tier=test.tier, verdict="not-run", seconds=0.0, detail=why, checks=())


def forced_end(ended: Ended) -> tuple[Verdict, str] | None:
    """Verdict and reason of a container that did not end by itself; None when it did."""
    if ended.exit_code is None:
        return "hang", f"no end after {ended.limit:g} s"
    if ended.exit_code > 128:
        memory = ", out of memory" if ended.out_of_memory else ""
        return "crash", f"ended by signal {ended.exit_code - 128}{memory}"
    return None


def _judge(test: SmokeTest, ended: Ended) -> tuple[Verdict, str, tuple[Check, ...]]:
    forced = forced_end(ended)
    if forced is not None or ended.exit_code is None:
        return (*(forced or ("hang", "")), ())
    reports = list(_reports(ended.stdout))
    if not reports and ended.exit_code != 0:
        return "crash", f"exit {ended.exit_code} without a report", ()
    if len(reports) != 1:
        return "no-report", f"exit {ended.exit_code} with {len(reports)} reports, wanted one", ()
    if reports[0] != _last_line(ended.stdout):
        return "no-report", "the report is not the last line", ()
    return _read_report(test, ended.exit_code, json.loads(reports[0]))


def _reports(stdout: str) -> Iterable[str]:
    """The lines that say they are a report."""
    for line in stdout.splitlines():
        if not line.startswith("{"):
            continue
        try:
            data = json.loads(line)
        except ValueError:
            continue
        if isinstance(data, dict) and {"test", "verdict"} <= data.keys():
            yield line


def _last_line(stdout: str) -> str:
    return next((line for line in reversed(stdout.splitlines()) if line.strip()), "")


def _read_report(test: SmokeTest, exit_code: int, data: dict[str, Any]) -> tuple[Verdict, str, tuple[Check, ...]]:
    """A report's verdict, when its parts agree with each other and with the exit status."""
    try:
        checks = tuple(Check.model_validate(check) for check in data["checks"])
    except (KeyError, TypeError, ValidationError):
        return "no-report", "the report's checks cannot be read", ()
    failed = [check.id for check in checks if check.verdict == "fail"]
    expected = "fail" if failed or not checks else "pass"
    if str(data["test"]).replace("_", "-") != test.id:
        return "no-report", f"the report is of another test: {data['test']}", checks
    if not checks:
        return "no-report", "the report holds no check", ()
    if data["verdict"] != expected or exit_code != (0 if expected == "pass" else 1):
        return "no-report", f"says {data['verdict']} and exit {exit_code}, its checks say {expected}", checks
    return ("pass", "", checks) if expected == "pass" else ("fail", ", ".join(failed), checks)
