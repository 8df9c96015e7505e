"""How long lint takes for 1,000 recipes of 20 components each, with their locks.

The recipes are generated into a temporary copy of the project, half of them for one architecture and half for two;
every one is loaded, held to all rules, planned and rendered. Run by `make bench`, or by hand:
`PYTHONPATH=scripts .venv/bin/python tests/bench/lint_scale.py`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import graft
from graft.commands.lint import lint_project
from graft.commands.session import open_session
from graft.console import Console
from graft.hashes import digest_of
from graft.lock import FORMAT, Lock, inputs_of, plain, write_lock
from graft.paths import Paths
from graft.project import Project, load_project
from graft.recipe import Recipe
from graft.yamlio import dump

ROOT = Path(__file__).parents[2]
RECIPES, COMPONENTS = 1000, 20


@dataclass(frozen=True)
class Scale:
    """seconds for all recipes, without starting Python; images: how many were planned and rendered."""

    recipes: int
    images: int
    errors: int
    seconds: float


def measure(recipes: int = RECIPES) -> Scale:
    """Lint in a process of its own. Raises CalledProcessError."""
    argv = [sys.executable, str(Path(__file__)), "--json", f"--recipes={recipes}"]
    env = {**os.environ, "PYTHONPATH": str(Path(graft.__file__).parents[1])}
    done = subprocess.run(argv, env=env, check=True, capture_output=True, text=True)
    return Scale(**json.loads(done.stdout))


def recipe(number: int, project: Project) -> dict[str, Any]:
    """One recipe: the parts that rules look at, and libraries."""
    components: dict[str, Any] = {
        "torch": {"wheel": "torch", "version": "2.13.0"},
        "nccl": {"wheel": "nvidia-nccl-cu13", "version": f"2.30.{number % 50}", "overrides": "torch"},
        "vllm": {"wheel": "vllm", "version": f"0.{number}.0", "commit": "5df63a720"},
    }
    for index in range(len(components), COMPONENTS):
        components[f"part{index}"] = {"wheel": f"part{index}", "version": f"1.{number}.{index}"}
    return {
        "recipe": f"made{number}",
        "summary": f"Generated recipe {number}",
        "base": next(iter(project.bases)),
        "cuda": "13.0",
        "arches": ["sm90", "sm120"][: 1 + number % 2],
        "components": components,
        "env": {"MADE": str(number)},
        "smoke": ["core"],
    }


def lock(data: dict[str, Any], project: Project) -> Lock:
    """A lock that fits the recipe."""
    model = Recipe.model_validate(data)
    pins = [(c.distribution, c.version, "image") for c in model.components.values()]
    pins += [(name, "13.0.88", "image") for name in (*project.toolkit, "nvidia-cuda-runtime")]
    pins += [("uv", "0.13.9", "tool")]
    debs = [
        {"name": name, "version": "1", "architecture": "amd64", "file": f"pool/{name}.deb", "size": 1, "set": part}
        for name, part in (("gcc", "runtime"), ("git", "builder"))
    ]
    body = {
        "lock": FORMAT,
        "recipe": data["recipe"],
        "inputs": inputs_of(project, model, {}),
        "date": "2026-11-02",
        "resolver": {"uv": "0.13.9", "python": "3.11", "platform": "x86_64-manylinux_2_36"},
        "base": {"name": model.base, "suite": "bookworm", "packages": [{**d, "sha256": sha(str(d))} for d in debs]},
        "sources": {},
        "packages": [pin(*facts) for facts in pins],
        "builder": [],
        "patches": {},
    }
    made = Lock.model_validate({**body, "digest": "0" * 64})
    return made.model_copy(update={"digest": digest_of(plain(made))})


def pin(name: str, version: str, use: str) -> dict[str, Any]:
    file = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    facts = {"file": file, "size": 1, "sha256": sha(file), "uploaded": "2026-11-01"}
    return {"name": name, "version": version, **facts, "use": use}


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def generate(root: Path, recipes: int) -> Paths:
    """A project with that many recipes and their locks; build.yaml and images/ are the real ones."""
    paths = Paths(root)
    paths.locks.mkdir(parents=True)
    shutil.copy(ROOT / "build.yaml", paths.build_yaml)
    shutil.copy(Paths(ROOT).tools_lock, paths.tools_lock)
    shutil.copytree(ROOT / "images", paths.images, ignore=shutil.ignore_patterns("__pycache__"))
    project = load_project(paths.build_yaml)
    for number in range(recipes):
        data = recipe(number, project)
        paths.recipe(data["recipe"]).write_text(dump(data), encoding="utf-8")
        write_lock(paths, lock(data, project))
    return paths


def run(recipes: int) -> Scale:
    """In this process."""
    with tempfile.TemporaryDirectory(prefix="graft-scale-") as folder:
        session = open_session(generate(Path(folder), recipes), Console())
        started = time.monotonic()
        linted = lint_project(session)
        return Scale(linted.recipes, len(linted.images), linted.count("error"), time.monotonic() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipes", type=int, default=RECIPES)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = run(given.recipes)
    print(json.dumps(asdict(found)) if given.json else found)


if __name__ == "__main__":
    main()
