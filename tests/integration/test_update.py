"""`graft update` for real: vLLM 0.32.0 -> 0.33.0 with what moves along, in a copy of the project."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
RECIPE = "recipes/glm-dsa.yaml"
PATCHES = ("vllm/glm-dsa-dcp-defaults", "vllm/mtp-indexer-scales", "flashinfer/norm-scale-after-wait")
pytestmark = pytest.mark.timeout(900)


@dataclass(frozen=True)
class Project:
    root: Path

    def graft(self, *words: str, code: int = 0) -> str:
        env = {**os.environ, "PYTHONPATH": str(ROOT / "scripts"), "RECIPE": "", "OFFLINE": ""}
        argv = [sys.executable, "-m", "graft", *words]
        done = subprocess.run(argv, cwd=self.root, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        return done.stdout

    def json(self, *words: str, code: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.graft(*words, "--json", code=code))
        return found

    def state(self) -> dict[str, bytes]:
        names = ("recipes/*.yaml", "recipes/locks/*", "patches/*/*")
        files = (path for name in names for path in self.root.glob(name) if path.is_file())
        return {str(path.relative_to(self.root)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A copy that shares the store, so that nothing is downloaded twice."""
    root = tmp_path_factory.mktemp("update")
    for name in ("recipes", "patches", "images"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", "reference"))
    shutil.copy(ROOT / "build.yaml", root)
    (ROOT / ".graft" / "store").mkdir(parents=True, exist_ok=True)
    (root / ".graft").mkdir()
    (root / ".graft" / "store").symlink_to(ROOT / ".graft" / "store")
    yield Project(root)
    shutil.rmtree(root)


def test_a_patch_that_cannot_be_built_stops_it_after_the_report(project: Project) -> None:
    before = project.state()
    found = project.json("update", "vllm", "--to", "0.33.0", code=5)
    assert found["components"] == {
        "torch": "2.13.0 -> 2.14.0",
        "flashinfer": "0.7.0.post1 -> 0.7.2.post1",
        "vllm": "0.32.0 -> 0.33.0",
    }
    moves = {move["package"]: move for move in found["moves"]}
    assert moves["torchvision"]["group"] == moves["torch"]["group"] == "torch"
    assert all(re.fullmatch(r"20\d\d-\d\d-\d\d|-", move["released"]) for move in moves.values())
    assert "torch: ==2.13.0 -> ==2.14.0" in found["requirements"]
    assert "flashinfer-python: ==0.7.0.post1 -> ==0.7.2.post1" in found["requirements"]
    patches = {p["patch"]: p for series in found["patches"] for p in series["patches"]}
    assert {name: patch["verdict"] for name, patch in patches.items()} == dict(
        zip(PATCHES, ("ambiguous", "merged", "merged"), strict=True)
    )
    assert all(patch["end_reached"] for patch in patches.values())
    assert "flashinfer" in found["rebuilt"]
    assert project.state() == before


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["vllm", "--to", "0.99.0"], 2),
        (["vllm", "--to", "0.1.0"], 2),
        (["nothing"], 2),
        (["--to", "0.33.0"], 2),
        (["vllm", "--to", "newest"], 2),
        (["vllm", "--to", ""], 2),
        (["--offline"], 4),
    ],
)
def test_what_cannot_be_asked_for(project: Project, words: list[str], code: int) -> None:
    before = project.state()
    assert project.json("update", *words, code=code)["exit_code"] == code
    assert project.state() == before


def test_the_newest_version_is_found_whatever_the_lock_holds(project: Project) -> None:
    """The locked FlashInfer fits the locked vLLM alone; it must not hold the new one back."""
    found = project.json("update", "vllm", "--dry-run", code=5)
    assert found["components"]["vllm"].partition(" -> ")[2] >= "0.33.0"
    assert "flashinfer" in found["components"]


def test_an_update_stays_in_the_recipes_range(project: Project) -> None:
    recipe = project.root / RECIPE
    kept = recipe.read_text()
    recipe.write_text(kept.replace('version: "0.32.0"', 'version: "0.32.0", allow: ">=0.32,<0.33"'))
    try:
        before = project.state()
        assert project.json("update", "vllm")["moves"] == []
        refused = project.json("update", "vllm", "--to", "0.33.0", code=2)
        assert "allows vllm >=0.32,<0.33, not 0.33.0" in refused["what"]
        assert project.state() == before
    finally:
        recipe.write_text(kept)


def test_recipe_and_lock_move_together(project: Project) -> None:
    for patch in PATCHES:
        project.graft("patch", "drop", patch, "--because", "it has served")
    project.graft("lock")
    before = project.state()
    dry = project.json("update", "vllm", "--to", "0.33.0", "--dry-run")
    assert project.state() == before
    found = project.json("update", "vllm", "--to", "0.33.0")
    assert found == dry
    assert "component flashinfer" in found["rebuilt"]
    assert found["size_change"] != 0
    old, new = before[RECIPE].decode().splitlines(), (project.root / RECIPE).read_text().splitlines()
    changed = [(a, b) for a, b in zip(old, new, strict=True) if a != b]
    assert len(changed) == 3
    assert re.search(r'\{wheel: vllm, version: "0.33.0", commit: [0-9a-f]{9}\}', changed[-1][1])
    assert "5df63a720" not in changed[-1][1]
    project.graft("lock", "--check")
    assert "nothing newer" in project.graft("update", "vllm", "--to", "0.33.0")


def test_what_was_edited_meanwhile_is_not_overwritten(project: Project) -> None:
    """The edit comes while the update resolves: the recipe is read again before it is written."""
    program = """
import sys
from pathlib import Path
import graft.commands.update as update
def edited(*given):
    Path('recipes/glm-dsa.yaml').write_bytes(Path('recipes/glm-dsa.yaml').read_bytes() + b'# meanwhile\\n')
    return made(*given)
made, update.new_lock = update.new_lock, edited
from graft.cli import main
main(['update', 'nccl'])
"""
    before = project.state()
    env = {**os.environ, "PYTHONPATH": str(ROOT / "scripts"), "RECIPE": "", "OFFLINE": ""}
    done = subprocess.run([sys.executable, "-c", program], cwd=project.root, env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert "edited meanwhile" in done.stderr
    after = project.state()
    assert after.pop(RECIPE) == before.pop(RECIPE) + b"# meanwhile\n"
    assert after == before
