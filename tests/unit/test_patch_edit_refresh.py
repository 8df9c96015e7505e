"""refresh: the canonical form against the pin; what does not apply, or breaks another patch, changes nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from patch_project import FILES, FIRST, SECOND, SERIES, Project, canonical, make, record, session, text, wheel
from web import Answer, Web

from graft.commands.patch_edit import drop, export_branch, import_branch, refresh
from graft.console import Console
from graft.errors import BadInput, FetchFailed, PatchMismatch
from graft.patchset import load_patchset
from graft.recipe import load_recipe

BODY = FIRST.partition(b"---\n")[2]
MAIL = (
    b"From 0123456789012345678901234567890123456789 Mon Sep 17 00:00:00 2001\n"
    b"From: Ann <ann@example.org>\nDate: Thu, 1 Jan 2026 00:00:00 +0000\n"
    b"Subject: [PATCH v2 1/3] =?UTF-8?q?Gr=C3=BC=C3=9Fe?= from\n a mail\n"
    b"MIME-Version: 1.0\nContent-Type: text/plain; charset=UTF-8\nContent-Transfer-Encoding: 8bit\n\n"
    b"The body.\n\nSigned-off-by: Ann <ann@example.org>\n---\n"
    b" vllm/a.txt | 2 +-\n 1 file changed, 1 insertion(+), 1 deletion(-)\n\n"
)
FROM_MAIL = "Grüße from a mail\n\nThe body.\n\nSigned-off-by: Ann <ann@example.org>\n---\n".encode()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(FIRST.replace(b"@@ -4", b"@@ -2").replace(b"+4,7", b"+2,7"), FIRST, id="an offset"),
        pytest.param(b"Subject\n\nBody\n\n" + BODY, b"Subject\n\nBody\n---\n" + BODY, id="no line of dashes"),
        pytest.param(BODY + b"-- \n2.39.5\n\n", BODY, id="a signature, no message"),
        pytest.param(b"Subject\n---\n a.txt | 2 +-\n\n" + BODY, b"Subject\n---\n" + BODY, id="a diffstat"),
        pytest.param(MAIL + BODY + b"-- \n2.39.5\n\n", FROM_MAIL + BODY, id="a mail"),
        pytest.param(
            b"\n".join(line for line in FIRST.split(b"\n") if not line.startswith(b"index")), FIRST, id="no blob ids"
        ),
    ],
)
def test_other_forms_become_the_canonical_one(tmp_path: Path, before: bytes, after: bytes) -> None:
    project = make(tmp_path / "project", {"first": (before, {})})
    refresh(project.session, ["vllm/first"])
    assert project.patch("first").decode() == after.decode()
    state = project.state()
    refresh(project.session, ["vllm/first"])
    assert project.state() == state


def test_the_canonical_form_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = make(tmp_path / "project")
    state = project.state()
    folder = project.folder.stat().st_ino
    refresh(project.session, ["vllm/second", "vllm/first"])
    assert project.state() == state
    assert project.folder.stat().st_ino == folder
    said = capsys.readouterr()
    assert said.out == "nothing to do\n"
    assert "make lock" not in said.err


def test_changed_bytes_ask_for_a_lock(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = make(tmp_path / "project", {"first": (BODY + b"-- \n2\n", {}), "second": (SECOND, {})})
    refresh(project.session, ["vllm/first", "vllm/second"])
    said = capsys.readouterr()
    assert said.out == "vllm/first\n"
    assert "make lock RECIPE=toy" in said.err


def test_what_does_not_apply_is_shown_and_nothing_is_written(tmp_path: Path) -> None:
    series = {"first": (BODY, {}), "bad": (canonical(text(l20="x"), text(l20="y")), {})}
    project = make(tmp_path / "project", {**series, "first": (BODY + b"-- \n2\n", {})})
    state = project.state()
    with pytest.raises(PatchMismatch, match=r"vllm/bad +vllm/a.txt +1 +conflict"):
        refresh(project.session, ["vllm/first", "vllm/bad"])
    assert project.state() == state
    # The one that applies can be refreshed while the other waits for its turn.
    refresh(project.session, ["vllm/first"])
    assert project.patch("first") == BODY


def test_a_patch_outside_the_recipe_is_refreshed_in_its_place(tmp_path: Path) -> None:
    project = make(
        tmp_path / "project", {"first": SERIES["first"], "second": (SECOND + b"-- \n2\n", {})}, listed=["first"]
    )
    refresh(project.session, ["vllm/second"])
    assert project.patch("second") == SECOND


def test_more_context_is_taken_where_three_lines_stand_twice(tmp_path: Path) -> None:
    block = [f"same {number}\n" for number in range(9)]
    old = "".join(["top\n", *block, "middle\n", *block, "end\n"]).encode()
    new = old.replace(b"same 4\n", b"another\n", 1)
    usual, wide, wider = (canonical({"vllm/c.txt": old}, {"vllm/c.txt": new}, context=n) for n in (3, 6, 10))
    files = {**FILES, "vllm/c.txt": old}
    project = make(tmp_path / "project", {"first": (wider, {})}, files=files)
    refresh(project.session, ["vllm/first"])
    assert project.patch("first") == wide
    # It is the canonical form: it stays, and comes back from a branch.
    refresh(project.session, ["vllm/first"])
    export_branch(project.session, "vllm", tmp_path / "branch")
    project.put("first", wider)
    import_branch(project.session, "vllm", tmp_path / "branch")
    assert project.patch("first") == wide
    project.put("first", usual)
    with pytest.raises(PatchMismatch, match="ambiguous"):
        refresh(project.session, ["vllm/first"])


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["vllm"], "does not name a patch"),
        (["vllm/../x"], "does not name a patch"),
        (["vllm/none"], "there is no patch vllm/none"),
        (["Vllm/first"], "does not name a patch"),
        (["torch/first"], "torch has no patches"),
    ],
)
def test_a_name_that_is_none(tmp_path: Path, names: list[str], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        refresh(make(tmp_path / "project").session, names)


def test_a_patch_for_another_version_is_refused(tmp_path: Path) -> None:
    project = make(tmp_path / "project", {"first": (FIRST, {"when": {"version": "<0.30"}})})
    with pytest.raises(BadInput, match=r"is meant for vllm <0\.30"):
        refresh(project.session, ["vllm/first"])


def test_a_dangerous_patch_reaches_no_engine(tmp_path: Path) -> None:
    evil = FIRST.replace(b"vllm/a.txt", b"../a.txt")
    project = make(tmp_path / "project", {"first": (evil, {})})
    with pytest.raises(BadInput, match=r"`\.\.`"):
        refresh(project.session, ["vllm/first"])


# A version that is not locked yet

NEW = FILES["vllm/a.txt"].replace(b"line 1\n", b"line 1\nmore\nand more\n")


@dataclass(frozen=True)
class Bump:
    """Makes projects whose recipe pins 0.33.0, which an index has, while the lock is that of 0.32.0."""

    folder: Path
    server: Web

    def __call__(self, content: bytes, patch: bytes) -> Project:
        name = "vllm-0.33.0-py3-none-any.whl"
        info = "vllm-0.33.0.dist-info"
        files = {
            "vllm/__init__.py": b"",
            "vllm/a.txt": content,
            f"{info}/METADATA": b"Metadata-Version: 2.1\nName: vllm\nVersion: 0.33.0\n",
            f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{info}/RECORD": b"",
        }
        digest = wheel(self.folder / name, files)
        data = (self.folder / name).read_bytes()
        entry = {
            "filename": name,
            "url": self.server.serve(f"/files/{name}", Answer(data)),
            "hashes": {"sha256": digest},
            "size": len(data),
            "upload-time": "2026-01-01T00:00:00Z",
        }
        page = {"meta": {"api-version": "1.1"}, "name": "vllm", "versions": ["0.33.0"], "files": [entry]}
        answer = Answer(json.dumps(page).encode(), kind="application/vnd.pypi.simple.v1+json")
        self.server.serve("/simple/vllm/", answer)
        return make(self.folder / "project", {"first": (patch, {})}, version="0.33.0")


@pytest.fixture
def bumped(tmp_path: Path, server: Web, monkeypatch: pytest.MonkeyPatch) -> Bump:
    """The host's index is the one of the test, and it has no other."""
    for name in ("UV_INDEX", "UV_EXTRA_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{server.url}/simple")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return Bump(tmp_path, server)


def test_a_version_that_is_not_locked_comes_from_the_index(bumped: Bump) -> None:
    project = bumped(NEW, FIRST)
    refresh(project.session, ["vllm/first"])
    assert project.patch("first") == canonical(NEW, NEW.replace(b"line 7\n", b"seven\n"))


def test_offline_it_is_not_looked_for(bumped: Bump) -> None:
    project = bumped(NEW, FIRST)
    with pytest.raises(FetchFailed, match="offline"):
        refresh(session(project.paths, offline=True), ["vllm/first"])


def test_hunks_that_upstream_has_go_with_merge(bumped: Bump) -> None:
    start = text(l7="the seventh word", l30="the thirtieth word")
    content = text(l7="the seventh word")
    project = bumped(content, canonical(text(), start))
    state = project.state()
    with pytest.raises(PatchMismatch, match=r"merged .*\n.* exact"):
        refresh(project.session, ["vllm/first"])
    assert project.state() == state
    refresh(project.session, ["vllm/first"], merge=True)
    assert project.patch("first") == canonical(content, start)


def test_a_patch_that_upstream_has_is_to_be_dropped(bumped: Bump) -> None:
    content = text(l7="the seventh word")
    project = bumped(content, canonical(text(), content))
    with pytest.raises(PatchMismatch, match="merged") as caught:
        refresh(project.session, ["vllm/first"], merge=True)
    assert "upstream has" in str(caught.value.cure)


def test_a_clean_merge_is_taken_when_asked_for(bumped: Bump) -> None:
    # Upstream changed a line of the hunk's context, and nothing next to the change.
    old, content = text(), text(l4="the fourth word")
    project = bumped(content, canonical(old, text(l7="the seventh word")))
    state = project.state()
    with pytest.raises(PatchMismatch, match=r"conflict|merge-clean"):
        refresh(project.session, ["vllm/first"])
    assert project.state() == state
    refresh(project.session, ["vllm/first"], merge=True)
    assert project.patch("first") == canonical(content, text(l4="the fourth word", l7="the seventh word"))


def test_a_merge_that_is_not_clean_is_refused(bumped: Bump) -> None:
    project = bumped(text(l7="something else"), canonical(text(), text(l7="the seventh")))
    state = project.state()
    with pytest.raises(PatchMismatch, match="conflict"):
        refresh(project.session, ["vllm/first"], merge=True)
    assert project.state() == state


# drop


def test_a_dropped_patch_leaves_recipes_and_series(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = make(tmp_path / "project")
    recipe = project.paths.recipe("toy").read_text()
    project.paths.recipe("toy").write_text(recipe.replace("patches:\n", "patches:  # all\n"))
    (project.folder / "NOTES").write_text("mine")
    drop(project.session, "vllm/first", because="0.32.1  has\nit")
    assert load_recipe(project.paths, project.session.project, "toy").patches == ("vllm/second",)
    assert "patches:  # all\n- vllm/second\n" in project.paths.recipe("toy").read_text()
    assert [patch.id for patch in load_patchset(project.folder).patches] == ["second"]
    assert sorted(path.name for path in project.folder.rglob("*") if path.is_file()) == [
        "NOTES", "second.patch", "series.yaml", "test_second.py",
    ]  # fmt: skip
    said = capsys.readouterr()
    assert said.out == "dropped vllm/first: 0.32.1 has it\n"
    assert "make lock RECIPE=toy" in said.err


def test_the_last_patch_takes_the_folder_along(tmp_path: Path) -> None:
    project = make(tmp_path / "project", {"first": SERIES["first"]})
    drop(project.session, "vllm/first", because="done")
    assert not project.folder.exists()
    assert load_recipe(project.paths, project.session.project, "toy").patches == ()
    assert list(project.paths.patches.iterdir()) == []


def test_what_is_not_of_the_series_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = make(tmp_path / "project", {"first": SERIES["first"]})
    (project.folder / "NOTES").write_text("mine")
    said = replace(project.session, console=Console(json_mode=True))
    drop(said, "vllm/first", because="done")
    assert [path.name for path in project.folder.iterdir()] == ["NOTES"]
    assert json.loads(capsys.readouterr().out)["series"] is False
    with pytest.raises(BadInput, match="vllm has no patches") as caught:
        drop(project.session, "vllm/first", because="done")
    assert caught.value.cure == "no component has any; add one with graft patch import"


def test_a_mistyped_recipe_is_said(tmp_path: Path) -> None:
    project = make(tmp_path / "project")
    state = project.state()
    with pytest.raises(BadInput) as caught:
        drop(replace(project.session, recipe="nope"), "vllm/first", because="done")
    assert "nope" in str(caught.value.where)
    assert project.state() == state


def test_a_patch_that_another_needs_is_kept(tmp_path: Path) -> None:
    project = make(tmp_path / "project", {"first": SERIES["first"], "second": (SECOND, {"after": ["first"]})})
    state = project.state()
    with pytest.raises(BadInput, match="vllm/second comes after first"):
        drop(project.session, "vllm/first", because="done")
    assert project.state() == state


def test_a_list_that_cannot_be_edited_stops_it_before_the_first_write(tmp_path: Path) -> None:
    project = make(tmp_path / "project")
    series = project.folder / "series.yaml"
    one, other = (record(name) for name in ("first", "second"))
    series.write_text(f"component: vllm\npatches: {[one, other]}\n")
    state = project.state()
    with pytest.raises(BadInput, match="line by line"):
        drop(project.session, "vllm/first", because="done")
    assert project.state() == state


@pytest.mark.parametrize("because", ["", " \n"])
def test_a_reason_is_needed(tmp_path: Path, because: str) -> None:
    with pytest.raises(BadInput, match="reason"):
        drop(make(tmp_path / "project").session, "vllm/first", because=because)
