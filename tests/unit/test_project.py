"""build.yaml: the real one loads, and what is refused in one."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

import pytest
from factories import PROJECT, Edit, edited, make_project, write_project

from graft.errors import BadInput
from graft.paths import Paths, find_root
from graft.project import load_project


def test_the_projects_own_build_yaml() -> None:
    project = load_project(Path(__file__).parents[2] / "build.yaml")
    assert project.arch in project.arches
    assert project.bases["debian12"].platform == "x86_64-manylinux_2_36"
    assert project.group_of("Torch") == "torch"
    assert project.group_of("vllm") is None


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda p: p.update(arch="sm91"), "arch: 'sm91' is not in the table"),
        (
            lambda p: p["arches"].update(hopper=dict(p["arches"]["sm90"], devices=["x"])),
            "arches: 'hopper' is not of the form sm90",
        ),
        (
            lambda p: p["arches"].update(sm91=dict(p["arches"]["sm90"], devices=["x"])),
            "arches.sm91: compute capability 9.0 is another",
        ),
        (lambda p: p["arches"]["sm90"].update(capability=9.0), 'YAML reads 9.0 as a number; quote it: "9.0"'),
        (lambda p: p["arches"]["sm90"].update(suffix="f"), "arches.sm90.suffix"),
        (lambda p: p["arches"]["sm90"].update(devices=[]), "arches.sm90.devices"),
        (lambda p: p["arches"]["sm90"].update(cude="1"), "unknown key 'arches.sm90.cude'; did you mean 'cuda'?"),
        (lambda p: p["bases"]["debian12"].update(python=3.11), 'quote it: "3.11"'),
        (lambda p: p["bases"]["debian12"].update(runtime=["gcc; id"]), "bases.debian12.runtime.0"),
        (lambda p: p["bases"]["debian12"]["bootstrap"].update(suite="../x"), "bases.debian12.bootstrap.suite"),
        (lambda p: p["bases"]["debian12"].update(machine="aarch64"), "bases.debian12.machine"),
        (lambda p: p["engine"].update(keep="40"), "engine.keep"),
        (lambda p: p.update(repository="a b"), "repository"),
        (lambda p: p.update(index="ftp://x"), "index: expected an http or https address"),
        (lambda p: p.update(index="https://x\n"), "index: expected an http or https address"),
        (lambda p: p.update(channels=[]), "channels"),
        (lambda p: p.update(channels=["{recipe} x"]), "channels.0"),
        (lambda p: p.update(recipe="a/b"), "recipe"),
        (lambda p: p.update(bulids={}), "unknown key 'bulids'; did you mean 'builds'?"),
        (lambda p: p.pop("engine"), "missing key 'engine'"),
    ],
)
def test_a_wrong_value_is_refused_with_its_place(tmp_path: Path, edit: Edit, says: str) -> None:
    paths = write_project(tmp_path, edited(PROJECT, edit))
    with pytest.raises(BadInput) as caught:
        load_project(paths.build_yaml)
    problem = caught.value
    assert problem.exit_code == 2
    assert says in problem.what
    file, _, line = str(problem.where).rpartition(":")
    assert file == str(paths.build_yaml)
    assert int(line) >= 1


@pytest.mark.parametrize(
    "url",
    [
        "redis://user:hunter2@host",
        "redis://:hunter2@host:6379/0",
        "redis://host/0?password=hunter2",
        "redis://host:70000",
        "redis://host:0",
        "redis://host:6379/x",
        "redis://",
        "http://host:6379",
        "host:6379",
        "redis://ho st",
    ],
)
def test_an_address_of_redis_has_one_form_and_no_password(tmp_path: Path, url: str) -> None:
    paths = write_project(tmp_path, edited(PROJECT, lambda p: p.update(compile_cache={"redis": url})))
    with pytest.raises(BadInput, match=r"compile_cache\.redis: the value is not an address such as") as caught:
        load_project(paths.build_yaml)
    assert caught.value.exit_code == 2
    assert "GRAFT_REDIS_PASSWORD" in caught.value.what
    assert "hunter2" not in f"{caught.value.what} {caught.value.where} {caught.value.cure}"


@pytest.mark.parametrize(
    "url", ["redis://host", "rediss://a.b:65535/15", "redis://127.0.0.1:6379/0", "redis://[::1]:1"]
)
def test_an_address_of_redis(tmp_path: Path, url: str) -> None:
    paths = write_project(tmp_path, edited(PROJECT, lambda p: p.update(compile_cache={"redis": url, "size": "1GB"})))
    found = load_project(paths.build_yaml).compile_cache
    assert (found.redis, found.days, found.size) == (url, 30, "1GB")


def test_a_project_without_recipes_is_refused(tmp_path: Path) -> None:
    paths = write_project(tmp_path)
    paths.recipe("toy").unlink()
    paths.locks.rmdir()
    paths.recipes.rmdir()
    with pytest.raises(BadInput, match="no folder recipes/"):
        load_project(paths.build_yaml)


def test_the_root_is_the_nearest_folder_with_build_yaml(tmp_path: Path) -> None:
    paths = write_project(tmp_path)
    assert find_root(paths.locks).root == tmp_path
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "a" / "build.yaml").touch()
    assert find_root(inner).root == tmp_path / "a"


def test_outside_a_project_is_an_error() -> None:
    with pytest.raises(BadInput) as caught:
        find_root(Path("/proc/self"))
    assert "no build.yaml in /proc/self" in caught.value.what
    assert "--project" in str(caught.value.cure)


def test_state_is_the_only_folder_written_at_run_time(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    for folder in (paths.store, paths.engine, paths.contexts, paths.receipts, paths.logs):
        assert folder.parent == paths.state
    assert paths.state.name == ".graft"
    assert paths.relative(paths.lock("x")) == "recipes/locks/x.lock.yaml"
    assert paths.relative(Path("/elsewhere")) == "/elsewhere"


def test_the_toy_project_is_a_good_one(tmp_path: Path) -> None:
    assert load_project(write_project(tmp_path).build_yaml) == make_project()


@pytest.mark.parametrize(
    "place", ["images/smoke/x.py", "images/stages/x.j2", "patches/vllm/x.patch", "recipes/locks/x"]
)
@pytest.mark.parametrize("kind", ["pipe", "socket", "link"])
def test_what_is_no_file_is_refused_and_not_read(tmp_path: Path, place: str, kind: str) -> None:
    paths = write_project(tmp_path)
    load_project(paths.build_yaml)
    path = paths.root / place
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to("/dev/zero")
    else:
        # By a short name: a socket's may have 107 characters.
        with socket.socket(socket.AF_UNIX) as made, contextlib.chdir(path.parent):
            made.bind(path.name)
    with pytest.raises(BadInput) as caught:
        load_project(paths.build_yaml)
    assert (caught.value.what, caught.value.where) == ("it is no regular file", place)
    assert caught.value.cure
