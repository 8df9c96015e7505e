"""Rules about what git hosts say today of names that stand beside pinned commits; only `--online` asks them."""

from __future__ import annotations

from collections.abc import Iterable

from graft.linting.facts import RecipeFacts
from graft.linting.model import Hit, Level, recipe_rule

SHORT = 12


@recipe_rule(
    "pin-moved",
    "warning",
    why="The pinned commit is what is built, whatever its branch does. But a pull request that was pushed to again, or "
    "a branch that is gone, says that upstream has gone on, and that the host may drop the commit one day.",
    example="git: {commit: df8ad3b..., ref: dev/next}, and dev/next is e2666d9... now",
    cure="look at what changed; pin the new commit and run make lock, or leave it as it is",
    about="the component",
)
def pin_moved(facts: RecipeFacts) -> Iterable[Hit]:
    """The branch, tag or pull request beside a commit names another one today, or nothing (with `--online`)."""
    for ref in facts.remote:
        where = facts.where(*ref.position)
        if ref.problem:
            message = f"{ref.component}: {ref.name} not checked: {ref.problem}"
            yield Hit(message, where, about=ref.component, level="note", unchecked=True)
        elif ref.now is None:
            yield Hit(
                f"{ref.component}: {ref.name} is gone; {ref.pinned[:SHORT]} is pinned", where, about=ref.component
            )
        elif ref.now != ref.pinned:
            message = f"{ref.component}: {ref.name} is {ref.now[:SHORT]} now; {ref.pinned[:SHORT]} is pinned"
            # A branch moves every day, which is why nobody builds it.
            level: Level | None = "note" if ref.name.startswith("ref ") else None
            yield Hit(message, where, about=ref.component, level=level)
