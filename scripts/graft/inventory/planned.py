"""The inventory of a recipe or of a lock alone: what the image will hold, known without one."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import replace

from graft.inventory.model import Component, Inventory, Package
from graft.lock import Lock
from graft.plan import Plan, compiled_distribution
from graft.unlocked import UnlockedPlan

ENTRYPOINT = re.compile(r"^ENTRYPOINT (\[.+\])$", re.MULTILINE)


def of_plan(name: str, plan: Plan | UnlockedPlan, dockerfile: str) -> Inventory:
    """A recipe for one architecture; packages and patches by what its lock says, sizes are those of downloads."""
    components = {
        key: Component(c.version, c.commit or (c.git.commit if c.git else None), c.kind, c.distribution)
        for key, c in plan.recipe.components_on(plan.arch.name).items()
    }
    facts = {"recipe": plan.recipe.recipe, "arch": plan.arch.name, "CUDA": plan.recipe.cuda, "base": plan.recipe.base}
    facts |= {"Python": plan.base.python, "key": plan.image.short}
    shared = Inventory(
        name,
        "recipe",
        facts,
        "download",
        components=components,
        env=dict(sorted(plan.env.items())),
        entrypoint=entrypoint_of(dockerfile),
    )
    if isinstance(plan, UnlockedPlan):
        return replace(shared, notes=(f"{name} has no lock: its packages are not known",))
    lock = plan.lock
    built = {b.source.name: Package(b.source.version, b.source.size) for b in plan.builds}
    for build in plan.builds:
        built |= {n: Package(v) for n, v in compiled_distribution(build.component, plan.arch).items()}
    patches = {f"{key}/{pin.id}": pin.sha256 for key, entry in plan.patched().items() for pin in entry.patches}
    return replace(
        shared,
        facts={**facts, "lock": lock.digest[:12]},
        patches={ref: patches[ref] for ref in plan.patch_refs},
        python=python_of(lock, plan.arch.name, built),
        debian=debian_of(lock),
        operators=plan.operators,
    )


def of_lock(name: str, lock: Lock, arch: str) -> Inventory:
    """A lock without its recipe: packages and patches; a component is known where its source has its name."""
    patched = {key: entry for key in lock.patches if (entry := lock.patched(key, arch)) is not None}
    return Inventory(
        name,
        "lock",
        {"recipe": lock.recipe, "arch": arch, "base": lock.base.name, "lock": lock.digest[:12], "date": lock.date},
        "download",
        patches={f"{key}/{pin.id}": pin.sha256 for key, entry in patched.items() for pin in entry.patches},
        python=python_of(lock, arch, built_of(lock)),
        debian=debian_of(lock),
    )


def entrypoint_of(dockerfile: str) -> tuple[str, ...] | None:
    """The entrypoint of the published stage: the last one that is not empty."""
    found = [ast.literal_eval(words) for words in ENTRYPOINT.findall(dockerfile)]
    return tuple(found[-1]) if found else None


def python_of(lock: Lock, arch: str, built: Mapping[str, Package]) -> dict[str, Package]:
    """The locked wheels of an architecture and what is built, sorted; sizes are those of downloads."""
    wheels = {p.name: Package(p.version, p.size) for p in lock.image_packages(arch)}
    return dict(sorted({**wheels, **built}.items()))


def built_of(lock: Lock) -> dict[str, Package]:
    """What a lock says is built from source, by distribution; with what others are built from, if there is any."""
    return {pin.name: Package(pin.version, pin.size) for pin in lock.sources.values()}


def debian_of(lock: Lock) -> dict[str, Package]:
    """The base's packages that are in the image; sizes are those of downloads."""
    return {p.name: Package(p.version, p.size) for p in lock.base.packages if p.set == "runtime"}
