"""The lock of the host's programs: when it is fresh, what is refused, and that nobody but `make lock` moves it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from factories import PROJECT, Edit, edited, make_project, sha

from graft.apt import DebPin
from graft.commands import programs
from graft.commands.session import Session
from graft.console import Console
from graft.errors import BadInput, FetchFailed, GraftError, LockStale
from graft.paths import Paths
from graft.project import Project, load_project
from graft.store import mark_checked
from graft.toolslock import ToolsLock, load_tools, make_tools_lock, tools_inputs, write_tools

ROOT = Path(__file__).parents[2]


def deb(name: str, version: str = "1.0-1", data: bytes = b"") -> DebPin:
    return DebPin(
        name=name,
        version=version,
        architecture="amd64",
        file=f"pool/main/x/{name}_{version}_amd64.deb",
        size=max(len(data), 1),
        sha256=sha(name + version),
        set="builder",
    )


def locked(project: Project, version: str = "1.0-1") -> ToolsLock:
    engine = {suite: [deb(name, version) for name in names] for suite, names in project.engine.packages.items()}
    return make_tools_lock(project, engine, {"bookworm": [deb("perl"), deb("mmdebstrap")]})


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path)


@pytest.fixture
def session(paths: Paths) -> Session:
    return Session(paths, make_project(), Console(), "toy", "sm90")


def test_what_was_written_is_read(paths: Paths) -> None:
    project = make_project()
    made = locked(project)
    write_tools(paths, made)
    assert load_tools(paths, project) == made
    first = paths.tools_lock.read_bytes()
    write_tools(paths, locked(project))
    assert paths.tools_lock.read_bytes() == first
    assert [pin.name for pin in made.bootstrap["bookworm"]] == ["mmdebstrap", "perl"], "sorted, whatever came first"


def test_the_repositorys_own_is_fresh() -> None:
    found = load_tools(Paths(ROOT), load_project(ROOT / "build.yaml"))
    assert {"trixie/docker.io", "bookworm/runc", "bookworm/mmdebstrap"} <= found.packages.keys()


@pytest.mark.parametrize(
    ("edit", "same"),
    [
        (lambda p: p["engine"]["packages"]["trixie"].append("oras"), False),
        (lambda p: p["bases"]["debian12"]["bootstrap"].update(suite="trixie"), False),
        (lambda p: p["engine"]["packages"]["trixie"].reverse(), True),
        (lambda p: p["engine"].update(keep="1GB"), True),
        (lambda p: p["bases"]["debian12"]["runtime"].append("gawk"), True),
    ],
)
def test_it_is_of_the_build_yaml_that_asked(edit: Edit, same: bool) -> None:
    before, after = make_project(), Project.model_validate(edited(PROJECT, edit))
    assert (tools_inputs(before) == tools_inputs(after)) is same


@pytest.mark.parametrize(
    ("spoil", "kind", "says"),
    [
        (lambda text: text.replace("1.0-1", "1.0-2", 1), BadInput, "edited by hand"),
        (lambda text: text.replace("tools: 1", "tools: 2"), BadInput, "format 2, this Graft reads 1"),
        (lambda text: text.replace("engine:", "engines:"), BadInput, "engines"),
        (lambda text: text[: len(text) // 2], BadInput, "field|digest|missing|YAML"),
        (lambda text: "", BadInput, "empty"),
    ],
)
def test_what_is_not_what_was_written_is_refused(
    paths: Paths, spoil: Callable[[str], str], kind: type[GraftError], says: str
) -> None:
    project = make_project()
    write_tools(paths, locked(project))
    paths.tools_lock.write_text(spoil(paths.tools_lock.read_text()))
    with pytest.raises(kind, match=says) as caught:
        load_tools(paths, project)
    assert "_tools.lock.yaml" in str(caught.value.where)


def test_missing_or_of_another_build_yaml_it_is_stale(paths: Paths) -> None:
    project = make_project()
    with pytest.raises(LockStale, match="not locked") as caught:
        load_tools(paths, project)
    assert caught.value.cure == "make lock"
    write_tools(paths, locked(project))
    other = Project.model_validate(edited(PROJECT, lambda p: p["engine"]["packages"]["trixie"].append("oras")))
    with pytest.raises(LockStale, match="another"):
        load_tools(paths, other)


def test_lock_resolves_once_and_anew_when_asked(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = iter(("1.0-1", "1.0-2", "1.0-2"))
    monkeypatch.setattr(programs, "_resolve", lambda s: locked(s.project, next(versions)))
    with pytest.raises(LockStale):
        programs.lock_tools(session, check=True)
    assert not session.paths.tools_lock.exists()
    assert programs.lock_tools(session)
    assert not programs.lock_tools(session), "a second time nobody is asked"
    assert not programs.lock_tools(session, check=True)
    assert programs.lock_tools(session, anew=True)
    assert not programs.lock_tools(session, anew=True), "the archive has nothing newer"


def test_a_broken_one_is_made_again_and_check_says_so(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "_resolve", lambda s: locked(s.project))
    session.paths.locks.mkdir(parents=True)
    session.paths.tools_lock.write_text("tools: [")
    with pytest.raises(BadInput):
        programs.lock_tools(session, check=True)
    assert programs.lock_tools(session)
    assert load_tools(session.paths, session.project)


def test_offline_nothing_is_resolved(paths: Paths) -> None:
    session = Session(paths, make_project(), Console(), "toy", "sm90", offline=True)
    with pytest.raises(FetchFailed, match="offline"):
        programs.lock_tools(session)


def test_programs_come_from_the_store_and_offline_too(paths: Paths) -> None:
    session = Session(paths, make_project(), Console(), "toy", "sm90", offline=True)
    made = locked(session.project)
    write_tools(paths, made)
    found = programs.engine_programs(session)
    with pytest.raises(FetchFailed, match="not in the store"):
        found.files()
    for pin in (pin for pins in made.engine.values() for pin in pins):
        path = session.store.path(pin)
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x")
        mark_checked(path)
    assert {pin.name for pin in found.files()} == {
        n for names in session.project.engine.packages.values() for n in names
    }
    assert programs.engine_programs(session).identity == found.identity
    write_tools(paths, locked(session.project, "2.0-1"))
    assert programs.engine_programs(session).identity != found.identity
    assert len(programs.wanted_tools(session)) == len(made.packages)
