"""Recording what an image's extensions register: by `make image` when nothing is recorded, else on request."""

from __future__ import annotations

from graft.commands.session import Session, make_plan
from graft.errors import BadInput, GateFailed
from graft.gate import OPERATORS_TEST as TEST
from graft.gate import Receipt, bound_to, found_operators, newest_receipt
from graft.operators import load_operators, with_recorded, write_operators
from graft.plan import Plan


def accept(session: Session, *, alone: bool = True) -> None:
    """Record what the last gate run of the planned image found, in place of what was recorded.

    alone: whether nothing else was asked of `graft lock`. Raises GateFailed when no run knows all operators.
    """
    if not alone:
        raise BadInput("--operators resolves nothing", where="arguments", cure="leave out the other options")
    planned = make_plan(session)
    receipt = newest_receipt(session.paths.receipts, planned.image.key)
    if receipt is None:
        raise GateFailed(
            f"no gate has run in {planned.tag} here",
            where=session.paths.relative(session.paths.receipts),
            cure=f"make image RECIPE={session.recipe} ARCH={session.arch}",
        )
    where, changed = record(session, planned, receipt)
    if not changed:
        session.console.say("these operators are recorded already")
    session.console.result(where, {"operators": where, "changed": changed, "arch": planned.arch.name})


def record_first(session: Session, planned: Plan, receipt: Receipt) -> Receipt:
    """Record what a green run found where nothing is recorded for its architecture; the receipt that then holds."""
    if planned.operators is not None or TEST not in planned.recipe.smoke:
        return receipt
    record(session, planned, receipt)
    # Else the next `make image` would run the same gate once more, against the list that this run made.
    return bound_to(session.paths.receipts, receipt, make_plan(session).gate.key)


def record(session: Session, planned: Plan, receipt: Receipt) -> tuple[str, bool]:
    """Write what a run found; (the file, whether that changed it). Raises GateFailed."""
    paths, recipe = session.paths, planned.recipe
    found = found_operators(receipt)
    old = load_operators(paths, recipe.recipe, recipe.arches)
    new = with_recorded(old, recipe.recipe, planned.arch.name, found)
    where = paths.relative(paths.operators(recipe.recipe))
    if new == old:
        return where, False
    write_operators(paths, new)
    count = sum(len(operators) for operators in found.values())
    session.console.say(
        f"recorded {count} operators of {len(found)} files for {planned.arch.name}: commit {where}, "
        "and the gate holds images to it"
    )
    return where, True
