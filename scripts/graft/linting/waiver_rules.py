"""The rules about waivers of rules: their findings need the others', so `run` makes them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from graft.linting.facts import RecipeFacts
from graft.linting.model import PREFIX, RULES, Hit, recipe_rule


@recipe_rule(
    "waiver-unknown",
    "error",
    why="A waiver that no rule reads waives nothing.",
    example="waivers: [{check: lint/arch-sufix, ...}]",
    cure="name a rule of docs/rules.md that can be waived",
)
def waiver_unknown(facts: RecipeFacts) -> Iterable[Hit]:
    """A waiver names a rule that does not exist, or that cannot be waived."""
    for index, waiver in enumerate(facts.recipe.waivers if facts.recipe is not None else ()):
        if not waiver.check.startswith(PREFIX):
            continue
        rule = RULES.get(waiver.check.removeprefix(PREFIX))
        if rule is None or rule.about is None:
            said = "cannot be waived" if rule is not None else "is no rule"
            can = ", ".join(sorted(name for name, known in RULES.items() if known.about is not None))
            where = facts.where("waivers", index, "check")
            yield Hit(f"{waiver.check} {said}", where, f"these can be waived: {can}", about=waiver.check)


@recipe_rule(
    "waiver-package",
    "error",
    why="The gate finds nothing in a package that is not in the image; its waiver was meant for another name, or has "
    "served.",
    example="waivers: [{check: files, package: pynvvideocodecs, ...}]",
    cure="name a package of the lock, or remove the waiver",
)
def waiver_package(facts: RecipeFacts) -> Iterable[Hit]:
    """A waiver of the gate names a package that the lock does not have for the image, or for the waiver's `arch`."""
    if facts.recipe is None or facts.lock is None:
        return
    for index, waiver in enumerate(facts.recipe.waivers):
        if not waiver.of_gate or waiver.package is None:
            continue
        arches = facts.recipe.arches if waiver.arch is None else (waiver.arch,)
        there = {pin.name for arch in arches for pin in facts.lock.image_packages(arch)}
        there |= {
            component.distribution
            for arch in arches
            for component in facts.recipe.components_on(arch).values()
            if component.distribution
        }
        if waiver.package not in there:
            close = difflib.get_close_matches(waiver.package, sorted(there), n=1)
            cure = f"did you mean {close[0]}?" if close else None
            said = f"the lock has no package {waiver.package}" + (f" for {waiver.arch}" if waiver.arch else "")
            yield Hit(said, facts.where("waivers", index, "package"), cure, about=waiver.package)


@recipe_rule(
    "waiver-unused",
    "error",
    why="A waiver that is no longer needed would hide the next finding of its kind.",
    example="a waiver of lint/patch-ended for a patch that was dropped",
    cure="remove it from the recipe",
)
def waiver_unused(facts: RecipeFacts) -> Iterable[Hit]:
    """A waiver of a rule that finds nothing it covers. One whose rule could not look everywhere is left alone."""
    # `run` knows what was waived; see there.
    return ()
