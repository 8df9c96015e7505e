"""The compilers of a build: how many at once, what they took, and one more try with fewer when memory ran out."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from graft.budget import GIB, Machine, Work, share, this_machine, turns
from graft.commands.estimate import changed_inputs, component_step, durations, needs_of
from graft.commands.session import Session, last
from graft.console import size
from graft.durations import UNREADABLE, Durations, is_measured
from graft.errors import BuildFailed, OutOfMemory
from graft.plan import Plan

if TYPE_CHECKING:
    from graft.build import Measured

#: What one compiler is given above the largest that was seen: the next source may be larger.
HEADROOM = 1.25
#: Bytes on the engine's disk for each byte of a wheel: unpacked, and the largest layer once more on its way.
UNPACKED = 2.5
#: What is kept of a build; those of the compile cache are None where there was none.
OF_THE_CACHE = ("hits", "misses", "uncached", "shared")
FACTS = ("seconds", "jobs", "peak_gb", *OF_THE_CACHE)


class Turn(NamedTuple):
    """Components that are built in one call of the engine. jobs: component -> compilers at once; of a component that is
    not in it, the build looks itself."""

    names: tuple[str, ...]
    jobs: Mapping[str, int]


def jobs_of(session: Session, planned: Plan, *, is_local: bool, machine: Machine | None = None) -> dict[str, int]:
    """Component -> compilers at once, where all are built in one go; empty for an engine elsewhere without JOBS.

    machine: this one when None.
    """
    if not is_local and session.jobs is None:
        return {}
    work = _work(session, planned, is_local, {b.name for b in planned.builds})
    return share(work, _machine(session, is_local, machine), session.jobs)


def turns_of(
    session: Session, planned: Plan, names: Collection[str], *, is_local: bool, machine: Machine | None = None
) -> list[Turn]:
    """How to build components: at once as far as the budget allows, else one after the other.

    machine: this one when None.
    """
    if not is_local and session.jobs is None:
        return [Turn(tuple(names), {})]
    groups = turns(_work(session, planned, is_local, names), _machine(session, is_local, machine), session.jobs)
    return [Turn(tuple(group), group) for group in groups]


def _machine(session: Session, is_local: bool, machine: Machine | None) -> Machine:
    if not is_local:
        return Machine(session.jobs or 1, session.jobs or 1)
    return machine or this_machine()


def _work(session: Session, planned: Plan, is_local: bool, names: Collection[str]) -> list[Work]:
    """What is known of the builds of components."""
    peaks, known = _peaks(session), durations(session)
    work = []
    for build in planned.builds:
        if build.name in names:
            step = component_step(build.name, planned)
            seen = peaks.most(step) if is_local else 0.0
            job = build.memory_gb if seen is None else seen * HEADROOM
            needs = needs_of(planned, build.name)
            work.append(Work(build.name, needs, math.ceil(job * GIB) if is_local else 0, known.usual(step)))
    return work


def check_disk(session: Session, planned: Plan) -> None:
    """Before an image is built in the engine of this project. Raises BuildFailed when its disk cannot hold it."""
    changed = changed_inputs(planned, last(session))
    needed = int(UNPACKED * sum(layer.size for layer in planned.layers if f"layer {layer.name}" in changed))
    free = shutil.disk_usage(session.paths.engine).free
    if free < needed:
        raise BuildFailed(
            f"the image needs about {size(needed)} more in the engine, and {size(free)} are free",
            where=session.paths.relative(session.paths.engine),
            cure="free disk space, or remove images and the build cache that are not needed (make clean removes all)",
        )


class Build(Protocol):
    """One call of the engine; returns an image id."""

    def __call__(self, *, jobs: Mapping[str, int]) -> str: ...


def once_more(session: Session, build: Build, jobs: Mapping[str, int]) -> str:
    """Run a build; when the compilers of a component were killed for memory, once more with half of its jobs."""
    try:
        return build(jobs=jobs)
    except OutOfMemory as failed:
        if failed.jobs is None or failed.jobs < 2:
            raise
        fewer = failed.jobs // 2
        session.console.say(
            f"{failed.component} ran out of memory with {failed.jobs} jobs: once more with {fewer} "
            f"(JOBS={fewer} begins there)"
        )
        return build(jobs={**jobs, failed.component: fewer})


def note(session: Session, planned: Plan, found: Mapping[str, Measured]) -> None:
    """Say what the compilers took, and keep it: for the next budget, and for the receipts of what they made."""
    for build in planned.builds:
        if took := found.get(build.name):
            session.console.say(f"  compiled {build.name}: {took}")
    _peaks(session).note({component_step(name, planned): took.peak_gb for name, took in found.items()})
    kept = _kept(session)
    keys = {build.name: build.keyed.key for build in planned.builds}
    kept |= {keys[name]: _facts(took) for name, took in found.items() if name in keys}
    place = session.paths.state / "compiled.json"
    part = place.with_name(f".{place.name}.part")
    # Facts for people: what was compiled is not lost because these cannot be kept.
    with contextlib.suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        part.replace(place)


def compiled_facts(session: Session, planned: Plan) -> list[dict[str, Any]]:
    """What is known here of how each component of the plan was compiled; by its key, so of exactly these bytes."""
    kept = _kept(session)
    return [
        {"component": build.name, "key": build.keyed.key, **kept[build.keyed.key]}
        for build in planned.builds
        if build.keyed.key in kept
    ]


def _facts(took: Measured) -> dict[str, Any]:
    return {name: getattr(took, name) for name in FACTS}


def _kept(session: Session) -> dict[str, dict[str, Any]]:
    """Component key -> facts; nothing when the file is damaged."""
    try:
        data = json.loads((session.paths.state / "compiled.json").read_text(encoding="utf-8"))
    except UNREADABLE:
        return {}
    if not isinstance(data, dict):
        return {}
    return {key: facts for key, facts in data.items() if _are_facts(facts)}


def _are_facts(found: object) -> bool:
    """Whether a receipt can hold it: one that cannot would end a gate that has run."""
    if not isinstance(found, dict) or found.keys() != set(FACTS):
        return False
    whole = {name: found[name] for name in FACTS if name not in ("seconds", "peak_gb")}
    return all(
        is_measured(value) or (value is None and name in OF_THE_CACHE) for name, value in found.items()
    ) and not any(isinstance(value, float) for value in whole.values())


def _peaks(session: Session) -> Durations:
    """GiB of the largest process of each component's build."""
    return Durations(session.paths.state / "peaks.json")
