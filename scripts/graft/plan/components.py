"""The components of an image that are built or patched, with their keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graft.arch import Arch
from graft.errors import BadInput
from graft.hashes import digest_of
from graft.kinds import kind_of
from graft.lock import Lock, PackagePin, PatchedComponent
from graft.plan.files import ImageSources, files_of, own_stages, stages_of_build
from graft.plan.keys import Keyed
from graft.plan.model import Build, Layer, Overlay
from graft.plan.places import site_packages
from graft.project import Base, Project
from graft.recipe import Component, Recipe

#: One time for all, in every stage that compiles.
BUILD_EPOCH = "1577836800"


def toolchain_of(lock: Lock, foundation: Sequence[Layer], build_wheels: Layer, arch: Arch) -> dict[str, str]:
    """What every compiled component depends on: base, Python, toolkit, torch, builder, architecture."""
    return {
        "base": digest_of([p.sha256 for p in lock.base.packages]),
        "python": digest_of([lock.resolver["python"], lock.resolver["platform"]]),
        "toolkit and torch": digest_of([[p.sha256 for p in layer.packages] for layer in foundation]),
        "build requirements": digest_of([p.sha256 for p in build_wheels.packages]),
        "architecture": digest_of(arch.environment()),
    }


def build_of(
    project: Project,
    recipe: Recipe,
    lock: Lock,
    name: str,
    sources: ImageSources,
    toolchain: Mapping[str, str],
    arch: Arch,
    made: Mapping[str, Build],
) -> Build:
    """One component; those that it is built from are in `made`. Raises BadInput."""
    component = recipe.components[name]
    if name not in lock.sources:
        raise BadInput(f"component {name} is not in the lock", cure=f"make lock RECIPE={recipe.recipe}")
    source = lock.sources[name]
    patched = lock.patched(name, arch.name)
    inputs = {
        "source": source.identity,
        "patches": digest_of([p.sha256 for p in patched.patches] if patched else []),
    }
    if component.build is None:
        inputs["stages"] = digest_of(files_of(sources, own_stages(component)))
        return Build(name, component, source, patched, 0, Keyed(inputs), {}, {})
    kind = component.build
    inputs["stages"] = digest_of(files_of(sources, stages_of_build(component)))
    inputs["options"] = digest_of([kind, list(component.modules)])
    environment: dict[str, str] = {}
    if kind_of(kind).stage != "flashinfer-aot":
        environment = _build_environment(project.bases[recipe.base], recipe, component, arch)
        options = [kind, component.distribution, component.version, list(component.modules), list(source.requires)]
        options += [list(kind_of(kind).refused), sorted(component.accepts)]
        inputs["options"] = digest_of(options)
        inputs["environment"] = digest_of(environment)
    for variable, reference in sorted(component.sources.items()):
        other, _, folder = reference.partition("/")
        inputs[f"source {variable}"] = digest_of([made[other].tree_key, folder])
    inputs |= {f"needs {other}": made[other].keyed.key for other in sorted(component.needs)}
    inputs |= toolchain
    memory = project.builds[kind].memory_gb
    return Build(
        name, component, source, patched, memory, Keyed(inputs), environment, dict(sorted(component.sources.items()))
    )


def _build_environment(base: Base, recipe: Recipe, component: Component, arch: Arch) -> dict[str, str]:
    """What a build is told: the architecture in every form, the toolkit, what its kind says, what the recipe says."""
    toolkit = base.toolkit or f"{site_packages(base)}/nvidia/cu{recipe.cuda.partition('.')[0]}"
    return {
        "CUDA_HOME": toolkit,
        "SOURCE_DATE_EPOCH": BUILD_EPOCH,
        **(arch.of_family() if component.family else arch).environment(),
        **kind_of(str(component.build)).told,
        **component.build_env,
    }


def overlay_of(
    name: str, wheel: PackagePin, patched: PatchedComponent, layers: Sequence[Layer], sources: ImageSources
) -> Overlay:
    """The patched files of a wheel, with their key."""
    inputs = {
        "wheel": wheel.sha256,
        "patches": digest_of([p.sha256 for p in patched.patches]),
        "result": patched.result,
        "stages": digest_of(files_of(sources, ("overlay",))),
    }
    layer = next(layer.name for layer in layers if wheel in layer.packages)
    return Overlay(name, layer, wheel, patched, Keyed(inputs))


def in_order(components: Mapping[str, Component]) -> list[str]:
    """Names of components in the order given, but each after what it is built from."""
    waiting = dict(components)
    done: list[str] = []
    while waiting:
        # The recipe was checked for cycles.
        name = next(n for n, c in waiting.items() if not c.built_from & waiting.keys())
        done.append(name)
        del waiting[name]
    return done


def overlaid(recipe: Recipe, lock: Lock, arch: Arch) -> list[tuple[str, PackagePin, PatchedComponent]]:
    """(component, its wheel, its patches) of what is patched in a prebuilt wheel."""
    wheels = {p.name: p for p in lock.image_packages(arch.name)}
    return [
        (name, wheels[c.distribution], patched)
        for name, c in recipe.components_on(arch.name).items()
        if not c.is_built and (patched := lock.patched(name, arch.name)) is not None
    ]
