"""The command line: arguments and exit codes, nothing else.

Each verb imports its own module only: start-up is most of what `plan`, or an image with nothing to do, costs.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any, NoReturn

from graft import __version__
from graft.cli.image_verbs import BUNDLE_VERBS, IMAGE_VERBS
from graft.cli.options import Verb, add_common, with_relative_places
from graft.cli.patch_verbs import PATCH_VERBS
from graft.cli.receipt_verbs import RECEIPT_VERBS
from graft.cli.recipe_verbs import RECIPE_VERBS
from graft.cli.registry_verbs import KEY_VERBS, REGISTRY_VERBS
from graft.cli.store_verbs import STORE_VERBS
from graft.cli.verbs import VERBS
from graft.console import Console
from graft.errors import BadInput, GraftError, Interrupted


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run one verb and exit with its documented code."""
    words = list(sys.argv[1:] if argv is None else argv)
    signal.signal(signal.SIGTERM, _as_interrupt)
    console = Console(json_mode="--json" in words)
    try:
        main_inner(words, console)
    except GraftError as problem:
        console.error(problem)
        sys.exit(problem.exit_code)
    except KeyboardInterrupt:
        interrupted = Interrupted("interrupted", cure="run the same command: it goes on where it stopped")
        console.error(interrupted)
        sys.exit(interrupted.exit_code)
    except BrokenPipeError:
        # The reader of stdout went away, as `| head` does; nothing is left to say to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    sys.exit(0)


def main_inner(words: Sequence[str], console: Console) -> None:
    """Run one verb; raises GraftError."""
    options = parser().parse_args(words)
    try:
        options.run(options, console)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as problem:
        refused = BadInput(
            f"the system refuses: {problem.strerror or problem}",
            where=str(problem.filename) if problem.filename else None,
            cure="check that it exists, whose it is, and that the disk is not full",
        )
        raise with_relative_places(refused, options) from problem
    except GraftError as problem:
        raise with_relative_places(problem, options) from problem.__cause__


class _Parser(argparse.ArgumentParser):
    """argparse, with Graft's way of saying what is wrong; an option is written in full, as --json is looked for."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **settings})

    def error(self, message: str) -> NoReturn:
        raise BadInput(message, where="arguments", cure=f"{self.prog} --help")


def parser() -> argparse.ArgumentParser:
    """All verbs and their options. Environment variables of the same names are the Makefile's way in."""
    top = _Parser(
        prog="graft", description="pinned upstream projects plus small patches, as a tested image per GPU arch"
    )
    top.add_argument("--version", action="version", version=f"graft {__version__}")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=_Parser)
    _add(verbs, VERBS | IMAGE_VERBS | REGISTRY_VERBS)
    patch = verbs.add_parser("patch", help="look at patches, try them, and change the series")
    _add(patch.add_subparsers(dest="patch_verb", required=True, metavar="VERB", parser_class=_Parser), PATCH_VERBS)
    bundle = verbs.add_parser("bundle", help="carry a build or an image to machines without network")
    _add(bundle.add_subparsers(dest="bundle_verb", required=True, metavar="VERB", parser_class=_Parser), BUNDLE_VERBS)
    recipe = verbs.add_parser("recipe", help="look at recipes")
    _add(recipe.add_subparsers(dest="recipe_verb", required=True, metavar="VERB", parser_class=_Parser), RECIPE_VERBS)
    receipt = verbs.add_parser("receipt", help="look at receipts of the gate, and verify them")
    _add(
        receipt.add_subparsers(dest="receipt_verb", required=True, metavar="VERB", parser_class=_Parser), RECEIPT_VERBS
    )
    store = verbs.add_parser("store", help="components that are compiled already, here and in the shared registry")
    _add(store.add_subparsers(dest="store_verb", required=True, metavar="VERB", parser_class=_Parser), STORE_VERBS)
    keys = verbs.add_parser("key", help="keys for signatures")
    _add(keys.add_subparsers(dest="key_verb", required=True, metavar="VERB", parser_class=_Parser), KEY_VERBS)
    return top


def _add(verbs: argparse._SubParsersAction[_Parser], table: Mapping[str, Verb]) -> None:
    for name, (run, text, options) in table.items():
        verb = verbs.add_parser(name, help=text, description=text)
        verb.set_defaults(run=run)
        add_common(verb)
        for flag, settings in options.items():
            verb.add_argument(flag, **settings)  # type: ignore[arg-type]


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
