"""A rough duration of a build, from what its steps took in past runs on this machine."""

from __future__ import annotations

from collections.abc import Mapping

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


def estimate(session: Session, planned: Plan, before: Mapping[str, str] | None, missing: int) -> tuple[float, str]:
    """Seconds, and a sentence. missing: bytes to fetch."""
    steps = build_steps(planned, before)
    if not steps:
        return 0.0, "nothing differs from the last image: about a second when it is still there"
    known = durations(session)
    seconds, unknown = known.total([*steps, gate_step(planned)])
    per_gb = known.usual(FETCH_STEP)
    if missing and per_gb is not None:
        seconds += missing / 1e9 * per_gb
    elif missing:
        unknown.append("fetch")
    if len(unknown) == len(steps) + 1 + bool(missing):
        return seconds, "no step of it ran here yet: how long it takes is not known"
    more = f", and {', '.join(unknown)}, which never ran here" if unknown else ""
    return seconds, f"about {shown(seconds)}, by past runs{more}"
