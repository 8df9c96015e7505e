"""Export and back: the same bytes, whatever a message or a file holds; and what a branch may not hold."""

from __future__ import annotations

import os
import shlex
import signal
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from patch_project import FILES, FIRST, SECOND, SERIES, Project, Tree, canonical, git, make, text

from graft.commands.patch_edit import export_branch, import_branch
from graft.errors import BadInput, GraftError, PatchMismatch
from graft.patching import Malformed, parse
from graft.patching.branch import with_trailer, without_trailer
from graft.patching.repository import bare
from graft.patching.temporary import MARKER, TEXT, temporary

TRICKY: Mapping[str, bytes] = {
    "no message": b"",
    "one line": b"Subject\n",
    "blank lines at the end": b"Subject\n\nBody\n\n\n",
    "blank lines at the start": b"\n\nSubject\n",
    "comments": b"# not a comment\n\n#another\n",
    "three dashes": b"Subject\n\n---\nmore\n---\n",
    "a line of dashes first": b"---\n",
    "a diffstat": b"Subject\n---\n a.txt | 2 +-\n\n---\n",
    "UTF-8": "Grüße: 汉字 \u2028 end\n".encode(),
    "Latin-1": b"Gr\xfc\xdfe\n",
    "CRLF": b"Subject\r\n\r\nBody\r\n",
    "trailing blanks": b"Subject  \n\t\nBody \n",
    "trailers": b"Subject\n\nSigned-off-by: A <a@example.org>\n",
    "our own trailer": b"Subject\n\nGraft-Patch: vllm/other\n",
    "our own trailer twice": b"Graft-Patch: vllm/first\n\nGraft-Patch: vllm/first\n",
    "scissors": b"Subject\n# ------------------------ >8 ------------------------\nbelow\n",
    "a mail's signature": b"Subject\n-- \n2.39\n",
    "an indented diff": b"Subject\n\n diff --git a/x b/x\n --- a/x\n",
}
CHANGES: Mapping[str, tuple[Tree, Tree]] = {
    "CRLF and no newline at the end": (
        {"vllm/b.txt": FILES["vllm/b.txt"]},
        {"vllm/b.txt": FILES["vllm/b.txt"].replace(b"crlf 19", b"end")},
    ),
    "a new file": ({}, {"vllm/new.txt": b"one\ntwo"}),
    "an empty new file": ({}, {"vllm/empty.txt": b""}),
    "bytes that are no text": ({"vllm/a.txt": text()}, {"vllm/a.txt": text().replace(b"line 9\n", b"\xff\xfe\x80\n")}),
    "odd line ends": (
        {"vllm/a.txt": text()},
        {"vllm/a.txt": text().replace(b"line 9\n", b"a\x0bb\x0cc\rd\xe2\x80\xa8\n")},
    ),
    "a name with a blank": ({}, {"vllm/a b.txt": b"x\n"}),
    "a name that git quotes": ({}, {'vllm/"b"ü.txt': b"x\n"}),
}
SOURCE_ONLY: Mapping[str, tuple[Tree, Tree]] = {
    "a deleted file": ({"vllm/a.txt": text()}, {}),
    "a new mode": ({"vllm/a.txt": text()}, {"vllm/a.txt": ("100755", text())}),
    "a new program": ({}, {"vllm/run.sh": ("100755", b"#!/bin/sh\n")}),
}


def round_trip(tmp_path: Path, patches: Mapping[str, bytes], *, source: bool = False) -> dict[str, bytes]:
    """Exported from one project, and imported into another whose patches have other bytes."""
    there = make(tmp_path / "there", {name: (data, {}) for name, data in patches.items()}, source=source)
    export_branch(there.session, "vllm", tmp_path / "branch")
    start = text()
    other = {}
    for number, name in enumerate(patches):
        after = start.replace(b"line %d\n" % (30 - 9 * number), b"other\n")
        other[name] = (canonical(start, after), {})
        start = after
    here = make(tmp_path / "here", other, source=source)
    series = here.series
    import_branch(here.session, "vllm", tmp_path / "branch")
    assert here.series == series
    return {name: here.patch(name) for name in patches}


@pytest.mark.parametrize("message", TRICKY.values(), ids=TRICKY)
def test_a_message_comes_back(tmp_path: Path, message: bytes) -> None:
    patches = {"first": canonical(text(), text(l7="seven"), message)}
    assert round_trip(tmp_path, patches) == patches


@pytest.mark.parametrize(("before", "after"), CHANGES.values(), ids=CHANGES)
def test_a_change_comes_back(tmp_path: Path, before: Tree, after: Tree) -> None:
    patches = {"first": canonical(before, after)}
    assert round_trip(tmp_path, patches) == patches


@pytest.mark.parametrize(("before", "after"), SOURCE_ONLY.values(), ids=SOURCE_ONLY)
def test_a_change_of_a_source_comes_back(tmp_path: Path, before: Tree, after: Tree) -> None:
    patches = {"first": canonical(before, after)}
    assert round_trip(tmp_path, patches, source=True) == patches


def test_patches_on_top_of_each_other_come_back(tmp_path: Path) -> None:
    patches = {"first": FIRST, "second": SECOND}
    assert round_trip(tmp_path, patches) == patches


LINES = st.sampled_from(
    ["", "---", "# c", " x", "word", "Graft-Patch: vllm/first", "é", "\r", "Signed-off-by: a", "-- "]
)


@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(
    message=st.lists(LINES | st.text(max_size=12), max_size=6).map("\n".join),
    newline=st.booleans(),
    changes=st.dictionaries(st.integers(1, 40), st.text("ab#-+ \r\t", max_size=5), min_size=1, max_size=4),
)
def test_export_and_import_are_inverse(
    tmp_path_factory: pytest.TempPathFactory, message: str, newline: bool, changes: dict[int, str]
) -> None:
    said = message.encode("utf-8", "replace") + (b"\n" if message else b"")
    assume(b"\0" not in said)
    after = text(**{f"l{line}": value for line, value in changes.items()})
    after = after if newline else after.removesuffix(b"\n")
    assume(after != text())
    patch = canonical(text(), after, said)
    try:
        parse(patch)
    except Malformed:
        assume(False)
    tmp_path = tmp_path_factory.mktemp("inverse")
    try:
        assert round_trip(tmp_path, {"first": patch}) == {"first": patch}
    except PatchMismatch:
        # Lines that repeat: such a patch cannot be built, nor exported.
        assume(False)


@given(st.binary(max_size=60))
@example(b"")
@example(b"Graft-Patch: vllm/first")
@example(b"\n\n")
def test_a_trailer_goes_on_and_off(message: bytes) -> None:
    assert without_trailer(with_trailer(message, "vllm", "first")) == (message, "vllm", "first")


def test_a_trailer_that_others_follow_goes_off() -> None:
    signed = with_trailer(b"Subject\n\nBody\n", "vllm", "first") + b"Signed-off-by: A <a@b>\n"
    assert without_trailer(signed) == (b"Subject\n\nBody\n\nSigned-off-by: A <a@b>\n", "vllm", "first")
    assert without_trailer(b"Subject\n") == (b"Subject\n", "", "")


def test_the_branch_is_the_same_each_time(tmp_path: Path) -> None:
    project = make(tmp_path / "project")
    ids = []
    for name in ("one", "two"):
        export_branch(project.session, "vllm", tmp_path / name)
        ids.append(git(tmp_path / name, "log", "--format=%H %an %s", "graft/vllm"))
        assert git(tmp_path / name, "status", "--porcelain") == ""
        assert git(tmp_path / name, "symbolic-ref", "HEAD") == "refs/heads/graft/vllm"
    assert ids[0] == ids[1]
    assert [line.split(" ", 1)[1] for line in ids[0].splitlines()] == [
        "Somebody Second", "Somebody Subject", "Graft vllm 0.32.0",
    ]  # fmt: skip
    assert (tmp_path / "one" / "vllm" / "a.txt").read_bytes() == text(l7="seven", l20="twenty")


def test_a_branch_may_have_another_name_and_an_empty_folder(tmp_path: Path) -> None:
    project = make(tmp_path / "project")
    (tmp_path / "branch").mkdir()
    export_branch(project.session, "vllm", tmp_path / "branch", "mine/it")
    before = project.state()
    import_branch(project.session, "vllm", tmp_path / "branch", "mine/it")
    assert project.state() == before
    with pytest.raises(BadInput, match="no branch graft/vllm"):
        import_branch(project.session, "vllm", tmp_path / "branch")
    for name in ("-x", "a..b", "a b", "", "HEAD"):
        with pytest.raises(BadInput, match="not the name of a branch"):
            export_branch(project.session, "vllm", tmp_path / "other", name or " ")


def test_what_a_killed_export_left_is_removed(tmp_path: Path) -> None:
    project = make(tmp_path / "project")
    stale = tmp_path / ".graft-export-stale"
    (stale / "repository" / ".git").mkdir(parents=True)
    (stale / MARKER).write_bytes(TEXT)
    export_branch(project.session, "vllm", tmp_path / "branch")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["branch", "project"]
    assert git(tmp_path / "branch", "rev-list", "--count", "HEAD") == "3"
    assert git(tmp_path / "branch", "status", "--porcelain") == ""


def test_what_is_not_of_an_export_stays(tmp_path: Path) -> None:
    project = make(tmp_path / "project")
    for name in (".branch.graft-export", ".graft-export-mine", ".graft-export-other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("mine")
    (tmp_path / ".graft-export-other" / MARKER).write_bytes(b"another text")
    (tmp_path / ".graft-export-link").symlink_to(tmp_path / ".graft-export-mine")
    with temporary(".graft-export-", tmp_path) as running:
        export_branch(project.session, "vllm", tmp_path / "branch")
        assert (running / MARKER).read_bytes() == TEXT
    assert sorted(path.name for path in tmp_path.rglob("file")) == ["file"] * 3
    assert not running.exists()


def test_a_killed_process_leaves_nothing_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    child = os.fork()
    if child == 0:
        with bare():
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert [path.name.startswith("graft-bare-") for path in tmp_path.iterdir()] == [True]
    with bare():
        assert len(list(tmp_path.iterdir())) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arch", ["bogus", "sm121"])
def test_an_architecture_that_the_recipe_has_not_is_refused(tmp_path: Path, arch: str) -> None:
    project = make(tmp_path / "project")
    other = replace(project.session, arch=arch)
    with pytest.raises(BadInput, match=arch):
        export_branch(other, "vllm", tmp_path / "branch")
    assert not (tmp_path / "branch").exists()


def test_the_way_back_is_said_as_it_is_typed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = make(tmp_path / "project")
    place = tmp_path / "my branch"
    export_branch(project.session, "vllm", place, "mine")
    line = next(line for line in capsys.readouterr().err.splitlines() if line.startswith("back with: "))
    words = ["graft", "patch", "import-branch", "vllm", str(place), "--branch", "mine"]
    assert shlex.split(line.removeprefix("back with: ")) == words


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    project = make(tmp_path / "project")
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").write_text("mine")
    for place in (tmp_path / "used", tmp_path / "used" / "file"):
        with pytest.raises(BadInput, match="not a new or empty folder"):
            export_branch(project.session, "vllm", place)
    with pytest.raises(BadInput, match="no such folder"):
        export_branch(project.session, "vllm", tmp_path / "missing" / "branch")
    assert [path.name for path in sorted((tmp_path / "used").iterdir())] == ["file"]


@pytest.mark.parametrize(
    "patch",
    [
        pytest.param(FIRST.replace(b"@@ -4", b"@@ -3").replace(b"+4,7", b"+3,7"), id="an offset"),
        pytest.param(FIRST + b"-- \n2.39.5\n", id="a signature"),
        pytest.param(FIRST.replace(b"---\ndiff", b"diff"), id="no line of dashes"),
        pytest.param(FIRST.replace(b"---\ndiff", b"---\n a.txt | 2 +-\n\ndiff"), id="a diffstat"),
        pytest.param(FIRST.replace(b"Body", b"Bo\0dy"), id="a NUL"),
        pytest.param(b"\n".join(line for line in FIRST.split(b"\n") if not line.startswith(b"index")), id="no ids"),
    ],
)
def test_a_patch_in_another_form_is_not_exported(tmp_path: Path, patch: bytes) -> None:
    project = make(tmp_path / "project", {"first": (patch, {})})
    with pytest.raises(BadInput, match="not in its canonical form") as caught:
        export_branch(project.session, "vllm", tmp_path / "branch")
    assert caught.value.cure == "graft patch refresh vllm/first"
    assert not (tmp_path / "branch").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["project"]


def test_a_patch_that_does_not_apply_is_not_exported(tmp_path: Path) -> None:
    project = make(tmp_path / "project", {"first": SERIES["first"], "bad": (canonical(text(l9="x"), text(l9="y")), {})})
    with pytest.raises(PatchMismatch, match=r"vllm/bad .*conflict"):
        export_branch(project.session, "vllm", tmp_path / "branch")


def exported(tmp_path: Path) -> tuple[Project, Path]:
    project = make(tmp_path / "project", {**SERIES, "third": (canonical(text(l7="seven", l20="twenty"), THIRD), {})})
    export_branch(project.session, "vllm", tmp_path / "branch")
    return project, tmp_path / "branch"


THIRD = text(l7="seven", l20="twenty", l33="thirty-three")


def edit(clone: Path, old: bytes, new: bytes) -> None:
    file = clone / "vllm" / "a.txt"
    assert old in file.read_bytes()
    file.write_bytes(file.read_bytes().replace(old, new))
    git(clone, "add", "-A")


def test_an_amended_commit_is_an_amended_patch(tmp_path: Path) -> None:
    project, clone = exported(tmp_path)
    edit(clone, b"thirty-three", b"33")
    git(clone, "commit", "--quiet", "--amend", "--no-edit", "--signoff")
    before = project.state()
    import_branch(project.session, "vllm", clone)
    after = project.state()
    assert [name for name in after if after[name] != before[name]] == ["patches/vllm/third.patch"]
    # git puts the new trailer below the last, which stands alone.
    message = "Subject\n\nBody\n\nSigned-off-by: Carl <carl@example.org>\n"
    wanted = canonical(text(l7="seven", l20="twenty"), text(l7="seven", l20="twenty", l33="33"), message)
    assert after["patches/vllm/third.patch"].decode() == wanted.decode()


def test_the_order_follows_the_branch(tmp_path: Path) -> None:
    project, clone = exported(tmp_path)
    third = git(clone, "rev-parse", "HEAD")
    git(clone, "reset", "--quiet", "--hard", "HEAD~2")
    second = git(clone, "rev-parse", "ORIG_HEAD~1")
    git(clone, "cherry-pick", third)
    git(clone, "cherry-pick", second)
    import_branch(project.session, "vllm", clone)
    ids = [line.split()[-1] for line in project.series.splitlines() if "id:" in line]
    assert ids == ["first", "third", "second"]
    assert project.series.startswith("# In order.\n")
    wanted = canonical(text(l7="seven", l33="thirty-three"), THIRD, "Second\n")
    assert project.patch("second") == wanted


def test_an_order_against_after_is_refused(tmp_path: Path) -> None:
    series = {"first": SERIES["first"], "second": (SECOND, {"after": ["first"]})}
    project = make(tmp_path / "project", series)
    clone = tmp_path / "branch"
    export_branch(project.session, "vllm", clone)
    git(clone, "reset", "--quiet", "--hard", "HEAD~2")
    for commit in ("ORIG_HEAD", "ORIG_HEAD~1"):
        git(clone, "cherry-pick", git(clone, "rev-parse", commit))
    before = project.state()
    with pytest.raises(BadInput, match="stands later in the series") as caught:
        import_branch(project.session, "vllm", clone)
    assert ".edit" not in str(caught.value.where)
    assert project.state() == before


def refused(project: Project, clone: Path, error: type[GraftError], match: str) -> GraftError:
    before = project.state()
    with pytest.raises(error, match=match) as caught:
        import_branch(project.session, "vllm", clone)
    assert project.state() == before
    return caught.value


def test_a_commit_without_a_patch_is_refused(tmp_path: Path) -> None:
    project, clone = exported(tmp_path)
    edit(clone, b"line 1\n", b"one\n")
    git(clone, "commit", "--quiet", "-m", "New")
    problem = refused(project, clone, BadInput, r"\(New\) names no patch")
    assert "graft patch import" in str(problem.cure)


def test_a_missing_commit_is_refused(tmp_path: Path) -> None:
    project, clone = exported(tmp_path)
    git(clone, "reset", "--quiet", "--hard", "HEAD~1")
    problem = refused(project, clone, BadInput, "no commit is vllm/third")
    assert "graft patch drop vllm/third" in str(problem.cure)


def test_a_second_commit_of_a_patch_is_refused(tmp_path: Path) -> None:
    project, clone = exported(tmp_path)
    edit(clone, b"line 1\n", b"one\n")
    git(clone, "commit", "--quiet", "-m", "More\n\nGraft-Patch: vllm/third")
    refused(project, clone, BadInput, "two commits are vllm/third")


@pytest.mark.parametrize("name", ["vllm/unknown", "torch/first"])
def test_a_commit_of_another_patch_is_refused(tmp_path: Path, name: str) -> None:
    project, clone = exported(tmp_path)
    git(clone, "commit", "--quiet", "--amend", "-m", f"Third\n\nGraft-Patch: {name}")
    refused(project, clone, BadInput, f"is {name}, which the recipe does not apply")


def test_an_empty_commit_is_refused(tmp_path: Path) -> None:
    project, clone = exported(tmp_path)
    git(clone, "reset", "--quiet", "--hard", "HEAD~1")
    git(clone, "commit", "--quiet", "--allow-empty", "-m", "Third\n\nGraft-Patch: vllm/third")
    refused(project, clone, BadInput, "changes nothing")


def test_a_merge_is_refused(tmp_path: Path) -> None:
    project, clone = exported(tmp_path)
    git(clone, "checkout", "--quiet", "-b", "side", "HEAD~1")
    git(clone, "commit", "--quiet", "--allow-empty", "-m", "side")
    git(clone, "checkout", "--quiet", "graft/vllm")
    git(clone, "merge", "--quiet", "--no-ff", "-m", "merge", "side")
    refused(project, clone, BadInput, "is a merge")


def test_a_changed_base_is_refused(tmp_path: Path) -> None:
    project, clone = exported(tmp_path)
    tree = git(clone, "rev-parse", "HEAD~3^{tree}")
    git(clone, "read-tree", tree)
    blob = git(clone, "hash-object", "-w", "--stdin", stdin=text(l40="other"))
    git(clone, "update-index", "--cacheinfo", f"100644,{blob},vllm/a.txt")
    root = git(clone, "commit-tree", git(clone, "write-tree"), "-m", "other base")
    git(clone, "reset", "--quiet", "--hard")
    git(clone, "rebase", "--quiet", "--onto", root, "HEAD~3", "graft/vllm")
    refused(project, clone, BadInput, "the first commit has another vllm/a.txt")


def test_a_file_that_the_base_lacks_is_refused_and_can_be_added(tmp_path: Path) -> None:
    project, clone = exported(tmp_path)
    (clone / "vllm" / "b.txt").write_bytes(FILES["vllm/b.txt"] + b"\r\nmore")
    git(clone, "add", "-A")
    git(clone, "commit", "--quiet", "--amend", "--no-edit")
    refused(project, clone, BadInput, "vllm/b.txt exists in vllm 0.32.0, but the first commit does not have it")
    git(clone, "tag", "wanted")
    git(clone, "checkout", "--quiet", "--detach", "HEAD~3")
    (clone / "vllm" / "b.txt").write_bytes(FILES["vllm/b.txt"])
    git(clone, "add", "-A")
    git(clone, "commit", "--quiet", "--amend", "--no-edit")
    for commit in ("wanted~2", "wanted~1"):
        git(clone, "cherry-pick", commit)
    (clone / "vllm" / "b.txt").write_bytes(FILES["vllm/b.txt"] + b"\r\nmore")
    edit(clone, b"line 33\n", b"thirty-three\n")
    git(clone, "commit", "--quiet", "-m", "Third\n\nGraft-Patch: vllm/third")
    git(clone, "branch", "-f", "graft/vllm")
    import_branch(project.session, "vllm", clone)
    assert parse(project.patch("third")).paths == ("vllm/a.txt", "vllm/b.txt")


def test_a_link_in_a_branch_is_refused(tmp_path: Path) -> None:
    project, clone = exported(tmp_path)
    (clone / "vllm" / "link").symlink_to("/etc/passwd")
    git(clone, "add", "-A")
    git(clone, "commit", "--quiet", "--amend", "--no-edit")
    refused(project, clone, BadInput, "vllm/link is a symbolic link")


def test_a_message_that_looks_like_a_diff_is_refused(tmp_path: Path) -> None:
    project, clone = exported(tmp_path)
    message = b"Subject\n\ndiff --git a/x b/x\n\nGraft-Patch: vllm/third\n"
    git(clone, "commit", "--quiet", "--amend", "-F", "-", stdin=message)
    problem = refused(project, clone, BadInput, "cannot be read back")
    assert "indent it" in str(problem.cure)


def test_a_component_without_patches_is_said(tmp_path: Path) -> None:
    project = make(tmp_path / "project")
    with pytest.raises(BadInput, match="torch has no patches") as caught:
        export_branch(project.session, "torch", tmp_path / "branch")
    assert caught.value.cure == "there is: vllm"
    with pytest.raises(BadInput, match="not the name of a component"):
        export_branch(project.session, "../x", tmp_path / "branch")
    other = make(tmp_path / "unlisted", listed=["first"])
    export_branch(other.session, "vllm", tmp_path / "one")
    assert git(tmp_path / "one", "rev-list", "--count", "HEAD") == "2"
    import_branch(other.session, "vllm", tmp_path / "one")


def test_patches_of_another_architecture_are_not_in_the_branch(tmp_path: Path) -> None:
    project = make(tmp_path / "project", {"first": (FIRST, {"when": {"arches": ["sm120"]}})})
    with pytest.raises(BadInput, match="applies no patch of vllm on sm90"):
        export_branch(project.session, "vllm", tmp_path / "branch")
