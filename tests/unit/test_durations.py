"""Rough durations from past runs: what is measured, and what a plan says with it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from factories import make_plan
from hypothesis import given
from hypothesis import strategies as st

from graft.build import stage_seconds
from graft.commands.estimate import (
    build_durations,
    build_steps,
    changed_inputs,
    component_step,
    durations,
    estimate,
    gate_step,
)
from graft.commands.session import last, last_file, open_session
from graft.console import Console
from graft.durations import Durations, shown
from graft.paths import Paths

ROOT = Path(__file__).parents[2]
LOG = """#1 [internal] load build definition
#1 DONE 0.0s
#7 [foundation 1/4] RUN --network=none bash make-venv.sh
#7 DONE 2.5s
#8 [build-flashinfer 1/2] RUN wheel
#8 DONE 20.0s
#9 [build-flashinfer 2/2] RUN modules
#9 0.5 building
#9 DONE 100.5s
#10 [runtime 3/3] COPY x
#10 CACHED
"""


def test_seconds_of_stages_that_ran(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(LOG)
    assert stage_seconds(tmp_path / "log") == {"foundation": 2.5, "build-flashinfer": 120.5}


def test_the_median_of_the_last_runs(tmp_path: Path) -> None:
    known = Durations(tmp_path / "d" / "durations.json")
    assert known.usual("gate") is None
    for seconds in (1000, 1, 2, 3, 4, 5):
        known.note({"gate": seconds})
    assert known.usual("gate") == 3
    assert known.total(["gate", "other"]) == (3, ["other"])


@pytest.mark.parametrize(
    "damage",
    ["", "[]", "[" * 100_000, '{"gate": 3}', '{"gate": ["x", true, null]}', "\x00"]
    + [f'{{"gate": [{n}]}}' for n in ("1e999", "-Infinity", "NaN", "-1", "9" * 400)],
    ids=lambda damage: damage[:20],
)
def test_a_damaged_file_is_as_good_as_none(tmp_path: Path, damage: str) -> None:
    file = tmp_path / "durations.json"
    file.write_text(damage)
    known = Durations(file)
    assert known.usual("gate") is None
    known.note({"gate": 7})
    assert known.usual("gate") == 7


def test_what_cannot_be_kept_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "durations.json").mkdir()
    known = Durations(tmp_path / "durations.json")
    known.note({"gate": 7})
    assert known.usual("gate") is None


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0 s"), (59, "59 s"), (150, "2 min"), (7200, "2.0 h")])
def test_as_rough_as_they_are(seconds: float, text: str) -> None:
    assert shown(seconds) == text


def test_what_a_build_takes_follows_from_what_changed() -> None:
    planned = make_plan()
    inputs = dict(planned.image.inputs)
    assert build_steps(planned, inputs) == []
    everything = build_steps(planned, None)
    assert everything == [*(f"component {b.name} {planned.arch.name}" for b in planned.builds), "assemble with layers"]
    name = next(name for name in inputs if name.startswith("component "))
    assert build_steps(planned, {**inputs, name: "other"}) == [f"{name} {planned.arch.name}", "assemble"]
    overlay = next(name for name in inputs if name.startswith("overlay "))
    assert build_steps(planned, {**inputs, overlay: "other"}) == ["assemble"]


@given(st.data())
def test_every_input_that_differs_is_seen(data: st.DataObject) -> None:
    planned = make_plan()
    inputs = dict(planned.image.inputs)
    other = data.draw(st.sets(st.sampled_from(sorted(inputs))))
    assert changed_inputs(planned, {name: "x" if name in other else value for name, value in inputs.items()}) == other


def test_a_finished_build_is_measured_by_stage() -> None:
    planned = make_plan()
    name = planned.builds[0].name
    taken = build_durations(planned, None, {f"build-{name}": 100.0, f"source-{name}": 5.0, "packages": 30.0}, 150.0)
    assert taken == {f"component {name} {planned.arch.name}": 105.0, "assemble with layers": 45.0}
    assert build_durations(planned, None, {"overlay-vllm": 0.5}, 3.0) == {"assemble": 3.0}


def test_components_that_take_turns_last_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = make_plan()
    [only] = planned.builds
    other = dataclasses.replace(only, name="other")
    planned = dataclasses.replace(planned, builds=(only, other))
    (tmp_path / "build.yaml").write_bytes((ROOT / "build.yaml").read_bytes())
    (tmp_path / "recipes").mkdir()
    session = open_session(Paths(tmp_path), Console(), recipe="r", arch="sm90")
    steps = {component_step(name, planned): 100.0 for name in (only.name, "other")}
    durations(session).note({**steps, "assemble with layers": 10.0, gate_step(planned): 5.0})
    monkeypatch.setattr(
        "graft.commands.estimate.changed_inputs", lambda *_: {f"component {only.name}", "component other"}
    )
    durations(session).note({"assemble": 10.0})
    assert estimate(session, planned, None, 0)[0] == 115.0
    assert estimate(session, planned, None, 0, groups=[(only.name, "other")])[0] == 115.0
    assert estimate(session, planned, None, 0, groups=[("other",), (only.name,)])[0] == 215.0
    # What the store has takes no turn.
    assert estimate(session, planned, None, 0, ["other"], [(only.name,)])[0] == 115.0


@pytest.mark.parametrize("damage", ["", "[1]", "[" * 100_000, "\x00"], ids=lambda damage: damage[:20])
def test_a_damaged_note_of_the_last_image_is_as_good_as_none(tmp_path: Path, damage: str) -> None:
    session = open_session(Paths(ROOT), Console(), recipe="glm-dsa", arch="sm90")
    session = dataclasses.replace(session, paths=Paths(tmp_path))
    file = last_file(session)
    file.parent.mkdir(parents=True)
    file.write_text(damage)
    assert last(session) is None
