"""`graft recipe show`: the effective recipe, with every value that was left out and what follows from it."""

from __future__ import annotations

from typing import Any

from graft.commands.session import Session
from graft.pins import inputs_of_recipe
from graft.plan import image_env
from graft.recipe import Recipe, load_recipe, select_arch
from graft.yamlio import dump


def show(session: Session) -> None:
    """The recipe as YAML on stdout, or as JSON. Raises BadInput for a recipe that is wrong.

    Stamps of commits are filled in, keys that say nothing are left out, and `effective` holds for each architecture the
    environment of the image and, where there is no lock, the state of every input.
    """
    recipe = load_recipe(session.paths, session.project, session.recipe)
    data = recipe.model_dump(mode="json", exclude_defaults=True)
    effective = {arch: _on(session, recipe, arch) for arch in recipe.arches}
    where = session.paths.relative(session.paths.recipe(recipe.recipe))
    session.console.result(
        dump({**data, "effective": effective}, f"What {where} says, in full.").rstrip("\n"),
        {"recipe": data, "effective": effective, "file": where},
    )


def _on(session: Session, recipe: Recipe, name: str) -> dict[str, Any]:
    where = session.paths.relative(session.paths.recipe(recipe.recipe))
    arch = select_arch(recipe, session.project, name, where)
    shown: dict[str, Any] = {
        "components": list(recipe.components_on(name)),
        "env": dict(sorted(image_env(session.project, recipe, arch).items())),
    }
    if recipe.unlocked:
        inputs = inputs_of_recipe(session.project, recipe, name)
        shown["inputs"] = {i.name: i.state if not i.why else f"{i.state}: {i.why}" for i in inputs}
    return shown
