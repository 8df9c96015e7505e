"""`graft patch drop`: take a patch out of the recipes, then out of the series."""

from __future__ import annotations

import shlex

from graft.commands.patch_pins import reference, series_of
from graft.commands.session import Session
from graft.errors import BadInput
from graft.patching.series_text import without_record, without_ref
from graft.patching.swap import editing
from graft.patchset import PatchSet
from graft.recipe import load_recipe, recipe_names


def drop(session: Session, patch: str, *, because: str) -> None:
    """Take a patch out of every recipe that lists it, then its record, file and test out of the series.

    Recipes come first, so that after each step everything can be loaded. Raises BadInput, also while another patch
    comes after it.
    """
    component, patch_id = reference(patch)
    # It is printed, and goes into a commit message: nothing in it may steer a terminal.
    reason = " ".join("".join(c if c.isprintable() else " " for c in because).split())
    if not reason:
        raise BadInput("a reason is needed", where="--because", cure="say why the patch is no longer needed")
    with editing(session.paths, session.console.say) as edit:
        old = edit.contents(component)
        # A mistyped recipe is said, though patches leave every recipe.
        load_recipe(session.paths, session.project, session.recipe)
        found = series_of(session, component)
        found.select([patch_id])
        _refuse_needed(found, patch_id)
        recipes = [name for name in recipe_names(session.paths) if _lists(session, name, patch)]
        files = [session.paths.recipe(name) for name in recipes]
        # All are made, and the new folder is, before the first is written.
        texts = [without_ref(file.read_bytes(), file, patch) for file in files]
        new = _without(old, found, patch_id)
        prepared = edit.prepare(component, old, new)
        for file, text in zip(files, texts, strict=True):
            edit.replace_file(file, text)
        prepared.commit()
    for name in recipes:
        session.console.say(f"  taken out of {session.paths.relative(session.paths.recipe(name))}")
        session.console.say(f"next: make lock RECIPE={name}")
    session.console.say(f"to commit it: git commit -am {shlex.quote(f'Drop {patch}: {reason}')}")
    data = {"dropped": patch, "because": reason, "recipes": recipes, "series": "series.yaml" in new}
    session.console.result(f"dropped {patch}: {reason}", data)


def _refuse_needed(found: PatchSet, patch_id: str) -> None:
    needing = [patch.id for patch in found.patches if patch_id in patch.record.after]
    if needing:
        raise BadInput(
            f"{found.component}/{needing[0]} comes after {patch_id}",
            where=str(found.folder / "series.yaml"),
            cure=f"drop {found.component}/{needing[0]} first, or take {patch_id} out of its `after`",
        )


def _lists(session: Session, recipe: str, patch: str) -> bool:
    return patch in load_recipe(session.paths, session.project, recipe).patches


def _without(old: dict[str, tuple[int, bytes]], found: PatchSet, patch_id: str) -> dict[str, tuple[int, bytes]]:
    """The folder without one patch; without a series when it was the last."""
    record = next(patch.record for patch in found.patches if patch.id == patch_id)
    new = {name: facts for name, facts in old.items() if name not in (record.file, record.test)}
    mode, series = new.pop("series.yaml")
    if len(found.patches) > 1:
        new["series.yaml"] = (mode, without_record(series, found.folder / "series.yaml", patch_id))
    return new
