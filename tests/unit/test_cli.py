"""What a user sees of a mistake: the exit code, the place and the cure, for each in a copy of the real project.

No network and no engine: every mistake here is found before either is needed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from graft import cli, errors
from graft.lock import lock_text
from graft.project import Base, Bootstrap, BuildKind, EngineConfig, Project
from graft.recipe import Component, Constraint, Recipe, Waiver
from graft.yamlio import Model

SOURCE = Path(__file__).parents[2]
RECIPE = "recipes/glm-dsa.yaml"
LOCK = "recipes/locks/glm-dsa.lock.yaml"
TOOLS = "recipes/locks/_tools.lock.yaml"
REQUIREMENTS = "recipes/locks/glm-dsa.requirements.txt"
PATCH = "patches/vllm/mtp-indexer-scales.patch"
VARIABLES = ("ARCH", "RECIPE", "REGISTRY", "JOBS", "ENGINE", "OFFLINE")


@dataclass(frozen=True)
class Ended:
    """One call of graft: exit status and both streams."""

    code: int
    out: str
    err: str


Run = Callable[..., Ended]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the real project, with none of the variables that a user could have set."""
    root = tmp_path / "project"
    root.mkdir()
    shutil.copy(SOURCE / "build.yaml", root)
    for folder in ("recipes", "patches", "images"):
        shutil.copytree(SOURCE / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return root


@pytest.fixture
def graft(project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Calls the CLI in this process, in the copied project."""
    monkeypatch.chdir(project)
    handler = signal.getsignal(signal.SIGTERM)

    def run(*words: str, **env: str) -> Ended:
        with monkeypatch.context() as patched:
            for name, value in env.items():
                patched.setenv(name, value)
            with pytest.raises(SystemExit) as ended:
                cli.main(words)
        out, err = capsys.readouterr()
        return Ended(int(ended.value.code or 0), out, err)

    yield run
    signal.signal(signal.SIGTERM, handler)


def replace(file: str, old: str, new: str) -> Callable[[Path], None]:
    """An edit of one file, as a person makes it."""

    def edit(root: Path) -> None:
        text = (root / file).read_text(encoding="utf-8")
        assert old in text, f"{file} does not hold {old!r}"
        (root / file).write_text(text.replace(old, new, 1), encoding="utf-8")

    return edit


def remove(file: str) -> Callable[[Path], None]:
    return lambda root: (root / file).unlink()


def add(file: str, text: str) -> Callable[[Path], None]:
    """Text at a file's end."""

    def edit(root: Path) -> None:
        with (root / file).open("a", encoding="utf-8") as stream:
            stream.write(text)

    return edit


def relock(key: str, value: object) -> Callable[[Path], None]:
    """A lock that is sound in itself, with one key changed."""

    def edit(root: Path) -> None:
        body = yaml.safe_load((root / LOCK).read_text(encoding="utf-8"))
        del body["digest"]
        (root / LOCK).write_text(lock_text({**body, key: value}), encoding="utf-8")

    return edit


def untouched(root: Path) -> None:
    pass


@dataclass(frozen=True)
class Mistake:
    """says: regular expressions, each of which the message holds, its place and its cure among them."""

    code: int
    says: tuple[str, ...]
    edit: Callable[[Path], object] = untouched
    words: tuple[str, ...] = ("plan",)
    env: dict[str, str] = field(default_factory=dict)


def at(file: str) -> str:
    """The place of a mistake in a YAML file: with its line."""
    return re.escape(file) + r":\d+: "


NOT_A_NAME = r"RECIPE: .* is not a recipe name"
BAD_VERSION = replace(RECIPE, 'version: "2.30.4"', "version: 12.10")

MISTAKES = {
    # Architectures
    "unknown architecture": Mistake(2, ("sm91", "sm90"), env={"ARCH": "sm91"}),
    "architecture written otherwise": Mistake(2, ("sm_90", "sm90"), env={"ARCH": "sm_90"}),
    "architecture that the recipe does not list": Mistake(
        2,
        ("not made for sm86", re.escape(RECIPE), "ARCH is one of sm90, sm100, sm120", "make lock"),
        env={"ARCH": "sm86"},
    ),
    # YAML
    "unquoted version": Mistake(2, (at(RECIPE), r'12\.10 as a number; quote it: "12\.10"'), BAD_VERSION),
    "unknown key": Mistake(
        2, (at(RECIPE), "unknown key 'sumary'; did you mean 'summary'"), replace(RECIPE, "summary:", "sumary:")
    ),
    "unknown key of a component": Mistake(
        2, (at(RECIPE), "did you mean 'version'"), replace(RECIPE, "wheel: torch, version:", "wheel: torch, verison:")
    ),
    "duplicate key": Mistake(
        2, (at(RECIPE), r"duplicate key 'cuda' \(first on line \d+\)", "remove one"), add(RECIPE, 'cuda: "13.0"\n')
    ),
    "wrong type": Mistake(2, (at(RECIPE), "arches"), replace(RECIPE, "arches: [sm90, sm100, sm120]", "arches: sm90")),
    "empty recipe": Mistake(2, (re.escape(RECIPE),), lambda root: (root / RECIPE).write_text("")),
    "alias": Mistake(
        2, (at(RECIPE), "aliases", "write the value out"), replace(RECIPE, "[sm90, sm100, sm120]", "&a [sm90, *a]")
    ),
    "shell in the environment": Mistake(
        2, (at(RECIPE), "env"), replace(RECIPE, 'VLLM_NO_USAGE_STATS: "1"', 'VLLM_NO_USAGE_STATS: "$(id)"')
    ),
    "smoke test that does not exist": Mistake(
        2, ("smoke test", "cuda-code"), replace(RECIPE, "smoke: [core,", "smoke: [cor,")
    ),
    "smoke test listed twice": Mistake(
        2, (at(RECIPE), "core is listed twice"), replace(RECIPE, "smoke: [core,", "smoke: [core, core,")
    ),
    "environment that Graft sets": Mistake(
        2, (re.escape(RECIPE), "PATH is set by Graft", "remove it"), replace(RECIPE, "env:", "env:\n  PATH: /x")
    ),
    "patch for another version": Mistake(
        2,
        (r"patches/vllm/series\.yaml", r"meant for vllm <0\.30, not for 0\.32\.0", "widen"),
        replace("patches/vllm/series.yaml", 'version: "<0.33"', 'version: "<0.30"'),
    ),
    "patch for another architecture": Mistake(
        2,
        (r"patches/vllm/series\.yaml", "meant for sm80, not for sm90"),
        replace("patches/vllm/series.yaml", 'version: "<0.33"', 'version: "<0.33", arches: [sm80]'),
    ),
    "test of a patch with another name": Mistake(
        2,
        (at("patches/vllm/series.yaml"), r"the test of mtp-indexer-scales is tests/test_mtp_indexer_scales\.py"),
        replace("patches/vllm/series.yaml", "tests/test_mtp_indexer_scales.py", "tests/test_glm_dsa_dcp_defaults.py"),
    ),
    "resolving while offline": Mistake(
        4, ("offline", "packages", "make lock"), remove(LOCK), ("lock",), env={"OFFLINE": "1"}
    ),
    "a check that would choose anew": Mistake(2, ("--check", "--upgrade"), words=("lock", "--check", "--upgrade")),
    "a folder where a file should be": Mistake(
        2, ("the system refuses", "zz"), lambda root: (root / "images/smoke/zz.py").mkdir()
    ),
    "build.yaml: unknown key": Mistake(
        2, (at("build.yaml"), "did you mean 'channels'"), replace("build.yaml", "channels:", "chanels:")
    ),
    "build.yaml: placeholder": Mistake(
        2, ("channels", "unknown placeholder {vlm.short}", "vllm.short"), replace("build.yaml", "{arch}", "{vlm.short}")
    ),
    # Recipes
    "recipe with a slash": Mistake(2, (NOT_A_NAME, "ls recipes"), env={"RECIPE": "../recipes/glm-dsa"}),
    "recipe of dots": Mistake(2, (NOT_A_NAME,), env={"RECIPE": ".."}),
    "recipe with a command": Mistake(2, (NOT_A_NAME,), env={"RECIPE": "$(touch owned)"}),
    "recipe with a semicolon": Mistake(2, (NOT_A_NAME,), env={"RECIPE": "glm-dsa;touch owned"}),
    "recipe with a line end": Mistake(2, (NOT_A_NAME,), env={"RECIPE": "glm-dsa\n"}),
    "recipe that is a pipe": Mistake(
        2,
        (r"recipes/pipe\.yaml", "no regular file"),
        lambda root: os.mkfifo(root / "recipes/pipe.yaml"),
        env={"RECIPE": "pipe"},
    ),
    "recipe that is there twice": Mistake(
        2,
        (r"two recipes are named glm-dsa: recipes/glm-dsa\.yaml and recipes/reference/glm-dsa\.yaml", "rename one"),
        lambda root: shutil.copy(root / RECIPE, root / "recipes/reference/glm-dsa.yaml"),
    ),
    "no patches": Mistake(
        2,
        ("patches/vllm/series.yaml: file not found", "there is no folder patches/"),
        lambda root: shutil.rmtree(root / "patches"),
    ),
    "no recipes": Mistake(
        2, ("no folder recipes/", "git checkout recipes"), lambda root: shutil.rmtree(root / "recipes")
    ),
    "no images": Mistake(
        2,
        ("there is no smoke test", "images/smoke holds no tests: git checkout images"),
        lambda root: shutil.rmtree(root / "images"),
    ),
    "recipe that does not exist": Mistake(2, ("glm-dsb", r"did you mean glm-dsa\.yaml"), env={"RECIPE": "glm-dsb"}),
    # Locks
    "no lock": Mistake(3, ("has no lock", re.escape(LOCK), "make lock RECIPE=glm-dsa"), remove(LOCK)),
    "no requirements.txt": Mistake(3, (re.escape(REQUIREMENTS), "make lock"), remove(REQUIREMENTS)),
    "stale lock": Mistake(
        3,
        ("the lock is stale: components, versions", re.escape(LOCK), "make lock RECIPE=glm-dsa"),
        replace(RECIPE, 'version: "2.30.4"', 'version: "2.30.3"'),
    ),
    "stale lock, by the base": Mistake(
        3, ("stale: the base's packages",), replace("build.yaml", "libgomp1]", "libgomp1, less]")
    ),
    "lock edited by hand": Mistake(
        2,
        ("edited by hand", re.escape(LOCK), "git checkout .*or make lock"),
        replace(LOCK, "version: 2.30.4", "version: 2.30.5"),
    ),
    "lock of another recipe": Mistake(2, ("lock of recipe 'other'", "make lock"), relock("recipe", "other")),
    "lock of a newer format": Mistake(2, ("format 99", "use a newer Graft"), relock("lock", 99)),
    "check of a lock edited by hand": Mistake(
        2, ("edited by hand",), replace(LOCK, "version: 2.30.4", "version: 2.30.5"), ("lock", "--check")
    ),
    "check of the lock of another recipe": Mistake(
        2, ("lock of recipe 'other'",), relock("recipe", "other"), ("lock", "--check")
    ),
    "check of no lock": Mistake(3, ("has no lock", "make lock"), remove(LOCK), ("lock", "--check")),
    "making the lock of a newer format anew": Mistake(
        2, ("format 99", "use a newer Graft"), relock("lock", 99), ("lock",)
    ),
    "making the tools' lock of a newer format anew": Mistake(
        2, ("format 99", "use a newer Graft"), replace(TOOLS, "tools: 1", "tools: 99"), ("lock",)
    ),
    "lock that is no YAML": Mistake(2, (re.escape(LOCK),), lambda root: (root / LOCK).write_text("{")),
    "requirements.txt edited": Mistake(2, (re.escape(REQUIREMENTS), "make lock"), add(REQUIREMENTS, "six==1.17.0\n")),
    # Patches
    "patch changed after the lock": Mistake(3, ("the lock is stale: patches", "make lock"), add(PATCH, "\n")),
    "patch that is not in the series": Mistake(
        2, (at("patches/vllm/series.yaml"), r"new\.patch", "not in the series"), add("patches/vllm/new.patch", "")
    ),
    "patch removed": Mistake(2, (at("patches/vllm/series.yaml"), r"mtp-indexer-scales\.patch"), remove(PATCH)),
    "test of a patch removed": Mistake(
        2, (at("patches/vllm/series.yaml"), "does not exist"), remove("patches/vllm/tests/test_mtp_indexer_scales.py")
    ),
    "patch that nobody knows": Mistake(
        2,
        (re.escape(RECIPE), "no patch vllm/mtp-indexer-scale$", "the series holds"),
        replace(RECIPE, "mtp-indexer-scales", "mtp-indexer-scale"),
    ),
    # Store, arguments
    "offline with an empty store": Mistake(
        4,
        ("offline", r"\d+ files \(\d\.\d GB\)", "torch 2.13.0", "without OFFLINE=1"),
        words=("fetch",),
        env={"OFFLINE": "1"},
    ),
    "unknown verb": Mistake(2, ("arguments: ", "imgae", "graft --help"), words=("imgae",)),
    "no verb": Mistake(2, ("arguments: ", "graft --help"), words=()),
    "unknown option": Mistake(2, ("arguments: ", "--fast", "graft --help"), words=("plan", "--fast")),
    "no jobs": Mistake(2, ("JOBS", "1 to 4096", "JOBS=4, or leave it out"), env={"JOBS": "0"}),
    "more jobs than any machine has": Mistake(2, ("JOBS", "1 to 4096"), env={"JOBS": "1000000000000"}),
    "jobs that are no number": Mistake(2, ("jobs", "'x'", "--help"), env={"JOBS": "x"}),
    "unknown engine": Mistake(2, ("nonsense", "embedded"), env={"ENGINE": "nonsense"}),
    "a report that there is not": Mistake(2, ("report", "'html'", "md"), words=("plan", "--report", "html")),
    "two forms at once": Mistake(
        2, ("--sarif, --report", "leave one out"), words=("lint", "--sarif", "--report", "md")
    ),
    "two forms of a check": Mistake(
        2,
        ("--sarif, --report", "leave one out"),
        words=("patch", "check", "vllm", "--against", "0.33.0", "--sarif", "--report", "md"),
    ),
    "offline, perhaps": Mistake(2, ("OFFLINE: 'maybe'", "1, yes or true; 0, no, false"), env={"OFFLINE": "maybe"}),
    # What an engine would be started for
    "size of what is not there": Mistake(
        2, ("WHAT: 'glm-dsb' is no recipe, lock or image", "did you mean glm-dsa"), words=("size", "glm-dsb")
    ),
    "difference to nothing": Mistake(2, ("B: nothing is named", "a recipe"), words=("diff", "graft:x", "")),
    "inspection of nothing": Mistake(2, ("IMAGE: no image is named", "name:tag"), words=("inspect", "")),
    "inspection of a recipe": Mistake(2, ("IMAGE: 'glm-dsa' names no image", "tag"), words=("inspect", "glm-dsa")),
    "reproduction of nothing": Mistake(2, ("IMAGE: no image is named", "name:tag"), words=("reproduce", "")),
    "import of no file": Mistake(2, ("FILE: no file is named", "--help"), words=("bundle", "import", "")),
    "import of what is not there": Mistake(
        2, ("x: there is no such bundle", "export"), words=("bundle", "import", "x")
    ),
    # What would be downloaded first
    "export to no file": Mistake(2, ("FILE: no file is named", "--help"), words=("bundle", "export", "")),
    "export to a folder": Mistake(2, ("images: this is a folder",), words=("bundle", "export", "images")),
    "export below nothing": Mistake(2, ("x: there is no such folder", "make it"), words=("bundle", "export", "x/y")),
    "a folder as the lock of the programs": Mistake(
        2,
        ("_tools.lock.yaml: this is no file", "remove it"),
        lambda root: (remove(TOOLS)(root), (root / TOOLS).mkdir()),
        words=("fetch",),
    ),
    "a link loop as the lock of the programs": Mistake(
        2,
        ("_tools.lock.yaml: this is no file", "remove it"),
        lambda root: (remove(TOOLS)(root), (root / TOOLS).symlink_to(root / TOOLS)),
        words=("lock",),
        env={"OFFLINE": "1"},
    ),
    "a tier that there is not": Mistake(2, ("tier", "'tpu'", "cpu"), words=("smoke", "--tier", "tpu")),
    "not in a project": Mistake(2, (r"no build\.yaml in /", "--project"), words=("plan", "--project", "/usr")),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_said_with_its_place_and_cure(graft: Run, project: Path, name: str) -> None:
    mistake = MISTAKES[name]
    mistake.edit(project)
    files = sorted(project.rglob("*"))
    ended = graft(*mistake.words, **mistake.env)
    assert ended.code == mistake.code, ended.err
    assert ended.out == ""
    assert ended.err.count("error: ") == 1
    assert "Traceback" not in ended.err
    assert str(project) not in ended.err, "places are named from the project's root"
    for wanted in mistake.says:
        assert re.search(wanted, ended.err, re.MULTILINE), ended.err
    assert not list(project.rglob("owned")), "a string of the user reached a shell"
    assert [path for path in sorted(project.rglob("*")) if ".graft" not in path.parts] == files

    said = graft(*mistake.words, "--json", **mistake.env)
    assert said.code == mistake.code
    document = json.loads(said.out)
    assert document["exit_code"] == mistake.code
    assert document["what"]
    assert document["cure"] or document["where"]


def test_one_document_on_stdout_is_of_one_kind(graft: Run) -> None:
    ended = graft("lint", "--sarif", "--json")
    assert ended.code == json.loads(ended.out)["exit_code"] == 2
    assert "--sarif, --json: one of the two" in ended.err


def test_a_file_of_recipes_with_another_name_is_a_finding_about_it(graft: Run, project: Path) -> None:
    shutil.copy(project / RECIPE, project / "recipes" / "Über.yaml")
    ended = graft("lint")
    assert ended.code == 2
    assert re.search("^recipes/Über.yaml:1: error: 'Über' is not a recipe name", ended.err, re.MULTILINE), ended.err
    assert "rename the file" in ended.err


@pytest.mark.parametrize("verb", ["image", "lock", "lint", "render", "fetch", "smoke"])
def test_every_verb_refuses_a_broken_recipe(graft: Run, project: Path, verb: str) -> None:
    BAD_VERSION(project)
    ended = graft(verb)
    counted = r"\d+ images plan and render; 1 error, \d+ warnings, \d+ notes\n"
    assert ended.code == 2
    assert re.fullmatch(counted if verb == "lint" else "", ended.out)
    assert re.search(at(RECIPE), ended.err)
    assert not (project / ".graft").exists(), "nothing is started for it"


def test_the_project_as_it_is_plans_for_all_its_architectures(graft: Run) -> None:
    linted = graft("lint", "--recipe", "glm-dsa")
    said = f"{len(planned_arches())} images plan and render; 0 errors, 0 warnings, 3 notes\n"
    assert (linted.code, linted.out) == (0, said), linted.err
    assert linted.err.count("not checked for") == 2, "nothing was fetched here"
    assert graft("lint").code == 0
    for arch in planned_arches():
        planned = graft("plan", ARCH=arch)
        assert planned.code == 0
        assert re.fullmatch(rf"graft:glm-dsa-{arch}-[0-9a-f]{{12}}\n", planned.out)
        assert json.loads(graft("plan", "--json", ARCH=arch).out)["tag"] == planned.out.strip()


def test_lint_and_plan_as_comments(graft: Run, project: Path) -> None:
    plan = graft("plan", "--report", "md").out
    assert re.match(r"### graft:glm-dsa-sm90-[0-9a-f]{12}\n\n\| layer \| what \| input \| key \|\n\|---", plan)
    assert "| torch |" in plan
    assert "\n- also tagged: graft:glm-dsa-sm90" in plan
    loose = graft("plan", "--report", "md", "--recipe", "dark-devotion", "--arch", "sm120").out
    assert "| input | state | identity | why |" in loose
    assert graft("lint", "--report", "md", "--recipe", "glm-dsa").out.startswith("### Lint\n\n| level | where |")
    BAD_VERSION(project)
    broken = graft("lint", "--report", "md")
    assert broken.code == 2
    assert re.search(r"^\| error \| recipes/glm-dsa.yaml:\d+ \|", broken.out, re.MULTILINE), "errors come first"
    assert broken.out.splitlines()[4].startswith("| error |")


def planned_arches() -> list[str]:
    found: list[str] = yaml.safe_load((SOURCE / RECIPE).read_text(encoding="utf-8"))["arches"]
    return found


def test_clean_asks_and_without_a_terminal_removes_nothing(graft: Run, project: Path) -> None:
    kept = project / ".graft" / "store" / "file"
    kept.parent.mkdir(parents=True)
    kept.write_text("bytes")
    refused = graft("clean")
    assert (refused.code, refused.out) == (2, "")
    assert "nothing was removed" in refused.err
    assert "YES=1" in refused.err
    assert kept.read_text() == "bytes"
    done = graft("clean", "--yes")
    assert (done.code, done.out) == (0, "removed\n")
    assert not (project / ".graft").exists()
    assert graft("clean").out == "nothing to clean\n"


LOOK_ONLY = """
import sys
def hook(event, arguments):
    if event.startswith("socket.") or event in ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.system"):
        sys.stderr.write(f"forbidden: {event}\\n")
        raise SystemExit(70)
sys.addaudithook(hook)
from graft import cli
try:
    cli.main(sys.argv[1:])
finally:
    loaded = {"requests", "docker", "urllib3"} & set(sys.modules)
    sys.stderr.write("loaded: " + " ".join(sorted(loaded)) + "\\n")
"""


@pytest.mark.parametrize("verb", ["plan", "lint", "render", "patch status"])
def test_verbs_that_look_open_no_door(project: Path, verb: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE / "scripts")}
    argv = [sys.executable, "-c", LOOK_ONLY, *verb.split()]
    done = subprocess.run(argv, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "loaded: "


def test_a_module_run_as_a_program_ends_with_the_same_codes(project: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE / "scripts"), "ARCH": "sm91"}
    argv = [sys.executable, "-m", "graft", "plan"]
    done = subprocess.run(argv, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr


# The documents and the code say the same


def test_make_help_lists_what_the_readme_names() -> None:
    done = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=SOURCE, capture_output=True, text=True, check=True
    )
    listed = {line.split()[0]: line for line in done.stdout.splitlines()}
    named = set(re.findall(r"\bmake ([a-z][a-z-]*)\b", (SOURCE / "README.md").read_text(encoding="utf-8")))
    assert named - listed.keys() == set()
    assert all(len(line.split()) > 1 for line in listed.values())
    verbs = set(cli.VERBS)
    assert verbs - listed.keys() == set(), "each verb has a target"


@pytest.mark.parametrize(
    ("name", "given"),
    [
        *((name, "as a word") for name in ("RECIPE", "REPORT", "PYTHON", "UNLOCKED", "SHELL", "NOBODY_KNOWS")),
        *((name, "in the environment") for name in ("RECIPE", "PYTHON", "UNLOCKED")),
    ],
)
def test_make_runs_nothing_of_a_value(tmp_path: Path, name: str, given: str) -> None:
    mark = tmp_path / "made"
    for text in (f"$(shell touch {mark})", f"${{shell touch {mark}}}", "$HOME"):
        word = f"{name}={text}"
        command = ["make", "--no-print-directory", "help", *([word] if given == "as a word" else [])]
        env = {**os.environ, **({} if given == "as a word" else {name: text})}
        done = subprocess.run(command, cwd=SOURCE, env=env, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"{name}: a value must have no $ in it" in done.stderr
        assert not mark.exists()


def test_make_refuses_a_dollar_in_every_variable_that_it_reads() -> None:
    makefile = (SOURCE / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    checked = set(re.search(r"OF_USERS := (.*)", makefile)[1].split())  # type: ignore[index]
    exported = set(re.search(r"(?m)^export (.*)", makefile)[1].split())  # type: ignore[index]
    read = set(re.findall(r"\$\(if \$\(([A-Z_]+)\)", makefile))
    assert exported | read <= checked


def test_make_installs_the_program_that_the_readme_names(tmp_path: Path) -> None:
    """Also in a folder whose name has a space, and from another one."""
    makefile = (SOURCE / "Makefile").read_text(encoding="utf-8")
    line = next(line for line in makefile.splitlines() if "printf" in line and "bin/graft" in line)
    home = tmp_path / "a folder"
    (home / ".venv" / "bin").mkdir(parents=True)
    python = home / ".venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    (home / "scripts").symlink_to(SOURCE / "scripts")
    command = line.strip().removeprefix("@").replace("$(VENV)", ".venv").replace("$$", "$")
    subprocess.run(["sh", "-c", command], cwd=home, check=True)
    program = home / ".venv" / "bin" / "graft"
    done = subprocess.run(["sh", program, "plan", "--help"], cwd="/", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout[:6]) == (0, "usage:"), done.stderr
    assert ".venv/bin/graft" in (SOURCE / "README.md").read_text(encoding="utf-8")


def test_the_readme_lists_the_exit_codes() -> None:
    readme = (SOURCE / "README.md").read_text(encoding="utf-8")
    table = readme.partition("## Exit codes")[2].partition("\n## ")[0]
    codes = [int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)]
    assert codes == [0, *(error.exit_code for error in errors.ERRORS)]
    everyone = {error for error in vars(errors).values() if isinstance(error, type)} - {errors.GraftError}
    # One below another has its code.
    assert {e for e in everyone if errors.GraftError in e.__bases__} == set(errors.ERRORS)


def test_every_verb_has_its_exit_codes_documented() -> None:
    page = (SOURCE / "docs" / "exit-codes.md").read_text(encoding="utf-8")
    listed = [name for row in re.findall(r"^\| (`.*?) \|", page, re.MULTILINE) for name in re.findall("`([^`]+)`", row)]
    groups = {"patch": cli.PATCH_VERBS, "bundle": cli.BUNDLE_VERBS, "recipe": cli.RECIPE_VERBS}
    groups |= {"receipt": cli.RECEIPT_VERBS, "key": cli.KEY_VERBS, "store": cli.STORE_VERBS}
    verbs = [*cli.VERBS, *cli.IMAGE_VERBS, *cli.REGISTRY_VERBS]
    verbs += [f"{group} {name}" for group, table in groups.items() for name in table]
    assert sorted(listed) == sorted(verbs)


@pytest.mark.parametrize(
    "model", [Recipe, Component, Constraint, Waiver, Project, Base, Bootstrap, BuildKind, EngineConfig]
)
def test_every_key_is_documented(model: type[Model]) -> None:
    text = (SOURCE / "docs" / "recipe.md").read_text(encoding="utf-8")
    assert [name for name in model.model_fields if f"`{name}`" not in text] == []
