"""The command line: arguments and exit codes, nothing else.

Each verb imports its own module only: start-up is most of what `plan`, or an image with nothing to do, costs.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from graft import __version__
from graft.console import Console
from graft.errors import BadInput, GraftError, Interrupted
from graft.paths import Paths, find_root

if TYPE_CHECKING:
    from graft.commands.session import Session

Verb = Callable[[argparse.Namespace, Console], None]
MODES = ("auto", "system", "embedded")


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
    except OSError as problem:
        place = str(problem.filename) if problem.filename else None
        failed = BadInput(
            f"the system refuses: {problem.strerror or problem}",
            where=place,
            cure="check that it exists, whose it is, and that the disk is not full",
        )
        console.error(failed)
        sys.exit(failed.exit_code)
    sys.exit(0)


def main_inner(words: Sequence[str], console: Console) -> None:
    """Run one verb; raises GraftError."""
    options = parser().parse_args(words)
    options.run(options, console)
    sys.stdout.flush()


class _Parser(argparse.ArgumentParser):
    """argparse, with Graft's way of saying what is wrong."""

    def error(self, message: str) -> NoReturn:
        raise BadInput(message, where="arguments", cure=f"{self.prog} --help")


def parser() -> argparse.ArgumentParser:
    """All verbs and their options. Environment variables of the same names are the Makefile's way in."""
    top = _Parser(
        prog="graft", description="pinned upstream projects plus small patches, as a tested image per GPU arch"
    )
    top.add_argument("--version", action="version", version=f"graft {__version__}")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=_Parser)
    for name, (run, text, options) in _VERBS.items():
        verb = verbs.add_parser(name, help=text, description=text)
        verb.set_defaults(run=run)
        _common(verb)
        for flag, settings in options.items():
            verb.add_argument(flag, **settings)  # type: ignore[arg-type]
    return top


def _common(verb: argparse.ArgumentParser) -> None:
    env = os.environ.get
    verb.add_argument("--project", type=Path, default=None, help="the project's folder (default: this one or above)")
    verb.add_argument("--recipe", default=env("RECIPE") or None, help="recipes/<name>.yaml (default: build.yaml's)")
    verb.add_argument("--arch", default=env("ARCH") or None, help="sm90, sm100, ... (default: build.yaml's)")
    verb.add_argument("--engine", default=env("ENGINE") or "auto", type=_mode, help="|".join(MODES))
    verb.add_argument("--jobs", type=int, default=env("JOBS") or None, help="compiler processes at once")
    verb.add_argument(
        "--offline", action="store_true", default=env("OFFLINE", "").lower() not in ("", "0", "no", "false")
    )
    verb.add_argument("--json", action="store_true", help="the result, or the error, as JSON on stdout")


def _mode(value: str) -> str:
    """A type, because argparse holds no default, and so not the environment's value, against `choices`."""
    if value not in MODES:
        raise argparse.ArgumentTypeError(f"{value!r} is none of {', '.join(MODES)}")
    return value


def _paths(options: argparse.Namespace) -> Paths:
    return find_root((options.project or Path.cwd()).resolve())


def _session(options: argparse.Namespace, console: Console) -> Session:
    from graft.commands.session import open_session

    if options.jobs is not None and options.jobs < 1:
        raise BadInput(f"jobs must be 1 or more, not {options.jobs}", where="JOBS")
    return open_session(
        _paths(options),
        console,
        recipe=options.recipe,
        arch=options.arch,
        mode=options.engine,
        jobs=options.jobs,
        offline=options.offline,
    )


def _image(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.image import image

    image(_session(options, console), rerun_gate=options.rerun_gate, no_cache=options.no_cache)


def _plan(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.show import show_plan

    show_plan(_session(options, console), why=options.why)


def _fetch(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.tools import fetch_only

    fetch_only(_session(options, console))


def _lock(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.locking import lock

    lock(_session(options, console), upgrade=options.upgrade, base_anew=options.base, check=options.check)


def _lint(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.show import lint

    lint(_session(options, console), [options.recipe] if options.recipe else [])


def _render(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.show import show_render

    show_render(_session(options, console))


def _smoke(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.image import smoke

    smoke(_session(options, console))


def _engine(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.tools import start_engine

    start_engine(_session(options, console))


def _engine_stop(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.tools import stop_engine

    stop_engine(_paths(options), console)


def _clean(options: argparse.Namespace, console: Console) -> None:
    from graft.commands.tools import clean

    clean(_paths(options), console, yes=options.yes)


_FLAG = {"action": "store_true"}
_VERBS: dict[str, tuple[Verb, str, dict[str, dict[str, object]]]] = {
    "image": (
        _image,
        "plan, fetch, build, gate and tag the image",
        {
            "--rerun-gate": {**_FLAG, "help": "run the gate even when this image has passed it"},
            "--no-cache": {**_FLAG, "help": "build every step again"},
        },
    ),
    "plan": (
        _plan,
        "what would be fetched and built, with keys; no network, no engine",
        {"--why": {**_FLAG, "help": "name the first input that differs from the last image"}},
    ),
    "lock": (
        _lock,
        "resolve what changed in the recipe and write its lock",
        {
            "--upgrade": {**_FLAG, "help": "choose all versions anew"},
            "--base": {**_FLAG, "help": "choose the base's Debian packages anew"},
            "--check": {**_FLAG, "help": "write nothing; exit 3 when the lock is stale"},
        },
    ),
    "fetch": (_fetch, "download everything that the lock names", {}),
    "lint": (_lint, "load, plan and render every recipe for every architecture", {}),
    "render": (_render, "print the Dockerfile", {}),
    "smoke": (_smoke, "run the gate again", {}),
    "engine": (_engine, "start the engine and print how to use it", {}),
    "engine-stop": (_engine_stop, "end the embedded engine", {}),
    "clean": (_clean, "remove .graft, after asking", {"--yes": {**_FLAG, "help": "do not ask"}}),
}


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
