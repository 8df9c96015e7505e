"""`graft diff` and `graft size` on recipes, locks and git revisions; without an engine."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from patch_project import git

from graft.commands.inventories import diff, size
from graft.commands.session import Session, open_session
from graft.console import Console
from graft.errors import BadInput, LockStale
from graft.lock import lock_text
from graft.paths import Paths
from graft.yamlio import read

SOURCE = Path(__file__).parents[2]
LOCK = "recipes/locks/glm-dsa.lock.yaml"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the project in a git repository of its own, with one commit."""
    made = tmp_path / "project"
    for folder in ("recipes", "patches", "images"):
        shutil.copytree(SOURCE / folder, made / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(SOURCE / "build.yaml", made)
    git(made, "init", "--quiet", "--initial-branch=main")
    git(made, "add", ".")
    git(made, "commit", "--quiet", "--message=first")
    monkeypatch.chdir(made)
    return made


def session(root: Path) -> Session:
    return open_session(Paths(root), Console(json_mode=True), recipe="glm-dsa", arch="sm90", offline=True)


def said(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = json.loads(capsys.readouterr().out)
    return found


def edit(root: Path, name: str, old: str, new: str) -> None:
    text = (root / name).read_text(encoding="utf-8")
    assert old in text
    (root / name).write_text(text.replace(old, new), encoding="utf-8")


def test_a_recipe_against_what_was_committed(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(root, "recipes/glm-dsa.yaml", 'VLLM_NO_USAGE_STATS: "1"', 'VLLM_NO_USAGE_STATS: "0"')
    diff(session(root), "glm-dsa@main", "glm-dsa", report="table", every=False)
    found = said(capsys)
    assert found["before"]["name"] == "glm-dsa@main"
    sections = found["sections"]
    assert [title for title, section in sections.items() if section["changes"]] == ["facts", "environment"]  # type: ignore[index]
    change = sections["environment"]["changes"][0]  # type: ignore[index]
    assert (change["name"], change["before"], change["after"]) == ("VLLM_NO_USAGE_STATS", "1", "0")


def test_a_recipe_against_its_own_lock_has_no_other_package(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    diff(session(root), LOCK, "glm-dsa", report="table", every=False)
    changed = said(capsys)["sections"]["Python packages"]["changes"]
    assert [change["name"] for change in changed] == ["graft-flashinfer-aot"], "no lock names what is compiled"  # type: ignore[index,union-attr]


def test_another_lock_file(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = dict(read(root / LOCK).data)
    del body["digest"]
    vllm = next(entry for entry in body["packages"] if entry["name"] == "vllm")
    vllm["version"], vllm["size"] = "0.33.0", vllm["size"] + 1000
    other = root / "other.lock.yaml"
    other.write_text(lock_text(body), encoding="utf-8")
    diff(session(root), LOCK, "other.lock.yaml", report="table", every=False)
    section = said(capsys)["sections"]["Python packages"]
    (change,) = section["changes"]  # type: ignore[misc]
    assert (change["name"], change["after"], change["grown"]) == ("vllm", "0.33.0", 1000)  # type: ignore[index]


def test_the_release_notes_have_the_titles_of_patches(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = open_session(Paths(root), Console(), recipe="glm-dsa", arch="sm90")
    diff(plain, "recipes/locks/glm-dsa.lock.yaml", "glm-dsa", report="md", every=False)
    assert capsys.readouterr().out.startswith("## recipes/locks/glm-dsa.lock.yaml → glm-dsa\n")


def test_the_size_of_a_recipe_is_that_of_its_downloads(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    size(session(root), None, every=False)
    found = said(capsys)
    packages = [p for p in read(root / LOCK).data["packages"] if p["name"] == "vllm"]
    assert found["sizes_are"] == "download"
    assert found["components"]["vllm"] == packages[0]["size"]
    assert found["bytes"] == sum(v for group in ("python", "debian") for v in found[group].values() if v)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("what", "error", "says"),
    [
        ("none.lock.yaml", BadInput, "there is no such lock"),
        ("glm-dsa@nowhere", BadInput, "git knows no revision nowhere"),
        ("glm-dsa@--output=x", BadInput, "is not a git revision"),
        ("glm-dsa@", BadInput, "is not a git revision"),
        # Said without an engine, which this session does not have.
        ("", BadInput, "nothing is named"),
        ("glm-dsb", BadInput, "'glm-dsb' is no recipe, lock or image"),
        ("glm-dsb@main", BadInput, "is no recipe, lock or image"),
        ("recipes/glm-dsa.yaml", BadInput, "is no recipe, lock or image"),
        ("a b", BadInput, "is no recipe, lock or image"),
        ("recipes/locks/_tools.lock.yaml", BadInput, "this is no lock of a recipe"),
        ("patches/vllm/series.yaml", BadInput, "is no recipe, lock or image"),
    ],
)
def test_what_is_not_there_is_refused(root: Path, what: str, error: type[BadInput], says: str) -> None:
    with pytest.raises(error) as problem:
        diff(session(root), what, "glm-dsa", report="table", every=False)
    assert says in problem.value.what
    # Before A is looked at, which may take an engine.
    if "no recipe" in says or not what:
        with pytest.raises(error) as other:
            diff(session(root), "graft:nothing", what, report="table", every=False)
        assert (problem.value.where, other.value.where) == ("A", "B")
        if what == "glm-dsb":
            assert problem.value.cure == "did you mean glm-dsa?"


@pytest.mark.parametrize("version", [1, 99])
def test_a_lock_of_another_format_is_not_taken_for_an_edited_one(root: Path, version: int) -> None:
    text = (root / LOCK).read_text(encoding="utf-8")
    (root / "other.lock.yaml").write_text(re.sub(r"(?m)^lock: \d+$", f"lock: {version}", text), encoding="utf-8")
    with pytest.raises(BadInput, match=f"the lock has format {version}, this Graft reads"):
        diff(session(root), "other.lock.yaml", "glm-dsa", report="table", every=False)


def test_a_lock_that_was_edited_is_refused(root: Path) -> None:
    shutil.copy(root / LOCK, root / "other.lock.yaml")
    edit(root, "other.lock.yaml", "name: aiohttp", "name: aiohttq")
    with pytest.raises(BadInput, match="edited by hand"):
        diff(session(root), "other.lock.yaml", "glm-dsa", report="table", every=False)


def test_a_revision_whose_lock_is_stale_says_which_and_where(root: Path) -> None:
    edit(root, "recipes/glm-dsa.yaml", 'cuda: "13.0"', 'cuda: "13.1"')
    git(root, "commit", "--quiet", "--all", "--message=stale")
    with pytest.raises(LockStale) as problem:
        diff(session(root), "glm-dsa@HEAD", "glm-dsa@HEAD~1", report="table", every=False)
    assert problem.value.where == f"glm-dsa@HEAD: {LOCK}"
    assert "the Graft of HEAD" in str(problem.value.cure)
