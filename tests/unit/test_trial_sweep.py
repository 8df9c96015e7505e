"""Containers of killed runs go also when every result is known; images and patches that are not there; Ctrl-C."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from docker import DockerClient
from docker.errors import DockerException, ImageNotFound, NotFound
from patch_project import Project, make

from graft import engine
from graft.commands import patch_try
from graft.console import Console
from graft.engine import probe
from graft.errors import BadInput, Interrupted
from graft.gate.containers import OWNER_LABEL, owner
from graft.trial.containers import sweep, trials
from graft.trial.reference import find_base


class FakeApi:
    """Containers by id, each with its owner; no images."""

    def __init__(self, **owners: str) -> None:
        self.owners = owners
        self.closed = False

    def containers(self, *, all: bool, filters: dict[str, str]) -> list[dict[str, Any]]:
        del all, filters
        return [{"Id": name, "Labels": {OWNER_LABEL: of}} for name, of in self.owners.items()]

    def remove_container(self, container: str, *, force: bool, v: bool) -> None:
        del force, v
        del self.owners[container]

    def inspect_container(self, container: str) -> dict[str, Any]:
        if container not in self.owners:
            raise NotFound("gone")
        return {}


def client_of(api: FakeApi) -> DockerClient:
    def get(name: str) -> None:
        raise ImageNotFound(name)

    def close() -> None:
        api.closed = True

    return cast(DockerClient, SimpleNamespace(api=api, images=SimpleNamespace(get=get), close=close))


def dead() -> str:
    """This process at another time."""
    return owner().rpartition("-")[0] + "-1"


def test_only_the_containers_of_dead_owners_go(capsys: pytest.CaptureFixture[str]) -> None:
    api = FakeApi(left=dead(), mine=owner())
    sweep(lambda: client_of(api), Console())
    assert list(api.owners) == ["mine"]
    assert api.closed
    assert "removed 1 containers" in capsys.readouterr().err


def test_an_engine_that_fails_then_is_only_said(capsys: pytest.CaptureFixture[str]) -> None:
    def connect() -> DockerClient:
        raise DockerException("no answer")

    sweep(connect, Console())
    assert "containers may be left" in capsys.readouterr().err


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make(tmp_path / "project")


Known = Callable[[bool], list[str]]


@pytest.fixture
def run_test(project: Project, monkeypatch: pytest.MonkeyPatch) -> Known:
    """`patch test` of a project with one trial whose result is known, or not: which of run and sweep it calls."""
    trial = SimpleNamespace(name="vllm/first", inputs=None)
    chosen = (SimpleNamespace(component="vllm"), SimpleNamespace(id="first"))
    row = cast(patch_try.Row, "a row")

    def run(is_known: bool) -> list[str]:
        called: list[str] = []

        def tried(*given: Any) -> dict[str, patch_try.Row]:
            called.append("run")
            return {"vllm/first": row}

        for name, made in {
            "plan_without_patches": lambda session: None,
            "_chosen": lambda session, planned, refs, every: [chosen],
            "read_tools": lambda scripts, smoke: None,
            "_trials": lambda session, planned, chosen, tools: ({}, [trial]),
            "kept": lambda folder, inputs: "a result" if is_known else None,
            "_row": lambda result, known: row,
            "_run": tried,
            "_sweep": lambda session: called.append("sweep"),
            "_say": lambda session, planned, rows: called.append(f"say {len(rows)}"),
        }.items():
            monkeypatch.setattr(patch_try, name, made)
        patch_try.test(project.session, ["vllm/first"], every=False, rerun=False)
        return called

    return run


def test_what_a_killed_run_left_goes_also_when_every_result_is_known(run_test: Known) -> None:
    assert run_test(True) == ["sweep", "say 1"]
    # A run does it itself.
    assert run_test(False) == ["run", "say 1"]


@pytest.mark.parametrize(
    ("mode", "system", "embedded", "swept"),
    [
        ("auto", True, True, "system"),
        ("auto", False, True, "embedded"),
        ("auto", False, False, None),
        ("system", False, True, None),
        ("embedded", True, True, "embedded"),
        ("embedded", True, False, None),
    ],
)
def test_no_engine_is_started_to_clean_up(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    mode: engine.Mode,
    system: bool,
    embedded: bool,
    swept: str | None,
) -> None:
    apis = {name: FakeApi(left=dead()) for name in ("system", "embedded")}

    def found(name: str) -> Any:
        return SimpleNamespace(client=lambda: client_of(apis[name]))

    def of_the_system(config: Path) -> Any:
        if not system:
            raise probe.Unsuitable("none")
        return found("system")

    def started(*given: Any, **more: Any) -> Any:
        raise AssertionError("an engine was started")

    monkeypatch.setattr(probe, "system_engine", of_the_system)
    monkeypatch.setattr(engine, "find", lambda paths: found("embedded") if embedded else None)
    monkeypatch.setattr(engine, "ensure", started)
    patch_try._sweep(replace(project.session, mode=mode))
    assert [name for name, api in apis.items() if not api.owners] == ([swept] if swept else [])


# Messages


def refused(call: Callable[[], object], match: str) -> BadInput:
    with pytest.raises(BadInput, match=match) as caught:
        call()
    assert caught.value.cure
    return caught.value


def chosen(project: Project, refs: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from graft.recipe import load_recipe

    recipe = load_recipe(project.paths, project.session.project, "toy")
    planned = cast(Any, SimpleNamespace(recipe=recipe, arch=SimpleNamespace(name="sm90")))
    monkeypatch.setattr(patch_try, "plan_without_patches", lambda session: planned)
    patch_try.test(project.session, refs, every=False, rerun=False)


def test_a_component_without_patches_is_said_in_the_same_words(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused(lambda: chosen(project, ["torch/x"], monkeypatch), "^torch has no patches$")
    refused(lambda: patch_try.onto(project.session, "image", "torch", ["x"], tag=None), "^torch has no patches$")


@pytest.mark.parametrize("ref", ["", "vllm", "vllm/", "/first", "vllm/first/x", "../first"])
def test_what_names_no_patch(project: Project, monkeypatch: pytest.MonkeyPatch, ref: str) -> None:
    problem = refused(lambda: chosen(project, [ref], monkeypatch), "does not name a patch")
    assert problem.where == "arguments"


def test_a_patch_of_another_component(project: Project) -> None:
    refused(lambda: patch_try.onto(project.session, "image", "vllm", ["torch/x"], tag=None), "not a patch of vllm")


@pytest.mark.parametrize("image", ["sha256:" + "a" * 64, "a" * 64, "a" * 12])
def test_an_id_that_is_not_there_is_not_to_be_pulled(image: str) -> None:
    problem = refused(lambda: find_base(client_of(FakeApi()), image, Console(), offline=False), "no image")
    assert "docker.io" not in str(problem.cure)


def test_ctrl_c_says_how_to_go_on() -> None:
    with pytest.raises(Interrupted) as caught, trials(client_of(FakeApi()), Console()):
        raise KeyboardInterrupt
    assert "the same command" in str(caught.value.cure)
