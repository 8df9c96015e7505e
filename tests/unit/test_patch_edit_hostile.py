"""Hostile configurations, attributes, hooks and environments: the same bytes come out, and nothing of them runs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from githost import git_host
from patch_project import FIRST, SERIES, TEST, Project, canonical, git, make, text

from graft.commands.patch_edit import drop, export_branch, import_branch, import_patch, refresh

CONFIG = """\
[core]
    hooksPath = {evil}/hooks
    fsmonitor = {evil}/run
    attributesFile = {evil}/attributes
    excludesFile = {evil}/excludes
    pager = {evil}/run
    editor = {evil}/run
    sshCommand = {evil}/run
    gitProxy = {evil}/run
    askPass = {evil}/run
    alternateRefsCommand = {evil}/run
    autocrlf = true
    quotePath = false
    abbrev = 4
    ignoreCase = true
    whitespace = tab-in-indent
[diff]
    external = {evil}/run
    noprefix = true
    mnemonicPrefix = true
    srcPrefix = x/
    context = 1
    interHunkContext = 20
    renames = copies
    algorithm = patience
    indentHeuristic = false
    orderFile = {evil}/order
    suppressBlankEmpty = true
    relative = true
    colorMoved = zebra
    submodule = log
[diff "evil"]
    command = {evil}/run
    textconv = {evil}/run
    xfuncname = "^.*$"
    binary = true
[filter "evil"]
    clean = {evil}/run
    smudge = {evil}/run
    process = {evil}/run
    required = true
[merge]
    conflictStyle = diff3
    default = evil
[merge "evil"]
    driver = {evil}/run
[color]
    ui = always
[apply]
    whitespace = fix
    ignoreWhitespace = change
[commit]
    gpgSign = true
    template = {evil}/attributes
[gpg]
    program = {evil}/run
[init]
    templateDir = {evil}/template
    defaultBranch = evil
[i18n]
    commitEncoding = latin1
    logOutputEncoding = latin1
[log]
    showSignature = true
[credential]
    helper = {evil}/run
[url "ext::{evil}/run "]
    insteadOf = http://
    insteadOf = https://
    insteadOf = /
[protocol "ext"]
    allow = always
[uploadpack]
    packObjectsHook = {evil}/run
[fetch]
    fsckObjects = false
    prune = true
[transfer]
    hideRefs = refs
[alias]
    diff = !{evil}/run
"""
ATTRIBUTES = (
    "* filter=evil diff=evil merge=evil text eol=crlf ident working-tree-encoding=UTF-16 whitespace=tab-in-indent\n"
)


class Evil:
    """A folder of programs and configuration that leave a mark when they are used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = folder / "mark"
        (folder / "hooks").mkdir(parents=True)
        (folder / "template" / "hooks").mkdir(parents=True)
        hooks = "post-checkout pre-commit post-index-change reference-transaction post-rewrite pre-auto-gc"
        programs = [folder / "run", *(folder / "hooks" / name for name in hooks.split())]
        for program in [*programs, folder / "template" / "hooks" / "post-checkout"]:
            program.write_text(f"#!/bin/sh\necho $0 >> {self.mark}\ncat\n")
            program.chmod(0o755)
        (folder / "attributes").write_text(ATTRIBUTES)
        (folder / "excludes").write_text("*\n")
        (folder / "order").write_text("*z*\n")

    @property
    def config(self) -> str:
        return CONFIG.format(evil=self.folder)

    @property
    def used(self) -> list[str]:
        return self.mark.read_text().splitlines() if self.mark.exists() else []


@pytest.fixture
def evil(tmp_path: Path) -> Evil:
    return Evil(tmp_path / "evil")


@pytest.fixture
def hostile(evil: Evil, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes the environment of this process hostile."""

    def arm() -> None:
        home = tmp_path / "home"
        (home / ".config" / "git").mkdir(parents=True)
        (home / ".gitconfig").write_text(evil.config)
        (home / ".config" / "git" / "config").write_text(evil.config)
        (home / ".config" / "git" / "attributes").write_text(ATTRIBUTES)
        trap = tmp_path / "trap"
        trap.mkdir()
        git(trap, "init", "--quiet")
        env = {
            "HOME": home,
            "XDG_CONFIG_HOME": home / ".config",
            "GIT_CONFIG_GLOBAL": home / ".gitconfig",
            "GIT_CONFIG_SYSTEM": home / ".gitconfig",
            "GIT_DIR": trap / ".git",
            "GIT_WORK_TREE": trap,
            "GIT_INDEX_FILE": trap / "index",
            "GIT_OBJECT_DIRECTORY": trap / "objects",
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": trap / "objects",
            "GIT_COMMON_DIR": trap / ".git",
            "GIT_NAMESPACE": "evil",
            "GIT_EXTERNAL_DIFF": evil.folder / "run",
            "GIT_PAGER": evil.folder / "run",
            "GIT_EDITOR": evil.folder / "run",
            "GIT_ASKPASS": evil.folder / "run",
            "SSH_ASKPASS": evil.folder / "run",
            "GIT_SSH_COMMAND": evil.folder / "run",
            "GIT_PROXY_COMMAND": evil.folder / "run",
            "GIT_DIFF_OPTS": "-u1",
            "GIT_TEMPLATE_DIR": evil.folder / "template",
            "GIT_EXEC_PATH": evil.folder,
            "GIT_DEFAULT_HASH": "sha256",
            "GIT_LITERAL_PATHSPECS": "1",
            "GIT_ICASE_PATHSPECS": "1",
            "GIT_GRAFT_FILE": trap / "grafts",
            "GIT_SHALLOW_FILE": trap / "shallow",
            "GIT_REPLACE_REF_BASE": "refs/heads/",
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "diff.external",
            "GIT_CONFIG_VALUE_0": evil.folder / "run",
            "GIT_CONFIG_PARAMETERS": "'diff.noprefix'='true'",
            "GIT_TRACE": tmp_path / "trace",
            "GIT_AUTHOR_DATE": "1 Jan 2000",
            "GIT_COMMITTER_NAME": "Evil",
            "TZ": "Pacific/Auckland",
            "LC_ALL": "de_DE.UTF-8",
        }
        for name, value in env.items():
            monkeypatch.setenv(name, str(value))

    return arm


def poison(clone: Path, evil: Evil) -> None:
    """Everything that a repository itself can hold against its reader."""
    folder = clone / ".git"
    with (folder / "config").open("a") as config:
        config.write(evil.config)
    (folder / "info").mkdir(exist_ok=True)
    (folder / "info" / "attributes").write_text(ATTRIBUTES)
    (folder / "hooks").mkdir(exist_ok=True)
    for hook in (evil.folder / "hooks").iterdir():
        (folder / "hooks" / hook.name).symlink_to(hook)


def test_the_traps_work(evil: Evil, hostile: Callable[[], None], tmp_path: Path) -> None:
    """The twin: git as people run it falls into them."""
    clone = tmp_path / "clone"
    clone.mkdir()
    git(clone, "init", "--quiet")
    (clone / "a").write_text("x\n")
    git(clone, "add", "a")
    git(clone, "commit", "--quiet", "-m", "a")
    (clone / "a").write_text("y\n")
    hostile()
    env = {k: v for k, v in os.environ.items() if k.startswith(("HOME", "PATH", "GIT_CONFIG_", "GIT_EXTERNAL"))}
    subprocess.run(["git", "diff"], cwd=clone, env=env, capture_output=True, check=False)
    assert evil.used


def upstream_of(folder: Path) -> tuple[Path, str]:
    """A clone with a commit that changes the first file, and a .gitattributes of its own."""
    clone = folder / "clone"
    (clone / "vllm").mkdir(parents=True)
    git(clone, "init", "--quiet", "--initial-branch=main")
    (clone / ".gitattributes").write_text(
        ATTRIBUTES.replace("filter=evil ", "").replace("working-tree-encoding=UTF-16", "")
    )
    for content in (text(), text(l7="seven", l12="twelve")):
        git(clone, "read-tree", "--empty")
        for path, data in (("vllm/a.txt", content), (".gitattributes", (clone / ".gitattributes").read_bytes())):
            blob = git(clone, "hash-object", "-w", "--stdin", "--no-filters", stdin=data)
            git(clone, "update-index", "--add", "--cacheinfo", f"100644,{blob},{path}")
        git(clone, "commit", "--quiet", "-m", "Subject of it")
    return clone, git(clone, "rev-parse", "HEAD")


def all_verbs(folder: Path, evil: Evil | None, arm: Callable[[], None]) -> dict[str, bytes]:
    """Every verb once; the state of the project after each."""
    project = make(folder / "project", {"first": (FIRST + b"-- \n2.39\n", {}), "second": SERIES["second"]})
    (folder / "t.py").write_text(TEST)
    clone, head = upstream_of(folder)
    if evil is not None:
        # Who believes it reads the base instead of the head.
        git(clone, "replace", head, f"{head}^")
        poison(clone, evil)
        (clone / ".git" / "info" / "grafts").write_text(f"{head}\n")
        arm()
    states: dict[str, bytes] = {}

    def keep(name: str) -> None:
        states.update({f"{name}: {path}": content for path, content in project.state().items()})

    refresh(project.session, ["vllm/first"])
    keep("refresh")
    export_branch(project.session, "vllm", folder / "branch")
    if evil is not None:
        poison(folder / "branch", evil)
    project.put("first", OTHER_FIRST)
    import_branch(project.session, "vllm", folder / "branch")
    keep("import-branch")
    given = {"reason": "r", "until": "u", "test": str(folder / "t.py"), "license": "MIT"}
    url = f"https://git.example.org/a/b/commit/{head}"
    import_patch(project.session, url, head=head, component="vllm", clone=clone, record=given)
    keep("import")
    from_host(project, folder, clone, url, {**given, "id": "hosted"})
    keep("import from a host")
    drop(project.session, "vllm/hosted", because="done")
    keep("drop")
    return states


OTHER_FIRST = canonical(text(), text(l7="eleven"))


def from_host(project: Project, folder: Path, clone: Path, url: str, given: dict[str, str]) -> None:
    """From a copy without traps: what the host itself runs is the host's matter."""
    served = folder / "served"
    served.mkdir()
    subprocess.run(
        ["git", "init", "--quiet", "--bare", str(served / "b")],
        check=True,
        env={"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "HOME": "/"},
    )
    (served / "b" / "objects" / "info" / "alternates").write_text(f"{clone / '.git' / 'objects'}\n")
    head = url.rpartition("/")[2]
    git(served / "b", "update-ref", "refs/heads/main", head)
    git(served / "b", "symbolic-ref", "HEAD", "refs/heads/main")
    with git_host(served) as host:
        where = f"{host.url}/b"
        import_patch(project.session, url, head=head, component="vllm", record=given, address_of=lambda address: where)


def test_every_verb_makes_the_same_and_runs_nothing(
    tmp_path: Path, evil: Evil, hostile: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    clean = all_verbs(tmp_path / "clean", None, hostile)
    branch = git(tmp_path / "clean" / "branch", "rev-parse", "graft/vllm")
    trapped = all_verbs(tmp_path / "trapped", evil, hostile)
    assert evil.used == []
    assert not (tmp_path / "trace").exists()
    # Names of the test's own folders stand in no file.
    assert {name: trapped[name] for name in trapped if trapped[name] != clean.get(name)} == {}
    assert trapped.keys() == clean.keys()
    tip = (tmp_path / "trapped" / "branch" / ".git" / "refs" / "heads" / "graft" / "vllm").read_text().strip()
    assert tip == branch
    assert list((tmp_path / "trap" / ".git" / "refs" / "heads").iterdir()) == []
