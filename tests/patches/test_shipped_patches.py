"""The patches that ship: each is what the lock holds, says why, and has a test. Red and green is the gate's part."""

from __future__ import annotations

import ast
import hashlib
from pathlib import Path

import pytest

from graft.lock import load_lock
from graft.patching import check_safety, parse
from graft.patchset import Patch, load_patchset
from graft.paths import Paths
from graft.recipe import recipe_names

PATHS = Paths(Path(__file__).parents[2])
SHIPPED = [
    pytest.param(folder.name, patch, id=f"{folder.name}/{patch.id}")
    for folder in sorted(PATHS.patches.iterdir())
    if folder.is_dir()
    for patch in load_patchset(folder).patches
]


@pytest.mark.parametrize(("component", "patch"), SHIPPED)
def test_a_patch_is_safe_and_says_what_it_does_above_the_diff(component: str, patch: Patch) -> None:
    check_safety(patch.data, patch.record, where=str(patch.path))
    message = patch.data.partition(b"diff --git ")[0].decode()
    assert len(message.split()) >= 20
    assert parse(patch.data).paths


@pytest.mark.parametrize(("component", "patch"), SHIPPED)
def test_every_lock_that_names_a_patch_holds_its_bytes_and_its_files(component: str, patch: Patch) -> None:
    found = 0
    for recipe in (name for name in recipe_names(PATHS) if PATHS.lock(name).is_file()):
        entries = load_lock(PATHS, recipe).patches.get(component, ())
        for pin in (pin for entry in entries for pin in entry.patches):
            if pin.id == patch.id:
                found += 1
                assert pin.sha256 == hashlib.sha256(patch.data).hexdigest()
                assert set(pin.files) == set(parse(patch.data).paths)
    assert found, "no recipe uses this patch"


@pytest.mark.parametrize(("component", "patch"), SHIPPED)
def test_a_patch_test_has_tests_and_needs_no_pytest(component: str, patch: Patch) -> None:
    for name in patch.record.tests:
        tree = ast.parse((PATHS.patches / component / name).read_text(encoding="utf-8"))
        tests = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
        imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        assert tests
        assert "pytest" not in imported
