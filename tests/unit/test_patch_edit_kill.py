"""kill -9 at any line of an edit leaves the old state or the new one, and the next edit cleans up."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from patch_project import FIRST, SECOND, SERIES, TEST, Project, canonical, git, make, session, text

from graft.commands.patch_edit import drop, export_branch, import_branch, import_patch, refresh
from graft.errors import BadInput
from graft.patching import swap
from graft.patching.swap import editing
from graft.patchset import load_patchset
from graft.recipe import load_recipe

#: Deaths for each verb, spread over all lines from the first write on.
DEATHS = 16
Verb = Callable[[Project], None]


def prepared_drop(root: Path) -> tuple[Project, Verb]:
    return make(root), lambda project: drop(project.session, "vllm/second", because="no longer needed")


def prepared_drop_of_the_last(root: Path) -> tuple[Project, Verb]:
    project = make(root, {"first": SERIES["first"]})
    return project, lambda project: drop(project.session, "vllm/first", because="no longer needed")


def prepared_refresh(root: Path) -> tuple[Project, Verb]:
    project = make(root, {"first": (b"Old form\n" + FIRST.partition(b"---\n")[2], {}), "second": (SECOND, {})})
    return project, lambda project: refresh(project.session, ["vllm/first"])


def prepared_import_branch(root: Path) -> tuple[Project, Verb]:
    project = make(root, {"first": (FIRST, {}), "second": (canonical(text(l7="seven"), text(l7="seven", l30="x")), {})})
    clone = root.with_name("exported")
    export_branch(project.session, "vllm", clone)
    git(clone, "rebase", "--quiet", "--onto", "HEAD~2", "HEAD~1")
    git(clone, "cherry-pick", "ORIG_HEAD~1")
    return project, lambda project: import_branch(project.session, "vllm", clone)


def prepared_import(root: Path) -> tuple[Project, Verb]:
    upstream, test = root.with_name("upstream"), root.with_name("t.py")
    (upstream / "vllm").mkdir(parents=True)
    git(upstream, "init", "--quiet")
    for content in (text(), text(l33="thirty-three")):
        (upstream / "vllm" / "a.txt").write_bytes(content)
        git(upstream, "add", "-A")
        git(upstream, "commit", "--quiet", "-m", "A change of upstream")
    test.write_text(TEST)
    head = git(upstream, "rev-parse", "HEAD")
    given = {"reason": "It is needed.", "until": "0.40", "test": str(test), "license": "MIT"}
    url = f"https://git.example.org/vllm/vllm/commit/{head}"
    return make(root), lambda project: import_patch(
        project.session, url, head=head, component="vllm", clone=upstream, record=given
    )


def died_at(line: int, run: Callable[[], None], told: Path | None = None) -> bool:
    """Run it in a child that kills itself at a line, counted from the first write on; whether it came to that."""
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            os.dup2(2, 1)
            count = _count(line)
            run()
            sys.settrace(None)
            if told is not None:
                told.write_text(str(len(count)))
            os._exit(0)
        os._exit(1)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


def _count(line: int) -> list[None]:
    """Counts lines from the first write on, and kills this process at one of them."""
    seen: list[None] = []
    writes = False

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal writes
        code = frame.f_code
        writes = writes or (code.co_filename == swap.__file__ and code.co_name in ("prepare", "replace_file"))
        if writes and event == "line":
            seen.append(None)
            if len(seen) == line:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)
    return seen


def lines_of(run: Callable[[], None], file: Path) -> int:
    """How many lines there are to die at."""
    assert not died_at(0, run, file)
    return int(file.read_text())


def loads(project: Project) -> None:
    """Everything can be loaded, and each recipe's patches are there."""
    recipe = load_recipe(project.paths, project.session.project, "toy")
    if recipe.patches:
        load_patchset(project.folder).select(recipe.patches_of("vllm"))
    elif project.folder.exists():
        load_patchset(project.folder)


def visible(state: dict[str, bytes]) -> dict[str, bytes]:
    """Without what a killed edit was preparing."""
    return {name: content for name, content in state.items() if not name.startswith("patches/.edit/")}


@pytest.mark.parametrize(
    "prepare",
    [prepared_drop, prepared_drop_of_the_last, prepared_refresh, prepared_import_branch, prepared_import],
    ids=lambda prepare: prepare.__name__.removeprefix("prepared_"),
)
def test_a_killed_edit_is_not_seen_or_whole(tmp_path: Path, prepare: Callable[[Path], tuple[Project, Verb]]) -> None:
    project, verb = prepare(tmp_path / "project")
    kept = tmp_path / "kept"
    shutil.copytree(project.root, kept, symlinks=True)
    old = project.state()

    def again() -> Project:
        shutil.rmtree(project.root)
        shutil.copytree(kept, project.root, symlinks=True)
        return project

    verb(project)
    new = project.state()
    assert new != old
    # Between the recipes and the series a drop has a state of its own, and it is a sound one.
    recipe = {name: content for name, content in new.items() if name.startswith("recipes/")}
    between = {**old, **recipe}
    assert visible(new) == new
    total = lines_of(lambda: verb(again()), tmp_path / "lines")
    assert total > 20
    seen = []
    for number in range(1, total, max(total // DEATHS, 1)):
        again()
        assert died_at(number, lambda: verb(project)), number
        state = visible(project.state())
        assert state in (old, between, new), number
        seen.append(state == new)
        loads(project)
        assert not any(name.startswith("patches/.edit") for name in git_sees(project))
        if state != new:
            verb(project)
        else:
            with editing(project.paths, lambda line: None):
                pass
        assert project.state() == new, number
    assert {True, False} == set(seen)


def git_sees(project: Project) -> list[str]:
    """What `git add` would take."""
    git(project.root, "init", "--quiet")
    found = git(project.root, "ls-files", "--others", "--exclude-standard").splitlines()
    shutil.rmtree(project.root / ".git")
    return found


def test_edits_wait_for_each_other(tmp_path: Path) -> None:
    project = make(tmp_path / "project")
    said: list[str] = []
    waits = threading.Event()

    def other() -> None:
        def say(line: str) -> None:
            said.append(line)
            waits.set()

        with editing(project.paths, say):
            said.append("mine")

    thread = threading.Thread(target=other)
    with editing(project.paths, said.append):
        thread.start()
        assert waits.wait(60)
        said.append("still mine")
    thread.join(60)
    assert said == ["another edit of the patches runs; waiting for its end", "still mine", "mine"]


def test_a_lock_dies_with_its_owner(tmp_path: Path) -> None:
    project = make(tmp_path / "project")
    child = os.fork()
    if child == 0:
        with editing(project.paths, lambda line: None):
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    said: list[str] = []
    with editing(project.paths, said.append):
        assert said == []


def test_a_file_changed_meanwhile_is_not_lost(tmp_path: Path) -> None:
    project = make(tmp_path / "project")
    with editing(project.paths, lambda line: None) as edit:
        old = edit.contents("vllm")
        project.put("first", b"edited by hand")
        before = project.state()
        with pytest.raises(BadInput, match="changed in it while"):
            edit.replace("vllm", old, {**old, "first.patch": (0o644, SECOND)})
    assert project.state() == before
    assert project.patch("first") == b"edited by hand"


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOSYS, errno.EXDEV])
def test_a_file_system_that_cannot_exchange_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    project = make(tmp_path / "project")
    before = project.state()
    monkeypatch.setattr(swap, "_renameat2", lambda one, other: code)
    with pytest.raises(BadInput, match="cannot exchange two folders"):
        drop(project.session, "vllm/second", because="x")
    assert project.state() == before


def test_the_exchange_is_the_systems(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
        (folder / "name").write_text(folder.name)
    swap.exchange(one, other)
    assert (one / "name").read_text() == "other"
    assert (other / "name").read_text() == "one"
    with pytest.raises(FileNotFoundError):
        swap.exchange(one, tmp_path / "missing")


def test_a_link_in_a_series_is_refused(tmp_path: Path) -> None:
    project = make(tmp_path / "project")
    (project.folder / "notes").symlink_to("/etc/passwd")
    with pytest.raises(BadInput, match="neither a plain file nor a folder"):
        drop(project.session, "vllm/second", because="x")
    (project.folder / "notes").unlink()
    project.folder.rename(tmp_path / "elsewhere")
    project.folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadInput, match="a link"):
        drop(session(project.paths), "vllm/second", because="x")
