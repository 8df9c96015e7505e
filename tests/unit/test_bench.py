"""What the benchmark measures is what it says: the patches really meet their files."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

BENCH = Path(__file__).parents[1] / "bench"


def load(name: str):  # type: ignore[no-untyped-def]
    spec = importlib.util.spec_from_file_location(name, BENCH / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_scale_of_lint_has_recipes_that_are_sound() -> None:
    scale = load("lint_scale")
    measured = scale.measure(recipes=4)
    assert (measured.recipes, measured.images, measured.errors) == (4, 6, 0)
    assert measured.seconds > 0
    made = scale.recipe(1, scale.load_project(scale.ROOT / "build.yaml"))
    assert len(made["components"]) == scale.COMPONENTS == 20
    assert scale.RECIPES == 1000


def test_the_scale_of_judging_has_patches_that_fit_and_some_that_do_not() -> None:
    scale = load("judge_scale")
    assert scale.run(40, 20, False).verdicts == {"exact": 18, "conflict": 2}
    assert scale.run(40, 20, True).verdicts == {"exact": 18, "conflict": 2}
    measured = scale.measure(files=20, patches=10)
    assert (measured.files, measured.patches) == (20, 10)
    assert measured.seconds > 0
