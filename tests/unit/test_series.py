"""Which patches go together: by version, by architecture, by what comes after what."""

from __future__ import annotations

from pathlib import Path

import pytest
from factories import Data, make_lock, make_plan, make_recipe, patched
from patchwork import patch

from graft.commands.locking import series_by_arch
from graft.errors import BadInput
from graft.patchset import PatchSet, check_when


def series(*patches: object) -> PatchSet:
    return PatchSet("vllm", Path("patches/vllm"), tuple(patches))  # type: ignore[arg-type]


def lists(*ids: str) -> object:
    return lambda recipe: recipe.update(patches=[f"vllm/{i}" for i in ids])


ALL = patch(b"x", "everywhere")
HOPPER = patch(b"y", "hopper", when={"arches": ["sm90"]})
AFTER = patch(b"z", "after-hopper", after=["hopper"])


def test_patches_for_all_architectures_are_one_series() -> None:
    recipe = make_recipe(lists("everywhere"))
    assert series_by_arch(recipe, series(ALL)) == [(("everywhere",), tuple(recipe.arches))]


def test_a_patch_for_some_architectures_is_left_out_on_the_others() -> None:
    recipe = make_recipe(lists("everywhere", "hopper"))
    rest = tuple(arch for arch in recipe.arches if arch != "sm90")
    found = series_by_arch(recipe, series(HOPPER, ALL))
    assert found == [(("hopper", "everywhere"), ("sm90",)), (("everywhere",), rest)]


def test_architectures_without_any_patch_have_no_series() -> None:
    recipe = make_recipe(lists("hopper"))
    assert series_by_arch(recipe, series(HOPPER)) == [(("hopper",), ("sm90",))]


def test_a_patch_cannot_come_after_one_that_is_left_out() -> None:
    recipe = make_recipe(lists("hopper", "after-hopper"))
    with pytest.raises(BadInput, match="vllm/after-hopper comes after hopper, which is not meant for sm1"):
        series_by_arch(recipe, series(HOPPER, AFTER))


@pytest.mark.parametrize(
    ("version", "arches", "refusal"),
    [
        ("1.0", ["sm90", "sm120"], None),
        ("1.0", ["sm120"], "meant for sm90, not for sm120"),
        ("2.0", ["sm90"], "meant for vllm <2, not for 2.0"),
    ],
)
def test_a_patch_that_would_be_applied_nowhere_is_refused(version: str, arches: list[str], refusal: str | None) -> None:
    one = patch(b"x", "one", when={"version": "<2", "arches": ["sm90"]})
    if refusal is None:
        check_when("vllm", [one], version, arches)
    else:
        with pytest.raises(BadInput, match=refusal):
            check_when("vllm", [one], version, arches)


# The lock and the plan


def split(lock: Data) -> None:
    """vllm has two patches on sm90 and one elsewhere."""
    first, second = ("defaults", "vllm/config.py"), ("hopper", "vllm/hopper.py")
    lock["patches"]["vllm"] = [
        {**patched("wheel", first, second, installed="vllm/config.py"), "arches": ["sm90"]},
        {**patched("wheel", first, installed="vllm/config.py"), "arches": ["sm120"]},
    ]
    lock["patches"]["vllm"][0]["installed"]["vllm/hopper.py"] = "0" * 64


def recipe_of_both(recipe: Data) -> None:
    recipe["patches"].append("vllm/hopper")


def test_a_plan_has_the_patches_of_its_architecture() -> None:
    here, there = (make_plan(arch, lock=split, recipe=recipe_of_both) for arch in ("sm90", "sm120"))
    assert "vllm/hopper" in here.patch_refs
    assert "vllm/hopper" not in there.patch_refs
    assert "vllm/defaults" in there.patch_refs
    assert {o.name: len(o.patched.patches) for o in here.overlays}["vllm"] == 2
    assert {o.name: len(o.patched.patches) for o in there.overlays}["vllm"] == 1
    assert [p["id"] for p in there.facts()["patches"] if p["component"] == "vllm"] == ["defaults"]
    assert "dev.graft.patch.vllm.hopper" not in there.labels()


def test_a_component_without_patches_on_an_architecture_has_no_overlay_there() -> None:
    def only_sm90(lock: Data) -> None:
        lock["patches"]["vllm"][0]["arches"] = ["sm90"]

    assert "vllm" in {o.name for o in make_plan("sm90", lock=only_sm90).overlays}
    made = make_plan("sm120", lock=only_sm90)
    assert "vllm" not in {o.name for o in made.overlays}
    assert "vllm" not in made.patched()


def test_the_lock_says_which_series_is_whose() -> None:
    lock = make_lock(split)
    assert [pin.id for pin in lock.patched("vllm", "sm90").patches] == ["defaults", "hopper"]  # type: ignore[union-attr]
    assert [pin.id for pin in lock.patched("vllm", "sm120").patches] == ["defaults"]  # type: ignore[union-attr]
    assert lock.patched("torch", "sm90") is None
