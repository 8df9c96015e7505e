"""Options that every verb has, and the session they make."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from graft.console import Console
from graft.errors import BadInput
from graft.paths import Paths, find_root

if TYPE_CHECKING:
    from graft.commands.session import Session

Run = Callable[[argparse.Namespace, Console], None]
#: One verb: what runs it, its sentence, and its own options as argparse's keyword arguments.
Verb = tuple[Run, str, dict[str, dict[str, object]]]
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
        default=env("OFFLINE", "").lower() not in ("", "0", "no", "false"),
        help="ask nothing of any network: what the store lacks is an error",
    )
    verb.add_argument("--json", action="store_true", help="the result, or the error, as JSON on stdout")


def _mode(value: str) -> str:
    """A type, because argparse holds no default, and so not the environment's value, against `choices`."""
    if value not in MODES:
        raise argparse.ArgumentTypeError(f"{value!r} is none of {', '.join(MODES)}")
    return value


def paths_of(options: argparse.Namespace) -> Paths:
    return find_root((options.project or Path.cwd()).resolve())


def session_of(options: argparse.Namespace, console: Console) -> Session:
    from graft.commands.session import open_session

    if options.jobs is not None and options.jobs < 1:
        raise BadInput(f"jobs must be 1 or more, not {options.jobs}", where="JOBS")
    return open_session(
        paths_of(options),
        console,
        recipe=options.recipe,
        arch=options.arch,
        mode=options.engine,
        jobs=options.jobs,
        offline=options.offline,
    )
