"""Making a plan.

Pure: plain data in, plain data out; no clock, no disk, no network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graft import __version__
from graft.arch import Arch
from graft.hashes import digest_of
from graft.lock import Lock, PackagePin
from graft.plan.checks import check_flashinfer, check_toolkit, check_versions
from graft.plan.components import build_of, in_order, overlaid, overlay_of, toolchain_of
from graft.plan.files import GPU_TIER, ImageSources, files_of, image_files, stages_of_build
from graft.plan.keys import Keyed
from graft.plan.model import CHANNELS, Build, Layer, Overlay, Plan, launch_facts
from graft.project import Project
from graft.recipe import Component, Recipe
from graft.tags import check_tag

#: Distributions of NVIDIA's libraries and toolkit: big, and changed only with CUDA or torch.
CUDA_PREFIXES = ("nvidia-", "cuda-")


def plan(
    project: Project,
    recipe: Recipe,
    lock: Lock,
    arch: Arch,
    env: Mapping[str, str],
    sources: ImageSources,
    operators: Mapping[str, Sequence[str]] | None = None,
) -> Plan:
    """Everything that will happen.

    env: the image's whole environment (the stages' and the recipe's).
    operators: what the image's extensions have to register; None where that is not recorded yet.
    Raises BadInput when locked versions that belong together do not agree.
    """
    recipe = versioned(recipe, lock)
    check_versions(recipe, lock, arch)
    check_toolkit(project, recipe, lock)
    check_flashinfer(recipe, lock, arch)
    foundation, libraries, wheels = _layers(project, recipe, lock, arch)
    founded = {p.name for layer in foundation for p in layer.packages}
    build_wheels = Layer("build", tuple(p for p in lock.build_packages() if p.name not in founded))
    toolchain = toolchain_of(lock, foundation, build_wheels, arch)
    made_of: dict[str, Build] = {}
    own_stage = {n: c for n, c in recipe.components_on(arch.name).items() if c.is_built or c.is_source_only}
    for name in in_order(own_stage):
        made_of[name] = build_of(project, recipe, lock, name, sources, toolchain, arch, made_of)
    builds = tuple(b for b in made_of.values() if b.component.is_built)
    trees = tuple(b for b in made_of.values() if not b.component.is_built)
    layers = (*foundation, *libraries, *wheels)
    overlays = tuple(overlay_of(*found, layers, sources) for found in overlaid(recipe, lock, arch))
    environment = _environment(lock, arch, env, layers, builds, sources)
    stages = _stages((*trees, *builds), overlays)
    image = {
        "lock": lock.digest,
        "recipe": digest_of([recipe.recipe, recipe.summary, arch.name]),
        "arch": digest_of(arch.model_dump(mode="json")),
        # What a label or the gate knows of a component and the lock does not, as its upstream commit.
        "components": digest_of([[n, _said(c)] for n, c in recipe.components_on(arch.name).items()]),
        "layer order": digest_of([layer.name for layer in layers]),
        "env": digest_of(dict(env)),
        "stages": digest_of([files_of(sources, stages), sources.templates.get("Dockerfile.j2")]),
        "graft": __version__,
        # A label of the image, and the key must know every byte.
        "environment": environment.key,
        **{f"layer {layer.name}": digest_of([p.sha256 for p in layer.packages]) for layer in layers},
        **{f"component {b.name}": b.keyed.key for b in (*trees, *builds)},
        **{f"overlay {o.name}": o.keyed.key for o in overlays},
    }
    gate = {
        "smoke": digest_of(dict(sources.smoke)),
        "patch tests": digest_of(dict(sources.patch_tests)),
        "list": digest_of(list(recipe.smoke)),
        "waivers": digest_of([w.model_dump(mode="json") for w in recipe.waivers if w.of_gate]),
        "profiles": digest_of(launch_facts(recipe, arch.name)),
        "size budget": digest_of(recipe.size_budget.model_dump(mode="json") if recipe.size_budget else None),
    }
    if operators is not None:
        gate["operators"] = digest_of({file: list(lines) for file, lines in operators.items()})
    of_gpus = {name: digest for name, digest in sources.smoke.items() if name.startswith((GPU_TIER, "lib/"))}
    made = Plan(
        project,
        recipe,
        lock,
        arch,
        foundation,
        libraries,
        wheels,
        builds,
        overlays,
        build_wheels,
        Keyed(image),
        Keyed(gate),
        dict(env),
        environment,
        image_files(sources, stages),
        trees,
        Keyed({"smoke": digest_of(of_gpus)}),
        operators,
    )
    _check_tags(made)
    return made


def versioned(recipe: Recipe, lock: Lock) -> Recipe:
    """The recipe with the versions that the lock took from tags."""
    tagged = {n: c for n, c in recipe.components.items() if c.is_versioned_by_tags and n in lock.sources}
    told = {n: c.model_copy(update={"version": lock.sources[n].version}) for n, c in tagged.items()}
    return recipe.model_copy(update={"components": {**recipe.components, **told}}) if told else recipe


def _said(component: Component) -> dict[str, Any]:
    """What a recipe says of a component, all of which the image repeats."""
    data = component.model_dump(mode="json", exclude={"allow"})
    # Newer than images that are there: their keys stay what they are.
    return {key: value for key, value in data.items() if key not in ("requires", "accepts", "build_requires") or value}


def _layers(
    project: Project, recipe: Recipe, lock: Lock, arch: Arch
) -> tuple[tuple[Layer, ...], tuple[Layer, ...], tuple[Layer, ...]]:
    """(foundation, libraries, component wheels): big and rarely changed first."""
    components = recipe.components_on(arch.name)
    own = {c.distribution for c in components.values() if c.overrides is None}
    overriding = {c.distribution: c.overrides for c in components.values() if c.overrides}
    groups: dict[str, list[PackagePin]] = {"cuda": [], **{group: [] for group in project.groups}, "python": []}
    single: dict[str, PackagePin] = {}
    for package in lock.image_packages(arch.name):
        group = project.group_of(package.name)
        if package.name in overriding:
            overridden = recipe.components[str(overriding[package.name])].distribution
            group = project.group_of(overridden) or "python"
        elif group is None and package.name in own:
            single[package.name] = package
            continue
        elif group is None:
            group = "cuda" if package.name.startswith(CUDA_PREFIXES) else "python"
        groups[group].append(package)
    made = {name: Layer(name, tuple(packages)) for name, packages in groups.items() if packages}
    wheels = [Layer(name, (single[c.distribution],)) for name, c in components.items() if c.distribution in single]
    libraries = (made.pop("python"),) if "python" in made else ()
    return tuple(made.values()), libraries, tuple(wheels)


def _environment(
    lock: Lock,
    arch: Arch,
    env: Mapping[str, str],
    layers: Sequence[Layer],
    builds: Sequence[Build],
    sources: ImageSources,
) -> Keyed:
    """What an image is without its patches: patches can be tried in any image of the same environment."""
    runtime = [p.sha256 for p in lock.base.packages if p.set == "runtime"]
    return Keyed(
        {
            "base": digest_of(runtime),
            "python": digest_of([lock.resolver["python"], lock.resolver["platform"]]),
            "architecture": digest_of(arch.environment()),
            "env": digest_of(dict(env)),
            "stages": digest_of(files_of(sources, ("base", "foundation", "packages"))),
            **{f"layer {layer.name}": digest_of([p.sha256 for p in layer.packages]) for layer in layers},
            **{
                f"component {b.name}": digest_of({k: v for k, v in b.keyed.inputs.items() if k != "patches"})
                for b in builds
            },
        }
    )


def _stages(builds: Sequence[Build], overlays: Sequence[Overlay]) -> tuple[str, ...]:
    """The stages of an image."""
    names = ["base", "foundation", "packages", "runtime"]
    for build in builds:
        names += stages_of_build(build.component)
    if overlays:
        names += ["builder", "overlay"]
    # Its text is in the Dockerfile that the image holds.
    return tuple(dict.fromkeys([*names, "smoke"]))


def _check_tags(plan: Plan) -> None:
    for reference in (plan.tag, *plan.channels):
        check_tag(reference, CHANNELS)
