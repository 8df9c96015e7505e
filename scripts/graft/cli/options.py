"""Options that every verb has, and the session they make."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from graft.console import Console
from graft.errors import BadInput, GraftError
from graft.paths import Paths, find_root

if TYPE_CHECKING:
    from graft.commands.session import Session

Run = Callable[[argparse.Namespace, Console], None]
#: One verb: what runs it, its sentence, and its own options as argparse's keyword arguments.
Verb = tuple[Run, str, dict[str, dict[str, object]]]
#: More compilers than any machine has cores; a larger number is a slip of the hand.
MOST_JOBS = 4096
MODES = ("auto", "system", "embedded")
FLAG: dict[str, object] = {"action": "store_true"}
REPORT: dict[str, object] = {"choices": ("table", "md"), "default": "table", "help": "md: Markdown on stdout, for CI"}


def add_common(verb: argparse.ArgumentParser) -> None:
    env = os.environ.get
    verb.add_argument("--project", type=Path, default=None, help="the project's folder (default: this one or above)")
    verb.add_argument("--recipe", default=env("RECIPE") or None, help="recipes/<name>.yaml (default: build.yaml's)")
    verb.add_argument("--arch", default=env("ARCH") or None, help="sm90, sm100, ... (default: build.yaml's)")
    verb.add_argument("--engine", default=env("ENGINE") or "auto", type=_mode, help="|".join(MODES))
    verb.add_argument("--jobs", type=int, default=env("JOBS") or None, help="compiler processes at once")
    verb.add_argument(
        "--offline",
        action="store_true",
        help="ask nothing of any network: what the store lacks is an error",
    )
    verb.add_argument("--json", action="store_true", help="the result, or the error, as JSON on stdout")


def with_relative_places(problem: GraftError, options: argparse.Namespace) -> GraftError:
    """The same error, its files named from the project's root, as people type them."""
    try:
        root = paths_of(options).root
    except (GraftError, OSError):
        return problem
    inside = re.compile(rf"(?<![\w./-]){re.escape(str(root))}/")
    problem.what = inside.sub("", problem.what)
    problem.where = inside.sub("", problem.where) if problem.where else problem.where
    return problem


def _mode(value: str) -> str:
    """A type, because argparse holds no default, and so not the environment's value, against `choices`."""
    if value not in MODES:
        raise argparse.ArgumentTypeError(f"{value!r} is none of {', '.join(MODES)}")
    return value


def file_name(value: str) -> Path:
    """A type: `make` gives an empty word for a variable that is not set, and Path() would be this folder."""
    if not value:
        raise argparse.ArgumentTypeError("no file is named")
    return Path(value)


def paths_of(options: argparse.Namespace) -> Paths:
    return find_root((options.project or Path.cwd()).resolve())


def _offline(value: str) -> bool:
    """The variable OFFLINE. Raises BadInput: what is not understood must not let Graft onto the network."""
    known = {"": False, "0": False, "no": False, "false": False, "1": True, "yes": True, "true": True}
    if value.lower() not in known:
        raise BadInput(
            f"{value!r} is neither yes nor no", where="OFFLINE", cure="1, yes or true; 0, no, false or not set"
        )
    return known[value.lower()]


def session_of(options: argparse.Namespace, console: Console) -> Session:
    from graft.commands.session import open_session

    if getattr(options, "sarif", False):
        for flag, chosen in (("--json", options.json), ("--report", options.report != "table")):
            if chosen:
                raise BadInput("one of the two", where=f"--sarif, {flag}", cure="leave one out")
    if options.jobs is not None and not 1 <= options.jobs <= MOST_JOBS:
        raise BadInput(
            f"jobs must be 1 to {MOST_JOBS}, not {options.jobs}", where="JOBS", cure="JOBS=4, or leave it out"
        )
    return open_session(
        paths_of(options),
        console,
        recipe=options.recipe,
        arch=options.arch,
        mode=options.engine,
        jobs=options.jobs,
        offline=options.offline or _offline(os.environ.get("OFFLINE", "")),
    )
