"""What an edit must not touch: files of somebody else, a file that changes meanwhile, and half of two components."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from patch_project import FIRST, SERIES, TEST, Project, canonical, git, make, text, write_series

from graft.commands import patch_branch, patch_refresh
from graft.commands.patch_edit import drop, export_branch, import_branch, import_patch, refresh
from graft.errors import BadInput
from graft.patching import swap
from graft.patching.swap import editing

OTHER_FORM = FIRST + b"-- \n2.39.5\n"


def test_a_link_where_edits_are_prepared_is_refused(tmp_path: Path) -> None:
    project = make(tmp_path / "project")
    mine = tmp_path / "elsewhere" / "mine"
    mine.mkdir(parents=True)
    (mine / "file").write_text("mine")
    place = project.paths.patches / ".edit"
    place.symlink_to(mine.parent)
    before = project.state()
    with pytest.raises(BadInput, match="not a folder") as caught:
        drop(project.session, "vllm/second", because="x")
    assert caught.value.where == "patches/.edit"
    assert caught.value.cure is not None
    assert (mine / "file").read_text() == "mine"
    assert project.state() == before
    place.unlink()
    place.write_text("a file")
    with pytest.raises(BadInput, match="not a folder"):
        refresh(project.session, ["vllm/first"])
    assert place.read_text() == "a file"


def test_a_link_in_the_place_is_removed_and_not_followed(tmp_path: Path) -> None:
    project = make(tmp_path / "project")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("mine")
    place = project.paths.patches / ".edit"
    place.mkdir()
    (place / "vllm").symlink_to(tmp_path / "mine")
    drop(project.session, "vllm/second", because="x")
    assert (tmp_path / "mine" / "file").read_text() == "mine"
    assert not place.exists()


def editing_while(module: Any, name: str, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody writes a patch while the verb works in `module.name`."""
    real = getattr(module, name)

    def slow(*given: Any, **more: Any) -> Any:
        done = real(*given, **more)
        project.put("first", b"edited by hand")
        return done

    monkeypatch.setattr(module, name, slow)


def test_a_patch_that_is_edited_while_it_is_refreshed_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = make(tmp_path / "project", {"first": (OTHER_FORM, {})})
    editing_while(patch_refresh, "pristine", project, monkeypatch)
    with pytest.raises(BadInput, match="files changed in it while the edit was made"):
        refresh(project.session, ["vllm/first"])
    assert project.patch("first") == b"edited by hand"


def test_a_patch_that_is_edited_while_a_branch_is_read_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = make(tmp_path / "project")
    export_branch(project.session, "vllm", tmp_path / "branch")
    project.put("first", canonical(text(), text(l7="7")))
    editing_while(patch_branch, "pristine", project, monkeypatch)
    with pytest.raises(BadInput, match="files changed in it while the edit was made"):
        import_branch(project.session, "vllm", tmp_path / "branch")
    assert project.patch("first") == b"edited by hand"


def two_components(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """vllm and torch, each with a patch that gets other bytes."""
    project = make(tmp_path / "project", {"first": (OTHER_FORM, {})})
    write_series(project.paths, "torch", {"first": (OTHER_FORM, {})})
    monkeypatch.setattr(patch_refresh, "refreshed", lambda session, component, ids, merge: {"first": FIRST})
    return project


def test_two_components_are_refreshed_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = two_components(tmp_path, monkeypatch)
    refresh(project.session, ["vllm/first", "torch/first"])
    assert project.patch("first") == FIRST
    assert (project.paths.patches / "torch" / "first.patch").read_bytes() == FIRST


@pytest.mark.parametrize("step", ["_check", "check"])
def test_an_error_in_the_second_component_leaves_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """While it is prepared, and when it was changed by the time of the step."""
    project = two_components(tmp_path, monkeypatch)
    before = project.state()
    owner = swap.Edit if step == "_check" else swap.Prepared
    real = getattr(owner, step)

    def failing(self: Any, *given: Any) -> None:
        if "torch" in {self.folder.name if step == "check" else given[0].name}:
            raise BadInput("the second fails")
        real(self, *given)

    monkeypatch.setattr(owner, step, failing)
    with pytest.raises(BadInput, match="the second fails"):
        refresh(project.session, ["vllm/first", "torch/first"])
    assert project.state() == before


def test_two_folders_are_looked_at_before_the_first_step(tmp_path: Path) -> None:
    project = make(tmp_path / "project")
    write_series(project.paths, "torch", {"first": SERIES["first"]})
    with editing(project.paths, lambda line: None) as edit:
        old = {name: edit.contents(name) for name in ("vllm", "torch")}
        new = {name: {**files, "NOTES": (0o644, b"new")} for name, files in old.items()}
        prepared = [edit.prepare(name, old[name], new[name]) for name in old]
        (project.paths.patches / "torch" / "mine").write_text("mine")
        with pytest.raises(BadInput, match="files changed in it"):
            swap.commit_all(prepared)
    assert not (project.folder / "NOTES").exists()


def test_a_series_that_is_edited_while_a_patch_is_imported_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from graft.commands import patch_import

    project = make(tmp_path / "project")
    clone, test = tmp_path / "clone", tmp_path / "t.py"
    (clone / "vllm").mkdir(parents=True)
    test.write_text(TEST)
    git(clone, "init", "--quiet")
    for content in (text(), text(l30="thirty")):
        (clone / "vllm" / "a.txt").write_bytes(content)
        git(clone, "add", "-A")
        git(clone, "commit", "--quiet", "-m", "Say thirty")
    head = git(clone, "rev-parse", "HEAD")
    editing_while(patch_import, "_check", project, monkeypatch)
    given = {"reason": "r", "until": "u", "test": str(test), "license": "MIT"}
    url = f"https://git.example.org/a/b/commit/{head}"
    with pytest.raises(BadInput, match="files changed in it while the edit was made"):
        import_patch(project.session, url, head=head, component="vllm", clone=clone, record=given)
    assert project.patch("first") == b"edited by hand"
