"""The verbs around the main job: fetch, engine, engine-stop, clean."""

from __future__ import annotations

import shutil
import sys

from graft.commands.programs import ready_engine, wanted_tools
from graft.commands.session import Session, make_plan, wanted
from graft.console import Console, size
from graft.errors import BadInput
from graft.paths import Paths


def fetch_only(session: Session) -> None:
    """Everything that the lock names for this architecture, and the host's programs, into the store."""
    from graft.fetch import fetch

    planned = make_plan(session)
    count = fetch(
        session.store, [*wanted(session, planned), *wanted_tools(session)], session.console, offline=session.offline
    )
    session.console.result(f"{size(count)} fetched", {"bytes": count})


def start_engine(session: Session) -> None:
    """Start the engine, or find it, and print how to use it by hand."""
    engine = ready_engine(session)
    session.console.say(f"{engine.kind} engine: Docker {engine.version}, {engine.store} image store; by hand:")
    session.console.say(f"  export DOCKER_HOST={engine.host} DOCKER_CONFIG={engine.config_dir}")
    session.console.say(f"  {engine.docker} images")
    session.console.result(engine.host, {"host": engine.host, "kind": engine.kind, "version": engine.version})


def stop_engine(paths: Paths, console: Console) -> None:
    """End the embedded engine of this project; its images and cache stay. Works with a broken build.yaml."""
    from graft import engine

    ended = engine.stop(paths)
    console.result("stopped" if ended else "no embedded engine was running", {"stopped": ended})


def clean(paths: Paths, console: Console, *, yes: bool = False) -> None:
    """End the engine and remove .graft, the store with it, after asking. Works with a broken build.yaml."""
    from graft import engine

    state = paths.state
    if not state.exists():
        console.result("nothing to clean", {"removed": False})
        return
    if not yes and not _confirmed(f"remove {state}: images, build cache and downloaded files?"):
        raise BadInput("not confirmed; nothing was removed", cure="answer y, or run: make clean YES=1")
    engine.stop(paths)
    with console.step(f"remove {state}"):
        # .graft may be a link to another disk.
        shutil.rmtree(state.resolve())
        state.unlink(missing_ok=True)
    console.result("removed", {"removed": True})


def _confirmed(question: str) -> bool:
    if not sys.stdin.isatty():
        return False
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}
