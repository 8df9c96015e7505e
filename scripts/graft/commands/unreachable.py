"""Why a recipe cannot be locked, or built without a lock: each input that cannot be had, by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from graft.commands.session import Session, unlocked_for
from graft.errors import BadInput, FetchFailed, LockStale
from graft.pins import Input, inputs_of_recipe
from graft.recipe import Recipe

#: What a lock can name today: files of the host's package index,
LOCKABLE = frozenset({"index", "wheels", "tools"})
#: ... and what a recipe pins by its content.
PINNED = frozenset({"git", "pull", "archive"})


def refuse_unlocked(session: Session, recipe: Recipe, *, asked: bool) -> NoReturn:
    """A recipe without a lock is built only when that is asked for, and only when everything can be had.

    Raises BadInput when nobody asked, else FetchFailed with every input that is missing.
    """
    planned = unlocked_for(session, recipe, session.arch)
    where = session.paths.relative(session.paths.recipe(recipe.recipe))
    if not asked:
        names = ", ".join(i.name for i in planned.floating)
        raise BadInput(
            f"recipe {recipe.recipe} is unlocked: these inputs may be others tomorrow: {names}",
            where=where,
            cure="`graft plan` lists them; make image UNLOCKED=1 builds it all the same, and the image says so",
        )
    raise _missing(session, recipe, planned.inputs, "build")


def refuse_unlockable(session: Session, recipe: Recipe, *, check: bool) -> None:
    """Raises FetchFailed for a recipe that no lock can be made of here, and LockStale when that was to be checked."""
    found = [item for arch in recipe.arches for item in inputs_of_recipe(session.project, recipe, arch)]
    inputs = list({item.name: item for item in found}.values())
    bootstrap = session.project.bases[recipe.base].bootstrap is not None
    beyond = [i for i in inputs if not _lockable(i, bootstrap=bootstrap)]
    if not recipe.unlocked and not beyond:
        return
    if check:
        raise LockStale(
            f"recipe {recipe.recipe} has no lock" + (": it is unlocked" if recipe.unlocked else ""),
            where=session.paths.relative(session.paths.recipe(recipe.recipe)),
            cure="pin what floats, take out `unlocked: true`, then make lock",
        )
    if not beyond:
        raise _needless(session, recipe)
    raise _missing(session, recipe, inputs, "lock")


def _lockable(item: Input, *, bootstrap: bool) -> bool:
    if item.kind in ("base", "apt"):
        return bootstrap
    if item.kind in PINNED:
        return item.state == "pinned"
    return item.kind in LOCKABLE and not item.address


def _needless(session: Session, recipe: Recipe) -> BadInput:
    return BadInput(
        f"recipe {recipe.recipe} is unlocked, and nothing in it has to float",
        where=session.paths.relative(session.paths.recipe(recipe.recipe)),
        cure=f"take out `unlocked: true`, then make lock RECIPE={recipe.recipe}",
    )


def _missing(session: Session, recipe: Recipe, inputs: Sequence[Input], verb: str) -> FetchFailed | BadInput:
    # An HTTP client is loaded only to say this.
    from graft.reach import unreachable

    missing = unreachable(inputs, offline=session.offline)
    where = session.paths.relative(session.paths.recipe(recipe.recipe))
    if not missing:
        return _needless(session, recipe)
    listed = "\n".join(f"  {item.name}: {item.why}" for item in missing)
    return FetchFailed(
        f"{len(missing)} of {len(inputs)} inputs of {recipe.recipe} cannot be had from here:\n{listed}",
        where=where,
        cure=f"nothing was changed; {verb} it where these can be reached, or pin what can be reached from here",
    )
