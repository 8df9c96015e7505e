"""The verbs as they are typed: options, exit codes, and what stands on stdout."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from patch_project import FIRST, TEST, Project, canonical, git, make, text

from graft.cli import main
from graft.patchset import load_patchset


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make(
        tmp_path / "project", {"first": (FIRST + b"-- \n2\n", {}), "bad": (canonical(text(l3="x"), text(l3="y")), {})}
    )


def typed(project: Project, *words: str) -> int:
    """Exit status of `graft patch ...`."""
    with pytest.raises(SystemExit) as ended:
        main(["patch", words[0], "--project", str(project.root), "--recipe", "toy", "--arch", "sm90", *words[1:]])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_a_series_is_edited_by_hand(project: Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert typed(project, "refresh", "vllm/first") == 0
    assert typed(project, "refresh", "vllm/bad") == 5
    assert typed(project, "refresh", "vllm/none") == 2
    assert typed(project, "drop", "vllm/bad", "--because", "it is bad") == 0
    assert typed(project, "export", "vllm", str(tmp_path / "branch")) == 0
    assert typed(project, "export", "vllm", str(tmp_path / "branch")) == 2
    assert typed(project, "import-branch", "vllm", str(tmp_path / "branch")) == 0
    said = capsys.readouterr()
    assert said.out == f"vllm/first\ndropped vllm/bad: it is bad\n{tmp_path / 'branch'}\nnothing to do\n"
    assert "Traceback" not in said.err
    assert project.patch("first") == FIRST


def test_an_import_is_typed(project: Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clone, test = tmp_path / "clone", tmp_path / "t.py"
    (clone / "vllm").mkdir(parents=True)
    test.write_text(TEST)
    git(clone, "init", "--quiet")
    for content in (text(), text(l30="thirty")):
        (clone / "vllm" / "a.txt").write_bytes(content)
        git(clone, "add", "-A")
        git(clone, "commit", "--quiet", "-m", "Say thirty")
    head = git(clone, "rev-parse", "HEAD")
    url = f"https://git.example.org/a/b/commit/{head}"
    words = ["import", url, "--head", head, "--component", "vllm", "--from", str(clone), "--json"]
    assert typed(project, *words) == 2
    problem = json.loads(capsys.readouterr().out)
    assert problem["exit_code"] == 2
    for option in ("--reason", "--until", "--test", "--license"):
        assert option in problem["what"]
    more = ["--reason", "r", "--until", "u", "--test", str(test), "--license", "MIT"]
    assert typed(project, *words, *more) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["patch"] == "vllm/say-thirty"
    assert [patch.id for patch in load_patchset(project.folder).patches] == ["first", "bad", "say-thirty"]
    assert typed(project, "import", url, "--head", "1" * 40, "--component", "vllm", "--from", str(clone), *more) == 2
    gone = url.replace(head, "1" * 40)
    assert typed(project, "import", gone, "--head", "1" * 40, "--component", "vllm", "--from", str(clone), *more) == 4


def test_an_option_is_written_in_full(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    """--json is looked for before the words are read: a shortened one would be half in force."""
    assert typed(project, "refresh", "vllm/first", "--js") == 2
    assert "--js" in capsys.readouterr().err
    assert typed(project, "drop", "vllm/first", "--bec", "it is bad") == 2
    assert load_patchset(project.folder).select(["first"])


def test_a_reason_steers_no_terminal(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    assert typed(project, "drop", "vllm/bad", "--because", "it\x1b[2J is\r\nbad") == 0
    shown = capsys.readouterr()
    assert "dropped vllm/bad: it [2J is bad" in shown.out
    assert "\x1b" not in shown.out + shown.err
