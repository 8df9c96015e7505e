"""From a recipe without a lock to its plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from graft import __version__
from graft.arch import Arch
from graft.hashes import digest_of
from graft.pins import component_inputs, inputs_of_recipe
from graft.plan import BUILD_EPOCH, CHANNELS, CUDA_PREFIXES, ImageSources, Keyed, files_of, in_order, site_packages
from graft.project import Base, Project
from graft.recipe import Component, Recipe
from graft.tags import check_tag
from graft.unlocked.model import OpenBuild, OpenLayer, UnlockedPlan, component_labels, skeleton_of, stages_of


def unlocked_plan(
    project: Project, recipe: Recipe, arch: Arch, env: Mapping[str, str], sources: ImageSources
) -> UnlockedPlan:
    """Everything that would happen, as far as the recipe says it.

    env: the image's whole environment. Raises BadInput for a tag that does not come out as it should.
    """
    components = recipe.components_on(arch.name)
    inputs = inputs_of_recipe(project, recipe, arch.name)
    foundation, libraries = _layers(project, components)
    requires = {r for c in components.values() if c.build for r in project.builds[c.build].requires}
    skeleton = skeleton_of(project.bases[recipe.base])
    toolchain = {
        "stages": digest_of(files_of(sources, skeleton)),
        **{f"input {i.name}": i.identity for i in inputs if not i.position or i.kind in ("base", "apt")},
        "foundation": digest_of([[layer.name, layer.wheels] for layer in foundation]),
    }
    made: dict[str, OpenBuild] = {}
    of_stages = {n: c for n, c in sorted(components.items()) if c.kind in ("git", "archive", "image", "sdist")}
    for name in in_order(of_stages):
        made[name] = _build(project, recipe, name, arch, made, toolchain, sources)
    stages = (*skeleton, *_stages(made.values()), "packages", "runtime")
    image = {
        "recipe": digest_of([recipe.recipe, recipe.summary, arch.name, recipe.cuda, recipe.release]),
        "arch": digest_of(arch.model_dump(mode="json")),
        "env": digest_of([dict(env), sorted(recipe.drop_env), sorted(recipe.keep_env)]),
        "launch": digest_of(recipe.launch.words() if recipe.launch else None),
        # What a label says of a component and no other input does.
        "components": digest_of([sorted(component_labels(components).items()), sorted(_overrides(components))]),
        "layers": digest_of([[layer.name, layer.wheels] for layer in (*foundation, *libraries)]),
        "stages": digest_of([files_of(sources, stages), sources.templates.get("Dockerfile.j2")]),
        "graft": __version__,
        **{f"input {i.name}": i.identity for i in inputs},
        **{f"component {b.name}": b.keyed.key for b in made.values()},
    }
    gate = {
        "smoke": digest_of(dict(sources.smoke)),
        "list": digest_of(list(recipe.smoke)),
        "waivers": digest_of([w.model_dump(mode="json") for w in recipe.waivers if w.of_gate]),
    }
    planned = UnlockedPlan(
        project,
        recipe,
        arch,
        inputs,
        foundation,
        libraries,
        tuple(b for b in made.values() if b.component.is_source_only),
        tuple(b for b in made.values() if not b.component.is_source_only),
        OpenLayer("build", tuple(sorted(requires))),
        Keyed(image),
        Keyed(gate),
        dict(env),
    )
    for reference in (planned.tag, *planned.channels):
        check_tag(reference, CHANNELS)
    return planned


def _stages(builds: Iterable[OpenBuild]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for build in builds for name in build.stages))


def _layers(
    project: Project, components: Mapping[str, Component]
) -> tuple[tuple[OpenLayer, ...], tuple[OpenLayer, ...]]:
    """(foundation, libraries), grouped as a locked plan groups them; what they bring in is put into the same layers."""
    wheels = {name: c for name, c in components.items() if c.wheel is not None}
    groups: dict[str, list[str]] = {"cuda": [], **{group: [] for group in project.groups}, "python": []}
    for component in wheels.values():
        name = component.distribution
        if component.overrides is not None:
            name = components[component.overrides].distribution if component.overrides in components else name
        group = project.group_of(name) or ("cuda" if name.startswith(CUDA_PREFIXES) else "python")
        groups[group].append(f"{component.distribution}=={component.version}")
    made = [OpenLayer(name, tuple(sorted(named))) for name, named in groups.items()]
    # The first and the last also take what the named ones bring in, so they are there even when nothing is named.
    brings = any(groups[name] for name in project.groups)
    foundation = tuple(layer for layer in made[:-1] if layer.wheels or (layer.name == "cuda" and brings))
    needs = any(component.distribution for component in components.values())
    return foundation, (made[-1],) if needs else ()


def _build(
    project: Project,
    recipe: Recipe,
    name: str,
    arch: Arch,
    made: Mapping[str, OpenBuild],
    toolchain: Mapping[str, str],
    sources: ImageSources,
) -> OpenBuild:
    component = recipe.components[name]
    inputs = tuple(component_inputs(name, component, project.indexes))
    environment = _environment(project.bases[recipe.base], recipe, component, arch) if component.build else {}
    stages = stages_of(component)
    keyed = {
        "source": digest_of([i.identity for i in inputs]),
        "stages": digest_of(files_of(sources, stages)),
    }
    if component.build is not None:
        keyed |= {
            "options": digest_of([component.build, component.provides, component.version, sorted(component.modules)]),
            "environment": digest_of(environment),
            "toolchain": digest_of(dict(toolchain)),
            **{f"source {variable}": _tree_key(made, other) for variable, other in component.sources.items()},
            **{f"needs {other}": made[other].keyed.key for other in component.needs},
        }
    return OpenBuild(name, component, inputs, environment, dict(sorted(component.sources.items())), Keyed(keyed))


def _tree_key(made: Mapping[str, OpenBuild], reference: str) -> str:
    component, slash, folder = reference.partition("/")
    return made[component].keyed.key + slash + folder


def _environment(base: Base, recipe: Recipe, component: Component, arch: Arch) -> dict[str, str]:
    toolkit = base.toolkit or f"{site_packages(base)}/nvidia/cu{recipe.cuda.partition('.')[0]}"
    return {
        "CUDA_HOME": toolkit,
        "SOURCE_DATE_EPOCH": BUILD_EPOCH,
        **(arch.of_family() if component.family else arch).environment(),
        **component.build_env,
    }


def _overrides(components: Mapping[str, Component]) -> list[list[str]]:
    return [[name, c.overrides] for name, c in components.items() if c.overrides is not None]
