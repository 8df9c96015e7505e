"""The compile cache of other machines around a build: what the build is told, and faults that do not end it."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from pathlib import Path
from typing import Any, cast

import pytest
from factories import make_plan

from graft.commands.session import Session, open_session
from graft.commands.sharing import Sharing, sharing
from graft.compilecache import Brought, Remote, Unusable, compilers_of, namespace_of
from graft.compilecache.remote import Given
from graft.console import Console
from graft.paths import Paths
from graft.plan import Plan

COMPONENTS = ("flashinfer", "lmcache", "nccl")


class FakeRemote:
    """Has entries for the components it is given, and fails at the one that it is told."""

    def __init__(self, counts: dict[str, int], fails_at: str | None = None) -> None:
        self.counts, self.fails_at = counts, fails_at
        self.asked: list[str] = []

    def bring(self, namespace: str, folder: Path, limit: int, brought: Brought) -> None:
        component = namespace.split(":")[3]
        self.asked.append(f"bring {component}")
        folder.mkdir(parents=True)
        if component == self.fails_at:
            raise Unusable("it cannot be reached", "see that it runs")
        brought.count = self.counts.get(component, 0)

    def give(self, namespace: str, folder: Path, days: int, anew: Collection[str]) -> Given:
        component = namespace.split(":")[3]
        self.asked.append(f"give {component}")
        if component == self.fails_at:
            raise Unusable("it is full", "more maxmemory")
        return Given(2, 200)


@pytest.fixture
def session(tmp_path: Path) -> Session:
    made = open_session(Paths(Path(__file__).parents[2]), Console(), recipe="glm-dsa", arch="sm90")
    return dataclasses.replace(made, paths=Paths(tmp_path))


@pytest.fixture
def planned() -> Plan:
    return make_plan()


def shared(session: Session, planned: Plan, remote: FakeRemote) -> Sharing:
    return Sharing(session, planned, cast(Remote, remote))


def test_the_build_is_told_of_what_was_brought(
    session: Session, planned: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    remote = FakeRemote({"lmcache": 4})
    cache = shared(session, planned, remote)
    cache.bring(COMPONENTS, tmp_path)
    assert cache.components == {"flashinfer": False, "lmcache": True, "nccl": False}
    (tmp_path / "out/.ccache/nccl").mkdir(parents=True)
    cache.give(COMPONENTS, tmp_path / "out")
    assert remote.asked[3:] == ["give nccl"], "the others had nothing new"
    said = capsys.readouterr().err
    assert "lmcache: 4 entries of the shared compile cache" in said
    assert "nccl: 2 new entries for the shared compile cache, 200 B" in said


@pytest.mark.parametrize(("counts", "left"), [({}, None), ({"flashinfer": 1}, {"flashinfer": True, "lmcache": False})])
def test_a_fault_is_said_once_and_ends_nothing(
    session: Session,
    planned: Plan,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    counts: dict[str, int],
    left: dict[str, bool] | None,
) -> None:
    """What came before it is used; nothing more is asked for."""
    remote = FakeRemote(counts, "lmcache")
    cache = shared(session, planned, remote)
    cache.bring(COMPONENTS, tmp_path)
    for name in COMPONENTS:
        (tmp_path / "out/.ccache" / name).mkdir(parents=True)
    cache.give(COMPONENTS, tmp_path / "out")
    assert remote.asked == ["bring flashinfer", "bring lmcache"]
    assert cache.components == left
    said = capsys.readouterr().err
    assert said.count("warning") == 1
    assert "compile_cache.redis: it cannot be reached: what is not here is compiled here (what to do: see" in said


def test_a_fault_while_giving_is_said_once(
    session: Session, planned: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    remote = FakeRemote({})
    cache = shared(session, planned, remote)
    cache.bring(COMPONENTS, tmp_path)
    remote.fails_at = "flashinfer"
    for name in COMPONENTS:
        (tmp_path / "out/.ccache" / name).mkdir(parents=True)
    cache.give(COMPONENTS, tmp_path / "out")
    cache.give(COMPONENTS, tmp_path / "out")
    assert remote.asked[3:] == ["give flashinfer"]
    said = capsys.readouterr().err
    assert said.count("warning") == 1
    assert "it is full: what was compiled is not shared (what to do: more maxmemory)" in said


@pytest.mark.parametrize(("url", "offline"), [(None, False), ("redis://127.0.0.1:1", True)])
def test_nobody_is_asked_without_an_address_or_offline(
    session: Session, planned: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str], url: Any, offline: bool
) -> None:
    config = session.project.compile_cache.model_copy(update={"redis": url})
    project = session.project.model_copy(update={"compile_cache": config})
    cache = sharing(dataclasses.replace(session, project=project, offline=offline), planned)
    cache.bring(COMPONENTS, tmp_path)
    cache.give(COMPONENTS, tmp_path)
    assert cache.components is None
    assert capsys.readouterr().err == ""


def test_other_compilers_and_architectures_have_other_names(planned: Plan) -> None:
    assert namespace_of(planned, "flashinfer") == f"graft:ccache:1:flashinfer:sm90:{compilers_of(planned)[:12]}"
    base = planned.lock.base
    pins = [*base.packages, base.packages[0].model_copy(update={"name": "g++-12", "sha256": "1" * 64})]
    newer = [*base.packages, base.packages[0].model_copy(update={"name": "g++-12", "sha256": "2" * 64})]
    unrelated = [*pins, base.packages[0].model_copy(update={"name": "curl", "sha256": "3" * 64})]

    def of(packages: list[Any]) -> str:
        changed = base.model_copy(update={"packages": tuple(packages)})
        lock = planned.lock.model_copy(update={"base": changed})
        return compilers_of(dataclasses.replace(planned, lock=lock))

    assert of(pins) == of(unrelated)
    assert len({compilers_of(planned), of(pins), of(newer)}) == 3
