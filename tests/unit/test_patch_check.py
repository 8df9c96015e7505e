"""`graft patch check` and `graft patch status` on a small project: what they say, and what they exit with."""

from __future__ import annotations

import json
from pathlib import Path

import patch_project
import pytest
from patch_project import FILES, FIRST, SECOND, VERSION, Data, Project, canonical, git, text

from graft.cli import main
from graft.lock import Lock, load_lock, plain, write_lock
from graft.patching import lock_component
from graft.patchset import load_patchset

CODE = b"""class Model:
    one = 1
    two = 2

    def load(self, weights):
        names = sorted(weights)
        kept = {}
        for name in names:
            kept[name] = 1
        weights.clear()
        return kept
"""
FIXED = CODE.replace(b"        kept = {}\n", b"        kept = self.__dict__.setdefault('kept', {})\n")
SOURCE = {**FILES, "vllm/m.py": CODE}
FIX = canonical({"vllm/m.py": CODE}, {"vllm/m.py": FIXED})
GUARD = {"ends": {"version": "0.40", "gone": [{"file": "vllm/a.txt", "text": "line 30 and no more"}]}}
GUARDED = text(l30="line 30 and no more")


def locked(project: Project) -> Project:
    """The same with its patches in the lock."""
    paths = project.paths
    old = load_lock(paths, "toy")
    pin = next(p for p in old.packages if p.name == "vllm")
    found = load_patchset(project.folder)
    ids = [patch.id for patch in found.patches]
    entry = lock_component(found, ids, project.session.store.path(pin))
    data = plain(old)
    data["patches"] = {"vllm": [entry.model_dump(mode="json")]}
    write_lock(paths, Lock.model_validate({**data, "digest": "0" * 64}))
    return project


def run(project: Project, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `graft patch ...`."""
    with pytest.raises(SystemExit) as ended:
        main(["patch", *words, "--project", str(project.root), "--recipe", "toy", "--arch", "sm90"])
    code = ended.value.code
    assert isinstance(code, int)
    said = capsys.readouterr()
    return code, said.out, said.err


def folder(tmp_path: Path, files: dict[str, bytes]) -> str:
    top = tmp_path / "other"
    for name, data in {**SOURCE, **files}.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_bytes(data)
    return str(top)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return locked(patch_project.make(tmp_path / "p", {"first": (FIRST, {}), "fix": (FIX, {})}, files=SOURCE))


def checked(project: Project, capsys: pytest.CaptureFixture[str], against: str, *more: str) -> tuple[int, Data]:
    code, out, _ = run(project, capsys, "check", "vllm", "--against", against, "--json", *more)
    return code, json.loads(out)


def verdicts(data: Data) -> dict[str, str]:
    return {patch["patch"]: patch["verdict"] for patch in data["patches"]}


# check


def test_a_folder_that_changed_elsewhere_can_be_built(
    project: Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = project.state()
    code, data = checked(project, capsys, folder(tmp_path, {"vllm/a.txt": b"above\n" + text()}))
    assert code == 0
    assert verdicts(data) == {"vllm/first": "offset", "vllm/fix": "exact"}
    assert data["buildable"] is True
    assert [hunk["offset"] for hunk in data["patches"][0]["hunks"]] == [1]
    assert project.state() == before


@pytest.mark.parametrize(
    ("files", "patch", "verdict", "says"),
    [
        ({"vllm/m.py": CODE.replace(b"kept = {}", b"kept = dict()")}, "vllm/fix", "conflict", "anew"),
        ({"vllm/m.py": FIXED.replace(b"kept = self", b"# Why.\n        kept = self")}, "vllm/fix", "merged", "drop"),
        ({"vllm/m.py": CODE.replace(b"kept[name] = 1", b"kept[name] = 2")}, "vllm/fix", "merge-clean", "--merge"),
        ({"vllm/a.txt": text() + text()}, "vllm/first", "ambiguous", "-U10"),
    ],
)  # fmt: skip
def test_what_cannot_be_built_exits_with_5_and_says_what_to_do(
    project: Project,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    files: dict[str, bytes],
    patch: str,
    verdict: str,
    says: str,
) -> None:
    code, data = checked(project, capsys, folder(tmp_path, files))
    found = next(p for p in data["patches"] if p["patch"] == patch)
    assert (code, found["verdict"], found["buildable"]) == (5, verdict, False)
    assert says in found["cure"]


def test_a_changed_function_around_an_exact_patch_is_said(
    project: Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = CODE.replace(b"        return kept\n", b"        return dict(kept)\n")
    code, data = checked(project, capsys, folder(tmp_path, {"vllm/m.py": other}))
    (hunk,) = data["patches"][1]["hunks"]
    assert (code, hunk["verdict"], hunk["changed"]) == (0, "exact", True)
    _, out, _ = run(project, capsys, "check", "vllm", "--against", folder(tmp_path, {"vllm/m.py": other}))
    assert "in Model.load, whose code changed" in out


def test_an_end_that_the_files_prove_is_reached_whatever_the_version(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {**SOURCE, "vllm/a.txt": GUARDED}
    guarded = canonical(GUARDED, GUARDED.replace(b"line 7\n", b"seven\n"))
    project = locked(patch_project.make(tmp_path / "p", {"first": (guarded, GUARD)}, files=files))
    _, data = checked(project, capsys, folder(tmp_path, {"vllm/a.txt": GUARDED}))
    assert data["patches"][0]["end_reached"] is False
    _, data = checked(project, capsys, folder(tmp_path, {"vllm/a.txt": text()}))
    assert data["patches"][0]["end_reached"] is True
    assert "no longer holds" in data["patches"][0]["end"]


def clone_with(tmp_path: Path, *contents: bytes) -> tuple[Path, list[str]]:
    """A clone with a commit for each content of vllm/a.txt."""
    clone = tmp_path / "clone"
    (clone / "vllm").mkdir(parents=True)
    git(clone, "init", "--quiet")
    commits = []
    for content in contents:
        for name, data in {**SOURCE, "vllm/a.txt": content}.items():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            (clone / name).write_bytes(data)
        git(clone, "add", "--all")
        git(clone, "commit", "--quiet", "--message", "x")
        commits.append(git(clone, "rev-parse", "HEAD"))
    return clone, commits


def test_a_commit_of_a_clone(project: Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clone, commits = clone_with(tmp_path, text(), text(l7="other"))
    assert checked(project, capsys, commits[0], "--from", str(clone))[0] == 0
    code, data = checked(project, capsys, commits[1], "--from", str(clone))
    assert (code, verdicts(data)["vllm/first"]) == (5, "conflict")
    assert checked(project, capsys, "f" * 40, "--from", str(clone))[1]["exit_code"] == 2


def test_the_history_of_a_clone_proves_an_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clone, commits = clone_with(tmp_path, text(), text(l30="a"), text(l30="b"))
    ends = {"ends": {"commit": commits[1]}}
    project = locked(patch_project.make(tmp_path / "p", {"first": (FIRST, ends)}))
    reached = [
        checked(project, capsys, commit, "--from", str(clone))[1]["patches"][0]["end_reached"] for commit in commits
    ]
    assert reached == [False, True, True]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["vllm", "--against", "main"], 2, "no version and no folder"),
        (["vllm", "--against", "a" * 40], 2, "needs the clone"),
        (["vllm", "--against", "abc1234", "--from", "."], 2, "no commit id"),
        (["torch", "--against", "1.0"], 2, "has no patches"),
        (["../vllm", "--against", "1.0"], 2, "not the name of a component"),
        (["vllm", "--against", "9.9", "--offline"], 4, "not at hand"),
        (["vllm"], 2, "--against"),
    ],
)
def test_bad_input(
    project: Project, capsys: pytest.CaptureFixture[str], words: list[str], code: int, says: str
) -> None:
    found, out, err = run(project, capsys, "check", *words)
    assert (found, out) == (code, "")
    assert says in err.replace("\n", " ")


def test_the_pinned_version_needs_no_network(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    code, data = checked(project, capsys, VERSION, "--offline")
    assert (code, set(verdicts(data).values())) == (0, {"exact"})


def test_a_range_that_does_not_hold_cannot_be_built(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = locked(patch_project.make(tmp_path / "p", {"first": (FIRST, {"when": {"version": "<0.32"}})}))
    code, data = checked(project, capsys, VERSION)
    assert (code, data["patches"][0]["verdict"]) == (5, "exact")
    assert "<0.32" in data["patches"][0]["when"]
    assert "widen" in data["patches"][0]["cure"]


def test_an_undeclared_dependency_is_a_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    near = canonical(text(l7="seven"), text(l7="seven", l9="nine"))
    project = locked(patch_project.make(tmp_path / "p", {"first": (FIRST, {}), "near": (near, {})}))
    (note,) = checked(project, capsys, VERSION)[1]["notes"]
    assert note == "first and near both change vllm/a.txt: the order of the series decides"
    _, data = checked(project, capsys, VERSION, "--commute")
    assert any("cannot be swapped" in note for note in data["notes"])


def test_reports_for_people_and_for_tools(project: Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = folder(tmp_path, {"vllm/m.py": CODE.replace(b"kept = {}", b"kept = dict()")})
    code, out, _ = run(project, capsys, "check", "vllm", "--against", other, "--report", "md")
    assert code == 5
    assert out.startswith("### Patches of vllm: 0.32.0 → other")
    assert "| `vllm/fix` | **conflict** | 1 conflict |" in out
    code, out, _ = run(project, capsys, "check", "vllm", "--against", other, "--sarif")
    assert code == 5
    (result,) = json.loads(out)["runs"][0]["results"]
    assert (result["ruleId"], result["level"]) == ("conflict", "error")
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "patches/vllm/fix.patch"
    line = (project.folder / "fix.patch").read_text().splitlines()[place["region"]["startLine"] - 1]
    assert line.startswith("@@ ")


# status


def statuses(project: Project, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Data]:
    code, out, _ = run(project, capsys, "status", "--json", "--offline", *words)
    assert code == 0
    return {row["patch"]: row for row in json.loads(out)["patches"]}


def test_status_of_a_fresh_lock(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    rows = statuses(project, capsys)
    assert {(r["verdict"], r["source"], r["lock"], r["test"]) for r in rows.values()} == {
        ("exact", "judged", "fresh", "never run")
    }
    assert rows["fix"]["symbols"] == {"vllm/m.py::Model.load": False}
    code, out, err = run(project, capsys, "status", "vllm")
    assert (code, out) == (0, "2 patches: 2 can be built, 0 not; 0 have served\n")
    assert "Model.load" in err


def test_status_without_the_files_says_what_the_lock_says(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    (wheel,) = project.paths.store.glob("*/*.whl")
    wheel.unlink()
    rows = statuses(project, capsys)
    assert {(r["verdict"], r["source"]) for r in rows.values()} == {("exact", "locked")}
    project.put("fix", FIX.replace(b"Subject", b"Other words"))
    rows = statuses(project, capsys)
    assert (rows["fix"]["verdict"], rows["fix"]["lock"], rows["first"]["verdict"]) == ("unknown", "changed", "exact")


def test_status_of_a_patch_that_was_changed(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.put("fix", FIX.replace(b" class Model:", b" class Other:"))
    row = statuses(project, capsys)["fix"]
    assert (row["verdict"], row["lock"]) == ("relocated", "changed")


def test_status_of_patches_that_nothing_uses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    series = {"first": (FIRST, {"when": {"version": "<0.30"}}), "second": (SECOND, {})}
    project = patch_project.make(tmp_path / "p", series, listed=["first"])
    rows = statuses(project, capsys)
    assert {name: (row["verdict"], row["recipe"]) for name, row in rows.items()} == {
        "first": ("unused", "toy"),
        "second": ("unused", ""),
    }
    assert "holds nowhere" in rows["first"]["detail"]
    assert "no recipe" in rows["second"]["detail"]


def test_status_of_a_version_that_is_not_locked_yet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = locked(patch_project.make(tmp_path / "p", version="0.33.0"))
    assert {row["verdict"] for row in statuses(project, capsys).values()} == {"unknown"}


def test_status_of_an_unknown_component(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(project, capsys, "status", "torch")
    assert code == 2
    assert "torch has no patches" in err
