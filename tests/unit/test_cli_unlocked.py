"""What a user sees of a recipe without a lock: the table, the refusals with their exit codes; nothing is written."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2]
RECIPE = "dark-devotion"
VARIABLES = ("ARCH", "RECIPE", "REGISTRY", "JOBS", "ENGINE")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the real project."""
    root = tmp_path / "project"
    root.mkdir()
    shutil.copy(SOURCE / "build.yaml", root)
    for folder in ("recipes", "patches", "images"):
        shutil.copytree(SOURCE / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return root


def graft(project: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """One call, without network."""
    base = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    whole = {**base, "PYTHONPATH": str(SOURCE / "scripts"), "OFFLINE": "1", "RECIPE": RECIPE, "ARCH": "sm120", **env}
    argv = [sys.executable, "-m", "graft", *words]
    return subprocess.run(argv, cwd=project, env=whole, capture_output=True, text=True, check=False)


def files(project: Path) -> dict[str, bytes]:
    return {str(p.relative_to(project)): p.read_bytes() for p in project.rglob("*") if p.is_file()}


def test_plan_lists_every_input_with_its_state(project: Path) -> None:
    done = graft(project, "plan", "--json")
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    states = {item["name"]: item["state"] for item in data["fetch"]}
    assert states["base"] == "floating"
    assert states["torch"] == "unreachable"
    assert states["vllm pull 31"] == "pinned"
    assert states["vllm patch mtp-topk-scores"] == "unreachable"
    assert data["unlocked"] is True
    assert "voipmonitor/vllm:dark-devotion-df8ad3b-b12x5af873a-mtptopkscores-cu132-20260621" in data["channels"]
    assert set(data["components"]) == {"b12x", "cutlass", "deepgemm", "flashinfer", "nccl", "vllm"}
    assert re.search(r"vllm pull 31\s+│ pinned", done.stderr)


def test_a_recipe_may_be_named_with_its_folder(project: Path) -> None:
    assert graft(project, "plan", RECIPE=f"reference/{RECIPE}").stdout == graft(project, "plan").stdout
    wrong = graft(project, "plan", RECIPE=f"other/{RECIPE}")
    assert (wrong.returncode, "is not a recipe name" in wrong.stderr) == (2, True)


@pytest.mark.parametrize("verb", ["plan", "render", "image", "image --unlocked"])
def test_an_architecture_that_it_does_not_support_is_refused(project: Path, verb: str) -> None:
    done = graft(project, *verb.split(), ARCH="sm90")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"recipe {RECIPE} is not made for sm90" in done.stderr


def test_an_image_of_what_floats_has_to_be_asked_for(project: Path) -> None:
    before = files(project)
    done = graft(project, "image")
    assert (done.returncode, done.stdout) == (2, "")
    assert "these inputs may be others tomorrow: base, torch" in done.stderr
    assert "UNLOCKED=1" in done.stderr
    assert files(project) == before


@pytest.mark.parametrize("verb", ["image --unlocked", "lock"])
def test_what_cannot_be_had_is_named_one_by_one(project: Path, verb: str) -> None:
    before = files(project)
    done = graft(project, *verb.split())
    assert (done.returncode, done.stdout) == (4, "")
    assert "21 of 32 inputs of dark-devotion cannot be had from here" in done.stderr
    for line in (
        "base: registry-1.docker.io: not asked: offline",
        "torch: index pytorch-cu132 has no address in build.yaml",
        "vllm: github.com: not asked: offline",
        "vllm pull 31: github.com: not asked: offline",
        "vllm patch mtp-topk-scores: published only as a file on a host that nobody else can reach",
        "cublas libcublas13-cuda-13: apt's sources are the base image's, and that is not here",
    ):
        assert f"  {line}\n" in done.stderr
    # No partial lock, and nothing else.
    assert files(project) == before


def test_a_lock_that_cannot_be_is_missing(project: Path) -> None:
    done = graft(project, "lock", "--check")
    assert (done.returncode, f"recipe {RECIPE} has no lock: it is unlocked" in done.stderr) == (3, True)


def test_a_recipe_with_commits_cannot_be_locked_either(project: Path) -> None:
    path = project / "recipes" / "reference" / "kimi-k3-upstream-aligned.yaml"
    path.write_text(path.read_text().replace("unlocked: true\n", ""))
    assert graft(project, "plan", RECIPE="kimi-k3-upstream-aligned").returncode == 3
    done = graft(project, "lock", RECIPE="kimi-k3-upstream-aligned")
    assert done.returncode == 4
    assert "vllm: github.com: not asked: offline" in done.stderr


def test_a_recipe_with_a_lock_is_not_unlocked(project: Path) -> None:
    done = graft(project, "image", "--unlocked", RECIPE="glm-dsa", ARCH="sm90")
    assert (done.returncode, "recipe glm-dsa has a lock" in done.stderr) == (2, True)


def test_unlocked_with_a_lock_beside_it_is_refused(project: Path) -> None:
    (project / "recipes" / "locks" / f"{RECIPE}.lock.yaml").write_text("lock: 2\n")
    done = graft(project, "plan")
    assert (done.returncode, "which of the two is meant?" in done.stderr) == (2, True)


def test_a_mark_that_nothing_needs_is_refused(project: Path) -> None:
    path = project / "recipes" / "glm-dsa.yaml"
    text = path.read_text()
    patches = text[text.index("patches:") : text.index("env:")]
    path.write_text(text.replace(patches, "").replace("base:", 'unlocked: true\ndate: "2026-01-01"\nbase:'))
    done = graft(project, "lock", RECIPE="glm-dsa", ARCH="sm90")
    assert (done.returncode, "nothing in it has to float" in done.stderr) == (2, True)


@pytest.mark.parametrize("verb", ["fetch", "smoke"])
def test_what_needs_a_lock_says_so(project: Path, verb: str) -> None:
    done = graft(project, *verb.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert "unlocked" in done.stderr


def test_patches_of_other_recipes_are_looked_at_all_the_same(project: Path) -> None:
    done = graft(project, "patch", "status", RECIPE="glm-dsa", ARCH="sm90")
    assert (done.returncode, done.stdout) == (0, "7 patches: 7 can be built, 0 not; 0 have served\n")


def test_lint_warns_of_exactly_what_is_not_pinned(project: Path) -> None:
    done = graft(project, "lint", "--json")
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    planned = json.loads(graft(project, "plan", "--json").stdout)["fetch"]
    warned = {f["message"].partition(": ")[0] for f in data["findings"] if f["level"] == "warning"}
    assert warned == {f"{item['name']} is {item['state']}" for item in planned if item["state"] != "pinned"}
    text = (project / "recipes/reference/dark-devotion.yaml").read_text()
    line = next(n for n, line in enumerate(text.splitlines(), 1) if "patch: mtp" in line)
    assert f"dark-devotion.yaml:{line}: warning: vllm patch mtp-topk-scores is unreachable" in done.stderr


def test_recipe_show_is_the_recipe_and_what_follows(project: Path) -> None:
    done = graft(project, "recipe", "show", "reference/gilded-gnosis-v20", "--json")
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert data["recipe"]["components"]["deepgemm"]["version"] == "0+ga6b593d28"
    shown = data["effective"]["sm120"]
    assert shown["env"]["FLASHINFER_CUDA_ARCH_LIST"] == "12.0f"
    assert shown["inputs"]["vllm tree"] == "pinned"
    assert shown["inputs"]["b12x head 2"].startswith("unreachable: ")
    text = graft(project, "recipe", "show").stdout
    assert text.startswith("# What recipes/reference/dark-devotion.yaml says, in full.\nrecipe: dark-devotion\n")
    assert "inputs" not in json.loads(graft(project, "recipe", "show", "glm-dsa", "--json").stdout)["effective"]["sm90"]


def test_render_prints_what_can_be_read_and_built_by_hand(project: Path) -> None:
    done = graft(project, "render")
    assert done.returncode == 0, done.stderr
    assert "\nFROM source-vllm AS build-vllm\n" in done.stdout
    assert "--build-context git-vllm=" in done.stderr


@pytest.mark.parametrize("verb", ["plan", "lint", "render", "recipe show"])
def test_verbs_that_look_load_no_http(project: Path, verb: str) -> None:
    tried = "import sys; from graft import cli\ntry: cli.main(sys.argv[1:])\n"
    code = tried + "finally: print('requests' in sys.modules, file=sys.stderr)"
    env = {**os.environ, "PYTHONPATH": str(SOURCE / "scripts"), "RECIPE": RECIPE, "ARCH": "sm120"}
    argv = [sys.executable, "-c", code, *verb.split()]
    done = subprocess.run(argv, cwd=project, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (0, "False")
