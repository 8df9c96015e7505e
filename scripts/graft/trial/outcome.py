"""What the runs of a patch's test say: one run at a time, then red and green together."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from graft.gate.tests import Ended
from graft.yamlio import Model

State = Literal["red", "green", "error", "skipped"]
TrialVerdict = Literal["red-green", "green-green", "red-red", "green-red", "error", "skipped"]

#: Exit status of images/scripts/try-patch.py when the files are not those that were to be tried.
NO_STATE = 3
DETAIL_CHARACTERS = 600

MEANING: Mapping[TrialVerdict, str] = {
    "red-green": "fails without the patch, passes with it",
    "green-green": "passes without the patch: the test does not prove it",
    "red-red": "fails with the patch too",
    "green-red": "passes without the patch and fails with it",
    "error": "did not fail or pass as a test",
    "skipped": "was skipped",
}


class RunResult(Model):
    """One run of a test file: how many of its tests ended how, and what to show of those that did not pass."""

    state: State
    passed: int
    failed: int
    errors: int
    skipped: int
    seconds: float
    detail: str

    @property
    def counts(self) -> str:
        """`3 passed, 1 failed`, without what is zero."""
        numbers = (
            (self.passed, "passed"),
            (self.failed, "failed"),
            (self.errors, "errors"),
            (self.skipped, "skipped"),
        )
        return ", ".join(f"{number} {name}" for number, name in numbers if number) or "no result"


def error_run(detail: str, seconds: float = 0.0) -> RunResult:
    """A run that gave no result."""
    short = detail[-DETAIL_CHARACTERS:]
    return RunResult(state="error", passed=0, failed=0, errors=0, skipped=0, seconds=round(seconds, 1), detail=short)


def read_run(ended: Ended) -> RunResult:
    """The result of one run. Only a complete report on the last line that agrees with the exit status counts."""
    if ended.exit_code is None:
        return error_run(f"no end after {ended.limit:g} s", ended.seconds)
    tests = _report(ended.stdout)
    if ended.exit_code == NO_STATE or tests is None:
        memory = ", out of memory" if ended.out_of_memory else ""
        return error_run(f"exit {ended.exit_code}{memory}: {_last_lines(ended.stderr)}", ended.seconds)
    by = {verdict: [t for t in tests if t["verdict"] == verdict] for verdict in ("pass", "fail", "error", "skip")}
    if (ended.exit_code == 0) != (len(by["pass"]) == len(tests)) or not tests:
        return error_run(f"exit {ended.exit_code} does not fit the report", ended.seconds)
    notable = [*by["error"], *by["skip"], *by["fail"]]
    return RunResult(
        state=_state(by),
        passed=len(by["pass"]),
        failed=len(by["fail"]),
        errors=len(by["error"]),
        skipped=len(by["skip"]),
        seconds=round(ended.seconds, 1),
        detail="; ".join(f"{t['name']}: {_last_lines(t['detail'], 1)}" for t in notable)[:DETAIL_CHARACTERS],
    )


def verdict_of(red: RunResult, green: RunResult) -> TrialVerdict:
    """red: the run without the patch; green: the run with it."""
    states = (red.state, green.state)
    if "error" in states:
        return "error"
    if "skipped" in states:
        return "skipped"
    names: Mapping[tuple[State, State], TrialVerdict] = {
        ("red", "green"): "red-green",
        ("green", "green"): "green-green",
        ("red", "red"): "red-red",
        ("green", "red"): "green-red",
    }
    return names[states]


def explain(red: RunResult, green: RunResult) -> str:
    """One sentence on a verdict: what it means, and the run that decided it."""
    verdict = verdict_of(red, green)
    if verdict == "red-green":
        return MEANING[verdict]
    if verdict in ("error", "skipped"):
        name, run = ("without the patch", red) if red.state == verdict else ("with the patch", green)
        hint = ""
        if verdict == "error" and run is red and green.state == "green":
            hint = " (what the patch brings must be missed by an assertion, not by an import at the top of the test)"
        return f"the test {MEANING[verdict]}, {name}: {run.detail}{hint}"
    shown = green if verdict in ("red-red", "green-red") else red
    return f"{MEANING[verdict]}; {shown.detail}" if shown.detail else MEANING[verdict]


def _state(by: Mapping[str, Sequence[object]]) -> State:
    """A test that was skipped did not run, so the file proves nothing."""
    if by["error"]:
        return "error"
    if by["skip"]:
        return "skipped"
    return "red" if by["fail"] else "green"


def _report(stdout: str) -> list[dict[str, str]] | None:
    """The report of images/smoke/lib/patchtest.py, the last line; None when it is not there or not whole."""
    last = next((line for line in reversed(stdout.splitlines()) if line.strip()), "")
    try:
        data: Any = json.loads(last)
        tests = data["tests"]
        good = all(
            isinstance(t["name"], str) and isinstance(t["detail"], str) and t["verdict"] in _VERDICTS for t in tests
        )
    except (ValueError, KeyError, TypeError):
        return None
    return tests if good else None


_VERDICTS = ("pass", "fail", "error", "skip")


def _last_lines(text: str, count: int = 3) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " / ".join(lines[-count:]) or "no message"
