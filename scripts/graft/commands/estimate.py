"""A rough duration of a build, from what its steps took in past runs on this machine."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from graft.budget import critical_path
from graft.commands.session import Session
from graft.durations import Durations, shown
from graft.plan import Plan

FETCH_STEP = "fetch GB"
#: Everything of a build but its components: with the big layers, or with only what stands above them.
LAYERS_STEP, ASSEMBLE_STEP = "assemble with layers", "assemble"


def durations(session: Session) -> Durations:
    """What was measured here."""
    return Durations(session.paths.state / "durations.json")


def gate_step(planned: Plan) -> str:
    return f"gate {planned.recipe.recipe}"


def changed_inputs(planned: Plan, before: Mapping[str, str] | None) -> set[str]:
    """Names of the inputs that differ from the last image's; all of them when there was none."""
    now = planned.image.inputs
    return {name for name, value in now.items() if before is None or before.get(name) != value}


def build_steps(planned: Plan, before: Mapping[str, str] | None) -> list[str]:
    """The steps that a build of the plan takes after the image with the inputs `before`."""
    changed = changed_inputs(planned, before)
    if not changed:
        return []
    built = [component_step(b.name, planned) for b in planned.builds if f"component {b.name}" in changed]
    layers = any(name.startswith("layer ") or name in ("environment", "layer order") for name in changed)
    return [*built, LAYERS_STEP if layers else ASSEMBLE_STEP]


def component_step(name: str, planned: Plan) -> str:
    return f"component {name} {planned.arch.name}"


def build_durations(
    planned: Plan, before: Mapping[str, str] | None, stages: Mapping[str, float], total: float
) -> dict[str, float]:
    """What a finished build says of its steps. stages: seconds by stage; total: of the whole build."""
    taken = {
        component_step(build.name, planned): stages.get(f"source-{build.name}", 0.0) + seconds
        for build in planned.builds
        if (seconds := stages.get(f"build-{build.name}"))
    }
    rest = max(total - sum(taken.values()), 0.0)
    # What the steps of stages took shows whether the big layers were made: the last image may be another engine's.
    layers = "foundation" in stages or "packages" in stages
    return {**taken, LAYERS_STEP if layers else ASSEMBLE_STEP: rest}


def needs_of(planned: Plan, name: str) -> frozenset[str]:
    """Builds that end before this one begins."""
    build = next(b for b in planned.builds if b.name == name)
    return frozenset(build.component.needs)


def estimate(
    session: Session,
    planned: Plan,
    before: Mapping[str, str] | None,
    missing: int,
    have: Collection[str] = (),
    groups: Iterable[Collection[str]] = (),
) -> tuple[float, str]:
    """Seconds, and a sentence with the critical path: the steps that no other one can shorten.

    missing: bytes to fetch. have: the components that the store has. groups: the components that are compiled, one
    group after the other; those of a group that do not need each other are compiled at once.
    """
    reused = {component_step(name, planned) for name in have}
    steps = [step for step in build_steps(planned, before) if step not in reused]
    if not steps:
        return 0.0, "nothing differs from the last image: about a second when it is still there"
    known = durations(session)
    taken: dict[str, float | None] = {name: known.usual(name) for name in [*steps, gate_step(planned)]}
    if missing:
        per_gb = known.usual(FETCH_STEP)
        taken["fetch"] = None if per_gb is None else missing / 1e9 * per_gb
    unknown = [name for name, seconds in taken.items() if seconds is None]
    if len(unknown) == len(taken):
        return 0.0, "no step of it ran here yet: how long it takes is not known"
    seconds = {name: taken[name] or 0.0 for name in taken}
    path = critical_path(seconds, _before(planned, steps, groups))
    total = sum(seconds[name] for name in path)
    more = f", and {', '.join(unknown)}, which never ran here" if unknown else ""
    chain = " + ".join(f"{name} {shown(seconds[name])}" for name in path if seconds[name])
    return total, f"about {shown(total)}, by past runs: {chain}{more}"


def _before(planned: Plan, steps: list[str], groups: Iterable[Collection[str]]) -> dict[str, list[str]]:
    """Step -> the steps that end before it begins."""
    components = {component_step(b.name, planned): b.name for b in planned.builds}
    needs = {step: ["fetch"] for step in steps}
    for step in steps:
        if step in components:
            others = [component_step(other, planned) for other in needs_of(planned, components[step])]
            needs[step] += [other for other in others if other in steps]
    earlier: list[str] = []
    for group in groups:
        turn = [step for name in group if (step := component_step(name, planned)) in steps]
        for step in turn:
            needs[step] += earlier
        earlier += turn
    assemble = steps[-1]
    needs[assemble] += [step for step in steps if step != assemble]
    return {**needs, gate_step(planned): [assemble]}
