"""`graft recipe ...`: the verbs on recipes."""

from __future__ import annotations

import argparse

from graft.cli.options import Verb, session_of
from graft.console import Console


def _show(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.recipe_show import show

    # Named by position or by option; a folder before the name is taken off where the option's is.
    if options.name is not None:
        options.recipe = options.name
    show(session_of(options, console))


RECIPE_VERBS: dict[str, Verb] = {
    "show": (
        _show,
        "the effective recipe: what it says, what follows, and the state of every input that no lock names",
        {"name": {"nargs": "?", "metavar": "RECIPE", "help": "recipes/<name>.yaml (default: build.yaml's)"}},
    ),
}
