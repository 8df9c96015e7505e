"""The components of an image: found in the store, taken from the registry, or compiled and then stored."""

from __future__ import annotations

import functools
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from graft.built.store import BuiltStore, Entry, Wanted
from graft.commands.compiling import note, once_more, turns_of
from graft.commands.session import Session
from graft.commands.sharing import Sharing, sharing
from graft.errors import BadInput, BuildFailed, RegistryFailed
from graft.plan import Plan

if TYPE_CHECKING:
    from graft.engine import Engine
    from graft.registry.client import Registry
    from graft.render import Rendered

#: The longest wait before another try: the build goes on without the registry, so nobody shall wait long for it.
LONGEST_PAUSE = 1.0


@dataclass(frozen=True)
class Compiled:
    """What compiling took. stages: stage -> seconds of its steps that ran; total: of all of it."""

    stages: Mapping[str, float]
    total: float


def store_of(session: Session) -> BuiltStore:
    return BuiltStore(session.paths.store / "built", session.console.warn)


def wanted_of(planned: Plan) -> dict[str, Wanted]:
    """What the store is asked for, by component."""
    return {b.name: Wanted(b.name, planned.arch.name, b.keyed.key, b.keyed.inputs) for b in planned.builds}


def reused(session: Session, planned: Plan) -> frozenset[str]:
    """The components that the store has; nothing is read but names."""
    store = store_of(session)
    return frozenset(name for name, wanted in wanted_of(planned).items() if store.has(wanted))


def find(session: Session, planned: Plan) -> dict[str, Entry]:
    """The components that need no compiler: those of the store, and of the registry that build.yaml names.

    Raises FetchFailed for wheels with another key inside.
    """
    store = store_of(session)
    wanted = wanted_of(planned)
    found = {name: entry for name, item in wanted.items() if (entry := store.find(item)) is not None}
    lacking = [item for name, item in wanted.items() if name not in found]
    if lacking and session.project.store.registry and not session.offline:
        from graft.built.remote import pull

        with _unless_down(session, "built components are not looked for there"):
            registry = store_registry(session)
            for item in lacking:
                entry = pull(registry, store, item, store.root / f".pull-{item.component}")
                if entry is not None:
                    session.console.say(f"  took {item.component} {item.key[:12]} from {registry.repository}")
                    found[item.component] = entry
    for name in found:
        session.console.say(f"  reused {name} {wanted[name].key[:12]}: nothing of it is compiled")
    return found


def build_components(
    session: Session,
    planned: Plan,
    engine: Engine,
    rendered: Rendered,
    folder: Path,
    found: Mapping[str, Entry],
) -> Compiled:
    """Have the wheels of all components in the contexts; what was not `found` is compiled, and stored."""
    from graft import build

    for name, entry in found.items():
        build.place_built(folder, name, entry.wheels())
    missing = [b.name for b in planned.builds if b.name not in found]
    if not missing:
        return Compiled({}, 0.0)
    log = session.paths.logs / f"{planned.recipe.recipe}-{planned.arch.name}-components.log"
    log.unlink(missing_ok=True)
    started = time.monotonic()
    cache = sharing(session, planned)
    cache.bring(missing, folder)
    have = set(found)
    for turn in turns_of(session, planned, missing, is_local=engine.host.startswith("unix://")):
        run = functools.partial(
            build.build_components,
            folder,
            rendered,
            planned,
            engine.docker,
            engine.env(),
            console=session.console,
            log=log,
            built=frozenset(have),
            shared=cache.components,
        )
        with session.console.step(f"build {', '.join(turn.names)}"):
            try:
                out = Path(once_more(session, functools.partial(run, turn.names), turn.jobs))
            except BuildFailed:
                # A component that is finished stays finished, also where the engine's cache is thrown away.
                done = [name for name in turn.names if f"built-{name}" in build.stage_seconds(log)]
                if done:
                    # The error to tell is the first one.
                    with suppress(BuildFailed):
                        _keep(session, planned, Path(run(done, jobs=turn.jobs)), done, cache, log)
                raise
            for name, entry in _keep(session, planned, out, turn.names, cache, log).items():
                build.place_built(folder, name, entry.wheels())
                have.add(name)
    return Compiled(build.stage_seconds(log), time.monotonic() - started)


def share(session: Session, planned: Plan) -> None:
    """After a gate that passed: the components of the image into the registry that build.yaml names."""
    if not planned.builds or not session.project.store.registry or session.offline:
        return
    from graft.built.remote import push

    store, wanted = store_of(session), wanted_of(planned)
    entries = [entry for item in wanted.values() if (entry := store.find(item)) is not None]
    with _unless_down(session, "built components are not shared"):
        registry = store_registry(session)
        for entry in entries:
            if push(registry, entry):
                record = entry.record
                session.console.say(f"shared {record.component} {record.key[:12]} in {registry.repository}")


def store_registry(session: Session) -> Registry:
    """The registry of built components. Raises BadInput when build.yaml names none."""
    from graft.commands.registry import registry_of
    from graft.registry.reference import parse_repository

    where = "build.yaml: store.registry"
    if session.project.store.registry is None:
        raise BadInput("no registry is named", where=where, cure="store: {registry: host[:port]/path}")
    default = f"{session.project.repository}-components"
    registry = registry_of(parse_repository(session.project.store.registry, default, where))
    registry.pause = lambda seconds: time.sleep(min(seconds, LONGEST_PAUSE))
    return registry


def _keep(
    session: Session, planned: Plan, out: Path, names: Collection[str], cache: Sharing, log: Path
) -> dict[str, Entry]:
    """What was compiled into the store, what its compilers took into the records, and its objects to other machines."""
    from graft.build import measured

    store, wanted = store_of(session), wanted_of(planned)
    kept = {name: store.add(wanted[name], sorted((out / name).glob("*.whl"))) for name in names}
    note(session, planned, {name: took for name, took in measured(log).items() if name in names})
    cache.give(names, out)
    return kept


@contextmanager
def _unless_down(session: Session, but: str) -> Iterator[None]:
    """Go on without the registry, and say so once."""
    try:
        yield
    except (RegistryFailed, BadInput) as problem:
        place = f"{problem.where}: " if problem.where else ""
        session.console.warn(f"{place}{problem.what}: {but}")
