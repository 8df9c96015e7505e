"""The workflows for users: sound by their schemas and by zizmor, made of targets that exist, and safe for forks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

SOURCE = Path(__file__).parents[2]
GITHUB = SOURCE / ".github" / "workflows" / "image.yml"
GITLAB = SOURCE / "docs" / "ci" / "gitlab-ci.yml"
SCHEMAS = {GITHUB: "vendor.github-workflows", GITLAB: "vendor.gitlab-ci"}
BOTH = pytest.mark.parametrize("file", [GITHUB, GITLAB], ids=["github", "gitlab"])


def tool(name: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / name
    return subprocess.run([program, *words], capture_output=True, text=True, check=False)


def zizmor(file: Path) -> subprocess.CompletedProcess[str]:
    """Exit 0 without findings, 11 to 14 by the worst of them."""
    return tool("zizmor", "--offline", "--no-progress", "--no-config", "--persona", "pedantic", file)


def load(file: Path) -> dict[str, Any]:
    # `on` is a key there, and a truth value in YAML 1.1.
    text = re.sub(r"(?m)^on:", "'on':", file.read_text(encoding="utf-8"))
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


def jobs(file: Path) -> dict[str, Any]:
    data = load(file)
    if file == GITHUB:
        found: dict[str, Any] = data["jobs"]
        return found
    return {name: job for name, job in data.items() if isinstance(job, dict) and "script" in job}


def scripts(job: dict[str, Any]) -> Iterator[str]:
    """Shell text of a job, of either system."""
    yield from (step["run"] for step in job.get("steps", []) if "run" in step)
    for key in ("before_script", "script", "after_script"):
        yield from job.get(key, [])


def targets(text: str) -> list[str]:
    """The targets of `make` that shell text calls."""
    return [
        word
        for line in text.splitlines()
        if (call := re.match(r"\s*(?:\S+\s+&&\s+)?make\s+(.*)", line))
        for word in call[1].partition(">")[0].split()
        if not word.startswith("-") and "=" not in word
    ]


def makefile_targets() -> set[str]:
    return set(re.findall(r"(?m)^([a-z][a-z-]*):", (SOURCE / "Makefile").read_text(encoding="utf-8")))


# Linters


@BOTH
def test_a_workflow_fits_the_schema_of_its_system(file: Path) -> None:
    done = tool("check-jsonschema", "--builtin-schema", SCHEMAS[file], file)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        (GITHUB, "    runs-on: ubuntu-24.04\n    timeout-minutes: 15\n", ""),
        (GITHUB, "  pull_request:\n", "  pull_requests:\n"),
        (GITHUB, "    needs: plan\n", "    need: plan\n"),
        (GITLAB, "build-image:\n", "image:\n"),
        (GITLAB, "  timeout: 15 minutes\n", "  timeout: [15]\n"),
        (GITLAB, "    when: always\n    expire_in", "    when: sometimes\n    expire_in"),
    ],
)
def test_a_broken_workflow_does_not_fit(tmp_path: Path, file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert old in text
    broken = tmp_path / "broken.yml"
    broken.write_text(text.replace(old, new, 1), encoding="utf-8")
    assert tool("check-jsonschema", "--builtin-schema", SCHEMAS[file], broken).returncode == 1


def test_zizmor_finds_nothing() -> None:
    done = zizmor(GITHUB)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("old", "new", "audit"),
    [
        ("  pull_request:\n", "  pull_request_target:\n", "dangerous-triggers"),
        ("checkout@08eba0b27e820071cde6df949e0beb9ba4906955", "checkout@v4", "unpinned-uses"),
        ("          persist-credentials: false\n", "          fetch-depth: 1\n", "artipacked"),
        ("permissions: {}\n", "permissions: write-all\n", "excessive-permissions"),
        ("lint REPORT=md", 'lint RECIPE="${{ github.event.pull_request.title }}"', "template-injection"),
    ],
)
def test_zizmor_finds_a_planted_weakness(tmp_path: Path, old: str, new: str, audit: str) -> None:
    text = GITHUB.read_text(encoding="utf-8")
    assert old in text
    folder = tmp_path / ".github" / "workflows"
    folder.mkdir(parents=True)
    (folder / "image.yml").write_text(text.replace(old, new, 1), encoding="utf-8")
    done = zizmor(folder / "image.yml")
    assert done.returncode >= 11, done.stdout
    assert audit in done.stdout


# What it is made of


@BOTH
def test_every_target_that_is_called_exists(file: Path) -> None:
    called = {target for job in jobs(file).values() for text in scripts(job) for target in targets(text)}
    assert {"lint", "plan", "image", "smoke-gpu", "receipt-verify"} <= called
    assert called - makefile_targets() == set()


def test_a_target_that_does_not_exist_is_seen() -> None:
    text = "echo make nothing\nmake --no-print-directory imgae ARCH=sm90 > out.md\n  make plan lint REPORT=md"
    assert targets(text) == ["imgae", "plan", "lint"]
    assert {"imgae", "plan", "lint"} - makefile_targets() == {"imgae"}


def test_both_systems_run_the_same_targets() -> None:
    """But for what only shows: GitLab shows JUnit by itself."""
    github, gitlab = (
        {target for job in jobs(file).values() for text in scripts(job) for target in targets(text)}
        for file in (GITHUB, GITLAB)
    )
    assert github - {"receipt"} == gitlab


def test_actions_are_pinned_by_commit_and_say_their_version() -> None:
    used = re.findall(r"uses: (\S+)(.*)", GITHUB.read_text(encoding="utf-8"))
    assert used
    for action, note in used:
        assert re.fullmatch(r"actions/(checkout|upload-artifact)@[0-9a-f]{40}", action)
        assert re.fullmatch(r" # v\d+\.\d+\.\d+", note)


def test_receipts_are_kept_also_of_a_red_run() -> None:
    for name in ("image", "gpu"):
        [upload] = [s for s in jobs(GITHUB)[name]["steps"] if "upload-artifact" in s.get("uses", "")]
        assert (upload["if"], upload["with"]["path"]) == ("always()", ".graft/receipts/")
        assert upload["with"]["include-hidden-files"] is True
    for name in ("build-image", "gpu"):
        kept = jobs(GITLAB)[name]["artifacts"]
        assert (kept["when"], kept["paths"]) == ("always", [".graft/receipts/"])
        assert "junit" in kept["reports"]


# Forks and tokens


def test_only_the_comment_may_write_and_it_runs_nothing_of_the_pull_request() -> None:
    data = load(GITHUB)
    assert data["permissions"] == {}
    assert not {"pull_request_target", "workflow_run"} & data["on"].keys()
    writers = {n for n, job in data["jobs"].items() if "write" in job["permissions"].values()}
    assert writers == {"comment"}
    assert all(job["permissions"] == {"contents": "read"} for n, job in data["jobs"].items() if n != "comment")
    comment = data["jobs"]["comment"]
    assert not any("uses" in step for step in comment["steps"]), "no checkout"
    assert not [target for text in scripts(comment) for target in targets(text)]
    assert "secrets." not in GITHUB.read_text(encoding="utf-8")
    token = jobs(GITLAB)["comment"]
    assert token["variables"]["GIT_STRATEGY"] == "none"
    assert not [target for text in scripts(token) for target in targets(text)]
    others = {name: job for name, job in load(GITLAB).items() if name != "comment"}
    assert "TOKEN" not in yaml.safe_dump(others)


def test_a_fork_reaches_no_runner_of_ones_own() -> None:
    for name, job in jobs(GITHUB).items():
        if "self-hosted" not in job["runs-on"]:
            continue
        above = jobs(GITHUB)[job["needs"]] if "if" not in job else job
        condition = " ".join(above["if"].split())
        same = "github.event.pull_request.head.repo.full_name == github.repository"
        assert condition == (
            f"github.event_name == 'push' || (contains(github.event.pull_request.labels.*.name, 'image') && {same})"
        ), name


# The comments


GH = r"""#!/bin/sh
printf '%s\n' "$*" >> "$SAID"
case "$*" in
  *--jq*) printf '%s' "$THERE" ;;
  *"--method POST"* | *"--method PATCH"*) cat body.md > "$SAID.body" ;;
esac
"""
CURL = r"""#!/bin/sh
cat > "$SAID.config"
printf '%s\n' "$*" >> "$SAID"
case "$*" in
  *per_page*) printf '%s' "$THERE" ;;
  *"--request"*) cat body.md > "$SAID.body" ;;
esac
"""


def write_comment(tmp_path: Path, program: str, stub: str, text: str, there: str) -> tuple[list[str], str, str]:
    """Run a job's shell text with a stub of the one program that it talks through: the calls, the body, its stdin."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / program).write_text(stub, encoding="utf-8")
    (tmp_path / "bin" / program).chmod(0o755)
    (tmp_path / "comment.md").write_text("### Lint\n\n$(touch owned) `touch owned`\n", encoding="utf-8")
    env = {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "SAID": str(tmp_path / "said"),
        "THERE": there,
        "GH_REPO": "o/r",
        "NUMBER": "7",
        "GITHUB_RUN_ID": "99",
        "GRAFT_COMMENT_TOKEN": "s3cret",
        "CI_API_V4_URL": "https://gitlab.invalid/api/v4",
        "CI_PROJECT_ID": "1",
        "CI_MERGE_REQUEST_IID": "7",
    }
    argv = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", text]
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "owned").exists()
    config = tmp_path / "said.config"
    body = (tmp_path / "said.body").read_text(encoding="utf-8")
    return (
        (tmp_path / "said").read_text("utf-8").splitlines(),
        body,
        config.read_text("utf-8") if config.exists() else "",
    )


@pytest.mark.parametrize(
    ("there", "call"),
    [
        ("", "api --method POST repos/o/r/issues/7/comments --field body=@body.md"),
        ("41\n42\n", "api --method PATCH repos/o/r/issues/comments/41 --field body=@body.md"),
    ],
)
def test_the_comment_on_github_is_kept_up_to_date(tmp_path: Path, there: str, call: str) -> None:
    text = "\n".join(scripts(jobs(GITHUB)["comment"]))
    calls, body, _ = write_comment(tmp_path, "gh", GH, text, there)
    assert calls[0] == "run download 99 --name comment"
    assert calls[-1] == call
    assert body.startswith("<!-- graft: lint and plan -->\n### Lint\n")


@pytest.mark.parametrize(
    ("there", "method", "end"),
    [
        ("[]", "POST", "/merge_requests/7/notes"),
        ('[{"id": 5, "body": "hi"}, {"id": 6, "body": "<!-- graft: lint and plan -->\\nold"}]', "PUT", "/notes/6"),
    ],
)
def test_the_comment_on_gitlab_is_kept_up_to_date(tmp_path: Path, there: str, method: str, end: str) -> None:
    calls, body, config = write_comment(tmp_path, "curl", CURL, "\n".join(scripts(jobs(GITLAB)["comment"])), there)
    assert f"--request {method}" in calls[-1]
    assert calls[-1].endswith(end)
    assert body.startswith("<!-- graft: lint and plan -->\n### Lint\n")
    assert config == 'header = "PRIVATE-TOKEN: s3cret"\n'
    assert not any("s3cret" in call for call in calls), "other users of the machine can read a command line"
