"""The verbs on the store of built components. Each imports its own module only, when it runs."""

from __future__ import annotations

import argparse

from graft.cli.options import FLAG, Verb, session_of
from graft.console import Console


def _ls(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.built import ls

    ls(session_of(options, console))


def _gc(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.built import gc

    gc(session_of(options, console), days=options.days, size_limit=options.size, dry_run=options.dry_run)


def _push(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.built import push

    push(session_of(options, console))


def _pull(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.built import pull

    pull(session_of(options, console))


def _why(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.built import why

    why(session_of(options, console), options.key)


STORE_VERBS: dict[str, Verb] = {
    "ls": (_ls, "every built component: key, size, when it was last of use, and which recipes name it", {}),
    "gc": (
        _gc,
        "remove what no recipe's plan names: by age, then until the store is small enough",
        {
            "--days": {"type": int, "default": 30, "metavar": "N", "help": "unused for longer (default: 30)"},
            "--size": {"default": None, "metavar": "20GB", "help": "then the oldest, until no more than this is left"},
            "--dry-run": {**FLAG, "help": "remove nothing; the same report"},
        },
    ),
    "push": (_push, "share the components of a recipe and architecture that are built here", {}),
    "pull": (_pull, "take those that are not built here from the shared registry", {}),
    "why": (
        _why,
        "what a key is the hash of, and how that differs from the nearest component in the store",
        {"key": {"metavar": "KEY", "help": "as `graft plan` and `graft store ls` show it"}},
    ),
}
