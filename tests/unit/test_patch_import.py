"""import: a pull request or commit from a git host or a clone, with its record; refused unless the head is the one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from githost import GitHost, git_host
from patch_project import FILES, TEST, Project, canonical, git, make, session, text

from graft.commands.patch_edit import drop, import_patch
from graft.errors import BadInput, FetchFailed, GraftError
from graft.patching.adopt import id_of, is_test
from graft.patching.upstream import host_environment, parse_url
from graft.patchset import PatchRecord, load_patchset

MIT = 'MIT License\n\nPermission is hereby granted, free of charge, to any person. THE SOFTWARE IS PROVIDED "AS IS".\n'
MESSAGE = "[Bugfix][Core] Make line 7 say seven (#12)\n\nIt said 7.\n\nSigned-off-by: Ann Author <ann@example.org>\n"
PULL = "https://git.example.org/vllm/vllm/pull/12"
ORIGINAL = {
    "vllm/a.txt": FILES["vllm/a.txt"],
    "vllm/__init__.py": b"",
    "tests/test_a.py": b"old\n",
    "LICENSE": MIT.encode(),
}
CHANGED = {"vllm/a.txt": text(l7="seven"), "tests/test_a.py": b"new\n"}


def commit(folder: Path, files: dict[str, bytes | None], message: str = "change", **env: str) -> str:
    for name, content in files.items():
        path = folder / name
        if content is None:
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", message, **env)
    return git(folder, "rev-parse", "HEAD")


@dataclass(frozen=True)
class Upstream:
    """A repository with a main branch that went on, and a pull request of one commit."""

    folder: Path
    base: str
    head: str

    def pull(self, number: int, head: str) -> None:
        git(self.folder, "update-ref", f"refs/pull/{number}/head", head)


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    folder = tmp_path / "host" / "vllm" / "vllm"
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    base = commit(folder, dict(ORIGINAL), "base")
    git(folder, "checkout", "--quiet", "-b", "topic")
    head = commit(folder, dict(CHANGED), MESSAGE)
    git(folder, "checkout", "--quiet", "main")
    commit(folder, {"README": b"main went on\n"})
    made = Upstream(folder, base, head)
    made.pull(12, head)
    return made


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make(tmp_path / "project")


@pytest.fixture
def given(tmp_path: Path) -> dict[str, str]:
    """What no commit says."""
    (tmp_path / "my_test.py").write_text(TEST)
    return {"reason": "Line 7 is wrong: it says 7.", "until": "vLLM 0.40", "test": str(tmp_path / "my_test.py")}


@pytest.fixture
def host(tmp_path: Path, upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> Iterator[GitHost]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with git_host(tmp_path / "host") as running:
        yield running


def added(project: Project, patch_id: str) -> tuple[PatchRecord, bytes]:
    found = load_patchset(project.folder).select([patch_id])[0]
    return found.record, found.data


def refused(project: Project, error: type[GraftError], match: str, *args: Any, **more: Any) -> GraftError:
    before = project.state()
    with pytest.raises(error, match=match) as caught:
        import_patch(project.session, *args, **more)
    assert project.state() == before
    return caught.value


# From a clone


def test_a_commit_becomes_a_patch_with_its_record(
    project: Project, upstream: Upstream, given: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    series = project.series
    import_patch(
        project.session,
        f"https://git.example.org/vllm/vllm/commit/{upstream.head}?diff=split",
        head=upstream.head,
        component="vllm",
        clone=upstream.folder,
        without_tests=True,
        record=given,
    )
    record, data = added(project, "make-line-7-say-seven")
    assert data == canonical(text(), text(l7="seven"), MESSAGE)
    assert record.model_dump(exclude_defaults=True) == {
        "id": "make-line-7-say-seven",
        "title": "[Bugfix][Core] Make line 7 say seven (#12)",
        "target": "wheel",
        "reason": given["reason"],
        "origin": f"https://git.example.org/vllm/vllm/commit/{upstream.head}",
        "upstream": "backport",
        "until": "vLLM 0.40",
        "head": upstream.head,
        "base": upstream.base,
        "author": "Ann Author",
        "license": "MIT",
        "tests": ("tests/test_make_line_7_say_seven.py",),
    }
    assert project.series.startswith(series)
    assert (project.folder / record.test).read_text() == TEST
    said = capsys.readouterr()
    assert said.out == "vllm/make-line-7-say-seven\n"
    assert "left out: tests/test_a.py" in said.err
    assert "- vllm/make-line-7-say-seven" in said.err
    # A patch of the series makes the same change.
    assert "against vllm 0.32.0: merged" in said.err
    assert "make lock" in said.err
    # What was added can go again, without a trace.
    drop(project.session, "vllm/make-line-7-say-seven", because="not needed")
    assert project.series == series


def test_a_pull_request_is_compared_with_where_it_left_main(
    project: Project, upstream: Upstream, given: dict[str, str]
) -> None:
    import_patch(
        project.session,
        PULL,
        head=upstream.head,
        component="vllm",
        clone=upstream.folder,
        without_tests=True,
        record=given,
    )
    record, data = added(project, "make-line-7-say-seven")
    assert record.base == upstream.base
    assert data == canonical(text(), text(l7="seven"), MESSAGE)
    assert record.origin == PULL


def test_a_component_without_patches_gets_a_folder(project: Project, upstream: Upstream, given: dict[str, str]) -> None:
    where = {"head": upstream.head, "component": "torch", "clone": upstream.folder, "without_tests": True}
    problem = refused(project, BadInput, "not complete", PULL, **where, record=given)
    assert "--target wheel or --target source" in problem.what
    import_patch(project.session, PULL, **where, record={**given, "target": "source"})  # type: ignore[arg-type]
    found = load_patchset(project.paths.patches / "torch")
    assert [patch.id for patch in found.patches] == ["make-line-7-say-seven"]
    assert found.patches[0].record.target == "source"


def test_what_is_given_goes_before_what_the_commit_says(
    project: Project, upstream: Upstream, given: dict[str, str]
) -> None:
    more = {"id": "seven", "title": "Say seven", "author": "Bob", "license": "BSD-3-Clause", "upstream": "submitted"}
    import_patch(
        project.session,
        PULL,
        head=upstream.head,
        component="vllm",
        clone=upstream.folder,
        without_tests=True,
        record={**given, **more},
    )
    record, data = added(project, "seven")
    assert {name: getattr(record, name) for name in more} == more
    assert data == canonical(text(), text(l7="seven"), MESSAGE)


def test_everything_that_is_missing_is_said_at_once(project: Project, upstream: Upstream) -> None:
    git(upstream.folder, "checkout", "--quiet", "topic")
    head = commit(upstream.folder, {"LICENSE": b"Ask me.\n"}, "more")
    git(upstream.folder, "checkout", "--quiet", "main")
    problem = refused(
        project, BadInput, "not complete", PULL, head=head, component="vllm", clone=upstream.folder, record={}
    )
    for option in ("--reason", "--until", "--test", "--title", "--license", "--id"):
        assert option in problem.what
    assert "--target" not in problem.what
    assert problem.exit_code == 2


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ({"id": "Seven"}, "--id: 'Seven' is not a patch id"),
        ({"id": "A B"}, "--id: 'A B' is not a patch id"),
        ({"id": "a" * 81}, "--id: 81 characters are too many; 80 are allowed"),
        ({"test": "/dev/zero"}, "--test: /dev/zero is not a plain file"),
        ({"test": "/dev"}, "--test: /dev is not a plain file"),
        ({"id": "first"}, "the series has a patch first already"),
        ({"upstream": "maybe"}, "--upstream"),
        ({"target": "binary"}, "--target"),
        ({"until": "a\nb"}, "--until"),
        ({"test": "/nowhere/test.py"}, "--test: /nowhere/test.py cannot be read"),
        ({"test": __file__.replace("test_patch_import", "githost")}, "has no function test_"),
    ],
)
def test_an_option_that_no_record_may_hold(
    project: Project, upstream: Upstream, given: dict[str, str], record: dict[str, str], says: str
) -> None:
    problem = refused(
        project,
        BadInput,
        "not complete",
        PULL,
        head=upstream.head,
        component="vllm",
        clone=upstream.folder,
        without_tests=True,
        record={**given, **record},
    )
    assert says in problem.what
    # One line for what is wrong, and it is about that option alone.
    assert len(problem.what.splitlines()) == 2
    option = f"--{next(iter(record))}"
    assert (problem.where, problem.cure) == (option, f"correct {option}")


def test_missing_and_wrong_options_have_each_their_cure(
    project: Project, upstream: Upstream, given: dict[str, str]
) -> None:
    where = {"head": upstream.head, "component": "vllm", "clone": upstream.folder, "without_tests": True}
    record = {name: value for name, value in given.items() if name != "until"}
    problem = refused(project, BadInput, "not complete", PULL, **where, record=record)
    assert (problem.where, problem.cure) == ("--until", "give what is missing as well")
    problem = refused(project, BadInput, "not complete", PULL, **where, record={**record, "id": "A B"})
    assert (problem.where, problem.cure) == ("arguments", "give what is missing as well; correct --id")


@pytest.mark.parametrize("option", ["upstream", "base", "reason", "id"])
@pytest.mark.parametrize("value", ["", "   "])
def test_an_empty_option_is_refused(
    project: Project, upstream: Upstream, given: dict[str, str], option: str, value: str
) -> None:
    where = {"head": upstream.head, "component": "vllm", "clone": upstream.folder, "without_tests": True}
    record = {**given, option: value}
    problem = refused(project, BadInput, f"--{option}: nothing but blanks", PULL, **where, record=record)
    assert problem.where == f"--{option}"
    assert problem.cure == "give it a value, or leave the option out"


def test_a_test_that_would_never_end_is_not_read(
    project: Project, upstream: Upstream, given: dict[str, str], tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "large").write_bytes(b"#" * 1_000_001)
    where = {"head": upstream.head, "component": "vllm", "clone": upstream.folder, "without_tests": True}
    for name, says in (("fifo", "is not a plain file"), ("large", "is larger than 1000000 bytes")):
        record = {**given, "test": str(tmp_path / name)}
        assert says in refused(project, BadInput, "not complete", PULL, **where, record=record).what


def test_paths_outside_the_component_are_refused(project: Project, upstream: Upstream, given: dict[str, str]) -> None:
    problem = refused(
        project,
        BadInput,
        "tests/test_a.py lies outside the component",
        PULL,
        head=upstream.head,
        component="vllm",
        clone=upstream.folder,
        record=given,
    )
    assert problem.exit_code == 2


def test_nothing_but_tests_is_refused(project: Project, upstream: Upstream, given: dict[str, str]) -> None:
    head = commit(upstream.folder, {"tests/test_b.py": b"x\n"})
    where = {"head": head, "component": "vllm", "clone": upstream.folder, "record": given}
    url = f"https://git.example.org/vllm/vllm/commit/{head}"
    refused(project, BadInput, "nothing but tests changes", url, **where, without_tests=True)
    empty = commit(upstream.folder, {})
    refused(project, BadInput, "nothing changes", url.replace(head, empty), **{**where, "head": empty})


def test_links_and_programs_are_refused(project: Project, upstream: Upstream, given: dict[str, str]) -> None:
    (upstream.folder / "vllm" / "link").symlink_to("/etc/passwd")
    head = commit(upstream.folder, {})
    where = {"component": "vllm", "clone": upstream.folder, "record": given}
    url = "https://git.example.org/vllm/vllm/commit/"
    refused(project, BadInput, "vllm/link is a symbolic link", f"{url}{head}", head=head, **where)
    head = commit(upstream.folder, {"vllm/__init__.py": b"\0binary\0"})
    refused(project, BadInput, "binary", f"{url}{head}", head=head, **where)
    head = commit(upstream.folder, {"vllm/big.txt": b"0123456789abcde\n" * (1 << 20) + b"\n"})
    refused(project, BadInput, "vllm/big.txt is larger than 16 MiB", f"{url}{head}", head=head, **where)
    head = commit(upstream.folder, {"vllm/conftest.py": b"x = 1\n"})
    refused(project, BadInput, "build-files", f"{url}{head}", head=head, **where)


def test_a_merge_needs_a_base(project: Project, upstream: Upstream, given: dict[str, str]) -> None:
    git(upstream.folder, "merge", "--quiet", "--no-ff", "-m", "merge", "topic")
    merge = git(upstream.folder, "rev-parse", "HEAD")
    url = f"https://git.example.org/vllm/vllm/commit/{merge}"
    where = {"head": merge, "component": "vllm", "clone": upstream.folder, "without_tests": True}
    problem = refused(project, BadInput, "is a merge", url, **where, record=given)
    assert "--base" in str(problem.cure)
    parent = git(upstream.folder, "rev-parse", "HEAD^1")
    more = {**given, "base": parent, "title": "Merged"}
    import_patch(project.session, url, **where, record=more)  # type: ignore[arg-type]
    record, data = added(project, "merged")
    assert (record.head, record.base) == (merge, parent)
    assert data.endswith(canonical(text(), text(l7="seven"), ""))


def test_the_first_commit_needs_a_base(project: Project, upstream: Upstream, given: dict[str, str]) -> None:
    url = f"https://git.example.org/vllm/vllm/commit/{upstream.base}"
    where = {"head": upstream.base, "component": "vllm", "clone": upstream.folder}
    refused(project, BadInput, "is the first commit", url, **where, record=given)


def test_a_merged_pull_request_is_compared_with_main_before_it(
    project: Project, upstream: Upstream, given: dict[str, str]
) -> None:
    git(upstream.folder, "merge", "--quiet", "--no-ff", "-m", "merge", "topic")
    commit(upstream.folder, {"README": b"and on\n"})
    where = {"head": upstream.head, "component": "vllm", "clone": upstream.folder, "without_tests": True}
    import_patch(project.session, PULL, **where, record=given)  # type: ignore[arg-type]
    assert added(project, "make-line-7-say-seven")[0].base == upstream.base


def test_a_pull_request_that_main_became_needs_a_base(
    project: Project, upstream: Upstream, given: dict[str, str]
) -> None:
    git(upstream.folder, "reset", "--quiet", "--hard", "topic")
    where = {"head": upstream.head, "component": "vllm", "clone": upstream.folder, "record": given}
    problem = refused(project, BadInput, "holds the pull request already", PULL, **where)
    assert "--base" in str(problem.cure)


def test_what_will_apply_is_said_at_once(
    project: Project, upstream: Upstream, given: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    head = commit(upstream.folder, {"vllm/a.txt": text(l33="thirty-three")}, "Thirty-three")
    url = f"https://git.example.org/vllm/vllm/commit/{head}"
    where = {"head": head, "clone": upstream.folder}
    import_patch(project.session, url, component="vllm", record=given, **where)  # type: ignore[arg-type]
    assert "against vllm 0.32.0: exact" in capsys.readouterr().err
    more = {**given, "target": "wheel"}
    import_patch(project.session, url, component="torch", record=more, **where)  # type: ignore[arg-type]
    assert "the files of torch are not at hand" in capsys.readouterr().err
    problem = refused(
        project, BadInput, "no recipe has a component 'unknown'", url, component="unknown", record=more, **where
    )
    assert "vllm" in str(problem.cure)


def test_several_commits_need_a_title(project: Project, upstream: Upstream, given: dict[str, str]) -> None:
    git(upstream.folder, "checkout", "--quiet", "topic")
    head = commit(upstream.folder, {"vllm/a.txt": text(l7="SEVEN")}, "lint")
    git(upstream.folder, "checkout", "--quiet", "main")
    where = {"head": head, "component": "vllm", "clone": upstream.folder, "without_tests": True}
    refused(project, BadInput, "--title", PULL, **where, record=given)
    import_patch(project.session, PULL, **where, record={**given, "title": "Loud seven"})  # type: ignore[arg-type]
    assert added(project, "loud-seven")[1] == canonical(text(), text(l7="SEVEN"), "Loud seven\n")


def test_a_message_that_quotes_a_diff_is_indented(project: Project, upstream: Upstream, given: dict[str, str]) -> None:
    message = "Title\n\ndiff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n---\nIndex: x\n"
    head = commit(upstream.folder, {"vllm/a.txt": text(l9="x")}, message)
    url = f"https://git.example.org/vllm/vllm/-/commit/{head}"
    import_patch(project.session, url, head=head, component="vllm", clone=upstream.folder, record=given)
    said = "Title\n\n diff --git a/x b/x\n --- a/x\n +++ b/x\n @@ -1 +1 @@\n---\n Index: x\n"
    assert added(project, "title")[1] == canonical(text(), text(l9="x"), said)


def test_the_license_is_that_of_the_files_before_that_of_the_whole(
    project: Project, upstream: Upstream, given: dict[str, str]
) -> None:
    head = commit(upstream.folder, {"vllm/new.py": b"# SPDX-License-Identifier: Apache-2.0\nx = 1\n"}, "One")
    url = "https://git.example.org/vllm/vllm/commit/"
    where = {"component": "vllm", "clone": upstream.folder, "record": given}
    import_patch(project.session, f"{url}{head}", head=head, **where)  # type: ignore[arg-type]
    assert added(project, "one")[0].license == "Apache-2.0"
    files: dict[str, bytes | None] = {
        f"vllm/{n}.py": f"# SPDX-License-Identifier: {n}\n".encode() for n in ("MIT", "ISC")
    }
    head = commit(upstream.folder, files, "Two")
    refused(project, BadInput, "--license", f"{url}{head}", head=head, **where)


def test_a_commit_that_the_clone_lacks(project: Project, upstream: Upstream, given: dict[str, str]) -> None:
    where = {"head": "1" * 40, "component": "vllm", "record": given}
    problem = refused(project, FetchFailed, "does not have commit 1111", PULL, **where, clone=upstream.folder)
    assert "fetch origin" in str(problem.cure)
    refused(project, BadInput, "no git repository", PULL, **where, clone=project.root)


@pytest.mark.parametrize("sha", ["", "a" * 39, "A" * 40, "g" * 40, "a" * 41, "HEAD", "-" + "a" * 39])
def test_a_head_is_forty_digits(project: Project, upstream: Upstream, given: dict[str, str], sha: str) -> None:
    where = {"component": "vllm", "clone": upstream.folder}
    problem = refused(project, BadInput, "is not a commit id", PULL, **where, head=sha, record=given)
    assert problem.where == "--head"
    if sha:
        refused(
            project, BadInput, "is not a commit id", PULL, **where, head=upstream.head, record={**given, "base": sha}
        )


def test_the_address_and_the_head_must_agree(project: Project, upstream: Upstream, given: dict[str, str]) -> None:
    url = "https://git.example.org/vllm/vllm/commit/1234567"
    where = {"head": upstream.head, "component": "vllm", "clone": upstream.folder, "record": given}
    refused(project, BadInput, "the address names 1234567", url, **where)


# From a host


def local(host: GitHost) -> dict[str, Any]:
    return {"address_of": lambda address: f"{host.url}/vllm/vllm"}


def test_a_pull_request_of_a_host(project: Project, upstream: Upstream, given: dict[str, str], host: GitHost) -> None:
    import_patch(
        project.session,
        PULL + "/files#diff-1",
        head=upstream.head,
        component="vllm",
        without_tests=True,
        record=given,
        **local(host),
    )
    record, data = added(project, "make-line-7-say-seven")
    assert data == canonical(text(), text(l7="seven"), MESSAGE)
    assert (record.base, record.license, record.origin) == (upstream.base, "MIT", PULL)
    assert host.seen
    assert host.url.encode() not in b"".join(project.state().values())


@pytest.mark.parametrize("filters", ["true", "false"])
def test_a_host_with_and_without_partial_clones(
    project: Project, upstream: Upstream, given: dict[str, str], host: GitHost, filters: str
) -> None:
    git(upstream.folder, "config", "uploadpack.allowFilter", filters)
    git(upstream.folder, "config", "uploadpack.allowAnySHA1InWant", "true")
    where = {"head": upstream.head, "component": "vllm", "without_tests": True, **local(host)}
    import_patch(project.session, PULL, record=given, **where)
    assert added(project, "make-line-7-say-seven")[1] == canonical(text(), text(l7="seven"), MESSAGE)
    url = f"https://git.example.org/vllm/vllm/commit/{upstream.head}"
    import_patch(project.session, url, record={**given, "id": "again"}, **where)
    assert added(project, "again")[0].base == upstream.base
    import_patch(project.session, PULL, record={**given, "id": "third", "base": upstream.base}, **where)
    assert added(project, "third")[1] == added(project, "again")[1]


def test_a_merge_request_of_a_host(project: Project, upstream: Upstream, given: dict[str, str], host: GitHost) -> None:
    git(upstream.folder, "update-ref", "refs/merge-requests/7/head", upstream.head)
    url = "https://git.example.org/group/sub/vllm/-/merge_requests/7"
    where = {"head": upstream.head, "component": "vllm", "without_tests": True, "record": given}
    import_patch(project.session, url, **where, **local(host))  # type: ignore[arg-type]
    assert added(project, "make-line-7-say-seven")[0].origin == url


def test_another_head_is_refused(project: Project, upstream: Upstream, given: dict[str, str], host: GitHost) -> None:
    where = {"component": "vllm", "record": given, **local(host)}
    problem = refused(
        project, FetchFailed, f"the head is {upstream.head}, not {upstream.base}", PULL, head=upstream.base, **where
    )
    assert problem.exit_code == 4
    problem = refused(
        project, FetchFailed, "has no refs/pull/13/head", PULL.replace("12", "13"), head=upstream.head, **where
    )
    assert problem.exit_code == 4
    url = f"https://git.example.org/vllm/vllm/commit/{'1' * 40}"
    assert refused(project, FetchFailed, "git fetch", url, head="1" * 40, **where).exit_code == 4


def test_a_host_that_is_none(project: Project, upstream: Upstream, given: dict[str, str], host: GitHost) -> None:
    where = {"head": upstream.head, "component": "vllm", "record": given}
    host.page = b"<!DOCTYPE html><html>Sign in</html>"
    problem = refused(project, FetchFailed, "no git repository answers", PULL, **where, **local(host))
    assert problem.exit_code == 4
    host.page = None
    gone = {"address_of": lambda address: f"{host.url}/vllm/none"}
    refused(project, FetchFailed, "git ls-remote", PULL, **where, **gone)
    closed = {"address_of": lambda address: "http://127.0.0.1:9/vllm/vllm"}
    refused(project, FetchFailed, "git ls-remote", PULL, **where, **closed)


def test_offline_no_host_is_asked(project: Project, upstream: Upstream, given: dict[str, str], host: GitHost) -> None:
    offline = session(project.paths, offline=True)
    with pytest.raises(BadInput, match="offline"):
        import_patch(offline, PULL, head=upstream.head, component="vllm", record=given, **local(host))
    import_patch(
        offline, PULL, head=upstream.head, component="vllm", clone=upstream.folder, without_tests=True, record=given
    )
    assert host.seen == []


@pytest.mark.parametrize(
    ("url", "repository", "kind", "name"),
    [
        ("https://github.com/a/b/pull/12", "https://github.com/a/b", "pull", "12"),
        ("https://github.com/a/b.c/pull/12/commits", "https://github.com/a/b.c", "pull", "12"),
        ("https://codeberg.org/a/b/pulls/12", "https://codeberg.org/a/b", "pull", "12"),
        ("https://github.com/a/b/commit/abc1234.diff", "https://github.com/a/b", "commit", "abc1234"),
        ("https://gitlab.com/a/b/c/-/merge_requests/3#note_1", "https://gitlab.com/a/b/c", "merge", "3"),
        ("https://gitlab.com/a/b/-/commit/abc1234", "https://gitlab.com/a/b", "commit", "abc1234"),
        ("https://git.example.org:8443/a/b/pull/1", "https://git.example.org:8443/a/b", "pull", "1"),
    ],
)
def test_addresses(url: str, repository: str, kind: str, name: str) -> None:
    found = parse_url(url)
    assert (found.repository, found.kind, found.name) == (repository, kind, name)


@pytest.mark.parametrize(
    "url",
    [
        "http://github.com/a/b/pull/12",
        "https://user:secret@github.com/a/b/pull/12",
        "https://github.com/a/b",
        "https://github.com/a/b/issues/12",
        "https://github.com/a/b/pull/abc",
        "https://github.com/a/../pull/12",
        "https://github.com/a/b/pull/12\n",
        "ext::sh -c 'touch x'/pull/12",
        "file:///a/b/pull/12",
        "-oProxyCommand=x",
        "https://-x/a/b/pull/1 --upload-pack=x",
    ],
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(BadInput, match="is not the address"):
        parse_url(url)


def test_the_environment_of_a_fetch_is_a_short_list() -> None:
    environ = {
        "https_proxy": "http://p",
        "SSL_CERT_FILE": "/ca",
        "GIT_SSL_NO_VERIFY": "1",
        "GIT_DIR": "/x",
        "HOME": "/h",
    }
    assert host_environment(environ) == {"https_proxy": "http://p", "SSL_CERT_FILE": "/ca", "GIT_SSL_CAINFO": "/ca"}
    assert host_environment({"GIT_SSL_CAINFO": "/a", "CURL_CA_BUNDLE": "/b"}) == {"GIT_SSL_CAINFO": "/a"}


@pytest.mark.parametrize(
    ("title", "wanted"),
    [
        ("[Bugfix][V1] Fix the thing (#1234)", "fix-the-thing"),
        ("2 fixes", "fixes"),
        ("Ünïcode", "n-code"),
        ("(#12)", ""),
        ("漢字", ""),
        ("word " * 30, "word-word-word-word-word-word-word-word-word-word"),
        ("x" * 200, "x" * 50),
    ],
)
def test_an_id_from_a_title(title: str, wanted: str) -> None:
    assert id_of(title) == wanted


def test_what_is_a_test_of_upstream() -> None:
    tests = ["tests/a.py", "vllm/tests/b/c.txt", "test/x", "a/test_x.py", "a/x_test.py", "conftest.py", "a/test_k.cu"]
    others = [
        "vllm/testing.py",
        "vllm/latest/x.py",
        "vllm/contest.py",
        "vllm/test_data.json",
        "protest.py",
        "vllm/attest_.py",
    ]
    assert [path for path in tests + others if is_test(path)] == tests
