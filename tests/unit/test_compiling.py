"""The compilers of a build: shares, one more try, and what is kept of them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from factories import make_plan

from graft import proc
from graft.budget import GIB, Machine
from graft.build import Measured, measured
from graft.build.log import failure
from graft.commands import compiling
from graft.commands.session import Session, open_session
from graft.console import Console
from graft.durations import Durations
from graft.errors import BuildFailed, OutOfMemory
from graft.paths import Paths
from graft.plan import Plan

LOG = """#8 [build-flashinfer 2/2] RUN modules
#9 [build-lmcache 1/1] RUN --mount=type=cache build-python
#8 0.5 graft-measured: {"seconds": 100.5, "jobs": 2, "peak_gb": 1.83, "hits": 3, "misses": 11, "uncached": 0}
#9 7.0 graft-measured: {"seconds": 6.5, "jobs": 1, "peak_gb": 0.4}
#8 DONE 101.0s
#7 1.0 graft-measured: {"seconds": 1, "jobs": 1, "peak_gb": 1}
"""


@pytest.fixture
def session(tmp_path: Path) -> Session:
    root = Path(__file__).parents[2]
    made = open_session(Paths(root), Console(), recipe="glm-dsa", arch="sm90")
    return dataclasses.replace(made, paths=Paths(tmp_path))


@pytest.fixture
def planned() -> Plan:
    return make_plan()


def test_what_each_build_says_is_read_from_the_log(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(LOG)
    found = measured(tmp_path / "log")
    assert found == {
        "flashinfer": Measured(100.5, 2, 1.83, 3, 11, 0),
        "lmcache": Measured(6.5, 1, 0.4),
    }
    assert str(found["flashinfer"]) == (
        "100 s with 2 jobs, largest process 1.8 GiB, 3 of 14 objects from the compile cache"
    )
    assert str(found["lmcache"]) == "6 s with 1 job, largest process 0.4 GiB"


def test_what_was_measured_bounds_the_next_build(session: Session, planned: Plan) -> None:
    [only] = planned.builds
    machine = Machine(16, 24 * GIB)
    assert compiling.jobs_of(session, planned, is_local=True, machine=machine) == {only.name: 6}
    compiling.note(session, planned, {only.name: Measured(10, 2, 1.6)})
    assert compiling.jobs_of(session, planned, is_local=True, machine=machine) == {only.name: 12}
    limited = dataclasses.replace(session, jobs=3)
    assert compiling.jobs_of(limited, planned, is_local=True, machine=machine) == {only.name: 3}


def test_an_engine_elsewhere_looks_itself(session: Session, planned: Plan) -> None:
    assert compiling.jobs_of(session, planned, is_local=False) == {}
    asked = dataclasses.replace(session, jobs=7)
    assert compiling.jobs_of(asked, planned, is_local=False) == {planned.builds[0].name: 7}


def test_an_engine_elsewhere_builds_all_in_one_go(session: Session, planned: Plan) -> None:
    names = [b.name for b in planned.builds]
    assert compiling.turns_of(session, planned, names, is_local=False) == [(tuple(names), {})]


def test_several_builds_in_one_log_count_their_steps_anew(tmp_path: Path) -> None:
    line = '#7 1.0 graft-measured: {{"seconds": {}, "jobs": 1, "peak_gb": 0.5}}'
    calls = [f"#7 [build-{name} 1/1] RUN\n{line.format(seconds)}" for name, seconds in (("a", 1.5), ("b", 2.5))]
    (tmp_path / "log").write_text("\n".join(calls))
    assert {name: took.seconds for name, took in measured(tmp_path / "log").items()} == {"a": 1.5, "b": 2.5}


def test_facts_are_of_the_same_key_alone(session: Session, planned: Plan) -> None:
    [only] = planned.builds
    assert compiling.compiled_facts(session, planned) == []
    compiling.note(session, planned, {only.name: Measured(10, 2, 1.6, 3, 4, 0)})
    [facts] = compiling.compiled_facts(session, planned)
    assert (facts["component"], facts["key"], facts["hits"]) == (only.name, only.keyed.key, 3)
    other = make_plan(recipe=lambda data: data["components"]["flashinfer"].update(modules=["rope"]))
    assert compiling.compiled_facts(session, other) == []


@pytest.mark.parametrize(
    "facts",
    [
        "{",
        "[" * 100_000,
        {"jobs": "2"},
        {"jobs": 2.5},
        {"jobs": None},
        {"seconds": None},
        {"peak_gb": float("inf")},
        {"hits": -1},
        {"hits": True},
        {"more": 1},
    ],
    ids=lambda facts: str(facts)[:20],
)
def test_facts_that_no_receipt_can_hold_are_none(session: Session, planned: Plan, facts: str | dict[str, Any]) -> None:
    [only] = planned.builds
    file = session.paths.state / "compiled.json"
    took = {only.name: Measured(10, 2, 1.6)}
    compiling.note(session, planned, took)
    [good] = json.loads(file.read_text()).values()
    file.write_text(facts if isinstance(facts, str) else json.dumps({only.keyed.key: good | facts}))
    assert compiling.compiled_facts(session, planned) == []
    compiling.note(session, planned, took)
    assert len(compiling.compiled_facts(session, planned)) == 1


def test_facts_that_cannot_be_kept_are_no_error(session: Session, planned: Plan) -> None:
    [only] = planned.builds
    (session.paths.state / "compiled.json").mkdir(parents=True)
    compiling.note(session, planned, {only.name: Measured(10, 2, 1.6)})
    assert compiling.compiled_facts(session, planned) == []


class Killed:
    """A build whose compilers are killed while there are more of them than `fits`."""

    def __init__(self, fits: int) -> None:
        self.fits = fits
        self.tried: list[Mapping[str, int]] = []

    def __call__(self, *, jobs: Mapping[str, int]) -> str:
        self.tried.append(jobs)
        if jobs["a"] > self.fits:
            raise OutOfMemory("killed", "a", jobs["a"])
        return "sha256:x"


def test_memory_that_ran_out_is_tried_once_more_with_fewer(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    killed = Killed(4)
    assert compiling.once_more(session, killed, {"a": 8, "b": 2}) == "sha256:x"
    assert killed.tried == [{"a": 8, "b": 2}, {"a": 4, "b": 2}]
    assert "a ran out of memory with 8 jobs: once more with 4" in capsys.readouterr().err


@pytest.mark.parametrize(("fits", "first", "tries"), [(1, 8, 2), (0, 1, 1)])
def test_only_once_and_not_with_one_job(session: Session, fits: int, first: int, tries: int) -> None:
    killed = Killed(fits)
    with pytest.raises(OutOfMemory):
        compiling.once_more(session, killed, {"a": first})
    assert len(killed.tried) == tries


@pytest.mark.parametrize(
    ("output", "jobs"),
    [
        (
            "#9 [build-flashinfer 2/2] RUN x\n"
            "#9 8.1 build-flashinfer-aot: it ran out of memory with 6 jobs (fewer JOBS need less): Killed\n"
            "#9 ERROR: process did not complete successfully: exit code: 1\n",
            6,
        ),
        ("#9 [build-flashinfer 2/2] RUN x\n#9 ERROR: process did not complete successfully: exit code: 137\n", 4),
    ],
)
def test_a_kill_for_memory_is_recognised(tmp_path: Path, output: str, jobs: int) -> None:
    failed = failure(proc.Completed((), 1, "", output), "runtime", tmp_path, {"flashinfer": 4})
    assert isinstance(failed, OutOfMemory)
    assert (failed.component, failed.jobs, failed.exit_code) == ("flashinfer", jobs, 6)


def test_a_step_that_is_no_component_s_is_no_matter_of_jobs(tmp_path: Path) -> None:
    output = "#9 [packages 2/2] RUN x\n#9 ERROR: process did not complete successfully: exit code: 137\n"
    failed = failure(proc.Completed((), 1, "", output), "runtime", tmp_path, {})
    assert not isinstance(failed, OutOfMemory)


def test_a_disk_that_is_too_small_is_said_before(
    session: Session, planned: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.paths.engine.mkdir(parents=True)
    wheels = sum(layer.size for layer in planned.layers)
    free = type("Usage", (), {"free": 3 * wheels})
    monkeypatch.setattr(compiling.shutil, "disk_usage", lambda _: free)
    compiling.check_disk(session, planned)
    free.free = wheels
    with pytest.raises(BuildFailed, match="the image needs about"):
        compiling.check_disk(session, planned)


def test_the_largest_of_the_last_runs(tmp_path: Path) -> None:
    known = Durations(tmp_path / "peaks.json")
    assert known.most("a") is None
    for gb in (1.25, 3.5, 2.0):
        known.note({"a": gb})
    assert known.most("a") == 3.5
