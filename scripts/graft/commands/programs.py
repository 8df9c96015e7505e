"""The locked programs that run on the host: the embedded engine's, and those that make a root file system."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from graft.commands.session import Session
from graft.errors import FetchFailed, GraftError
from graft.lock import NewerFormat
from graft.store import Wanted
from graft.toolslock import (
    RELOCK,
    ToolsLock,
    bootstrap_suites,
    check_file,
    load_tools,
    make_tools_lock,
    tools_inputs,
    write_tools,
)

if TYPE_CHECKING:
    from graft.apt import Archive, DebPin
    from graft.engine import Engine, Programs


def ready_engine(session: Session) -> Engine:
    """An engine that answers. Raises EngineMissing, and for the embedded one FetchFailed, LockStale and BadInput."""
    from graft import engine

    return engine.ensure(
        session.paths,
        session.project.engine,
        session.mode,
        session.console.say,
        functools.partial(engine_programs, session),
    )


def lock_tools(session: Session, *, anew: bool = False, check: bool = False) -> bool:
    """Lock the programs when they are not, or `anew`; True when the file was written.

    check: write nothing; raises LockStale, or BadInput, instead. Raises NewerFormat before it replaces one of those.
    """
    old = _previous(session)
    if old is not None and old.inputs == tools_inputs(session.project) and not anew:
        return False
    check_file(session.paths)
    if check:
        load_tools(session.paths, session.project)
    if session.offline:
        raise FetchFailed("offline, and the host's programs must be locked", cure="run make lock without OFFLINE=1")
    with session.console.step("lock the engine's and the bootstrap's Debian packages"):
        new = _resolve(session)
    if new == old:
        return False
    write_tools(session.paths, new)
    before = old.packages if old is not None else {}
    for name, version in new.packages.items():
        if before.get(name) != version:
            session.console.say(f"  {name}: {before.get(name, 'new,')}{' ->' if name in before else ''} {version}")
    return True


def engine_programs(session: Session) -> Programs:
    """Those of the embedded engine. Raises LockStale and BadInput."""
    from graft.engine import Programs
    from graft.hashes import digest_of

    locked = load_tools(session.paths, session.project).engine
    identity = digest_of(sorted(pin.sha256 for pins in locked.values() for pin in pins))
    return Programs(identity, functools.partial(_files, session, locked))


def bootstrap_programs(session: Session, suite: str) -> Mapping[DebPin, Path]:
    """Those that make a root file system of a Debian release. Raises LockStale, BadInput and FetchFailed."""
    locked = load_tools(session.paths, session.project).bootstrap
    return _files(session, {suite: locked[suite]})


def wanted_tools(session: Session) -> list[Wanted]:
    """Every file of the tools' lock. Raises LockStale and BadInput."""
    locked = load_tools(session.paths, session.project)
    both = [*locked.engine.items(), *locked.bootstrap.items()]
    return [item for suite, pins in both for item in _wanted(session, suite, pins)]


def _files(session: Session, locked: Mapping[str, Sequence[DebPin]]) -> dict[DebPin, Path]:
    """The packages' files, fetched into the store where they are missing."""
    from graft.fetch import fetch

    wanted = [item for suite, pins in locked.items() for item in _wanted(session, suite, pins)]
    fetch(session.store, wanted, session.console, offline=session.offline)
    return {pin: session.store.path(pin) for pins in locked.values() for pin in pins}


def _wanted(session: Session, suite: str, pins: Sequence[DebPin]) -> list[Wanted]:
    archive = functools.cache(lambda: _archive(session, suite))

    def urls(pin: DebPin) -> Sequence[str]:
        return archive().urls(pin)

    def explain(pin: DebPin) -> GraftError:
        return archive().explain_missing(pin, f"lock the host's programs anew: {RELOCK}")

    return [Wanted(pin, functools.partial(urls, pin), functools.partial(explain, pin)) for pin in pins]


def _archive(session: Session, suite: str) -> Archive:
    from graft.apt import Archive, pockets_of

    bootstraps = [base.bootstrap for base in session.project.bases.values() if base.bootstrap is not None]
    snapshot = next((b.snapshot for b in bootstraps if b.suite == suite), None)
    return Archive(session.paths, pockets_of(suite), snapshot=snapshot)


def _resolve(session: Session) -> ToolsLock:
    from graft.base import bootstrap_pins

    project = session.project
    engine = {suite: _archive(session, suite).newest(names) for suite, names in project.engine.packages.items()}
    bootstrap = {suite: bootstrap_pins(_archive(session, suite)) for suite in bootstrap_suites(project)}
    return make_tools_lock(project, engine, bootstrap)


def _previous(session: Session) -> ToolsLock | None:
    """The lock as it is, if it is a sound one of this build.yaml; a broken one is simply made again."""
    try:
        return load_tools(session.paths, session.project)
    except NewerFormat:
        raise
    except GraftError:
        return None
