"""The plan of a recipe without a lock: the same stages, with keys over what the recipe itself pins.

Pure, as `plan` is. What the recipe gives by content (commits, heads, trees, digests, hashes) is taken as a lock would
take it; what it only names goes into the keys by name, is listed, and is a label of the image. So a key says that two
images were made from the same words; only a lock can say that they were made from the same bytes.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from graft import __version__
from graft.arch import Arch
from graft.hashes import digest_of
from graft.pins import Input, component_inputs, inputs_of_recipe
from graft.plan import CHANNELS, CUDA_PREFIXES, ImageSources, Keyed, files_of, site_packages
from graft.project import Base, Project
from graft.recipe import Component, Recipe
from graft.tags import Naming, check_tag, facts_of, filled, references

#: FlashInfer and torch read these; one time for all, as in every stage that compiles.
BUILD_EPOCH = "1577836800"


@dataclass(frozen=True)
class OpenLayer:
    """Wheels that are named by version and installed together; what they bring in comes with them."""

    name: str
    wheels: tuple[str, ...]

    @property
    def context(self) -> str:
        return f"wheels-{self.name}"


@dataclass(frozen=True)
class OpenBuild:
    """A component that is not simply installed.

    inputs:      what it is made from, in the order in which that is put together.
    environment: what its compilers are told.
    sources:     variable -> the component whose source tree it names.
    """

    name: str
    component: Component
    inputs: tuple[Input, ...]
    environment: Mapping[str, str]
    sources: Mapping[str, str]
    keyed: Keyed

    @property
    def stages(self) -> tuple[str, ...]:
        """Its stages, in order: files of images/stages/."""
        return stages_of(self.component)

    @property
    def heads(self) -> tuple[str, ...]:
        """What is merged onto the commit, in order: commits, or refs under which fetched heads of numbers lie."""
        pulls = self.component.git.pulls if self.component.git else ()
        return tuple(
            pull.head or (f"refs/graft/pull/{pull.number}" if pull.number else f"refs/graft/head/{index + 1}")
            for index, pull in enumerate(pulls)
        )

    @property
    def contexts(self) -> tuple[str, ...]:
        """The named contexts of its own stages."""
        kind = self.component.kind
        lost = self.component.git is not None and bool(self.component.git.lost)
        return (f"{kind}-{self.name}", *([f"lost-{self.name}"] if lost else []))


@dataclass(frozen=True)
class UnlockedPlan:
    """What `make image` would do for a recipe without a lock."""

    project: Project
    recipe: Recipe
    arch: Arch
    inputs: tuple[Input, ...]
    foundation: tuple[OpenLayer, ...]
    libraries: tuple[OpenLayer, ...]
    sources: tuple[OpenBuild, ...]
    builds: tuple[OpenBuild, ...]
    build_wheels: OpenLayer
    image: Keyed
    gate: Keyed
    env: Mapping[str, str]

    wheels: ClassVar[tuple[OpenLayer, ...]] = ()
    overlays: ClassVar[tuple[()]] = ()

    @property
    def base(self) -> Base:
        return self.project.bases[self.recipe.base]

    @property
    def base_stage(self) -> str:
        return _skeleton(self.base)[0]

    @property
    def foundation_stage(self) -> str:
        return _skeleton(self.base)[1]

    @property
    def builder_stage(self) -> str:
        return _skeleton(self.base)[2]

    @property
    def needs_builder(self) -> bool:
        return any(b.component.image is None for b in (*self.sources, *self.builds))

    @property
    def site_packages(self) -> str:
        return site_packages(self.base)

    @property
    def epoch(self) -> int:
        """Seconds since 1970: the SOURCE_DATE_EPOCH of the image, from the recipe's date."""
        day = datetime.datetime.strptime(str(self.recipe.date), "%Y-%m-%d").replace(tzinfo=datetime.UTC)
        return int(day.timestamp())

    @property
    def tag(self) -> str:
        """The immutable reference: `graft:<recipe>-<arch>-<key12>`."""
        return f"{self.project.repository}:{self.recipe.recipe}-{self.arch.name}-{self.image.short}"

    @property
    def channels(self) -> tuple[str, ...]:
        """References that move: the templates of build.yaml and of the recipe, filled in."""
        facts = facts_of(self.recipe, Naming(self.arch.name, str(self.recipe.date), self.image.short))
        moving = (filled(template, facts, CHANNELS) for template in self.project.channels)
        return (*(f"{self.project.repository}:{tag}" for tag in moving), *references(self.recipe, facts))

    @property
    def apt_pins(self) -> tuple[str, ...]:
        """`name=version` of the Debian packages that the recipe names."""
        return tuple(i.identity for i in self.inputs if i.kind == "apt" and i.position)

    @property
    def kept_env(self) -> Mapping[str, str]:
        """What the base sets and the image keeps, where the base's files are taken without its configuration."""
        values = {name: self.base.env[name] for name in self.recipe.keep_env} if self.recipe.drop_env else {}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def floating(self) -> tuple[Input, ...]:
        return tuple(i for i in self.inputs if i.floats)

    @property
    def contexts(self) -> tuple[str, ...]:
        """The named contexts that its Dockerfile must use, all of them."""
        names = ["tools", "scripts", "metadata", "smoke-tests"]
        names += ["base-image"] if self.base.image else []
        names += ["base-debs"] if self.base.image and (self.apt_pins or self.base.runtime) else []
        names += ["builder-debs"] if self.needs_builder and self.base.builder else []
        names += [layer.context for layer in (*self.foundation, *self.libraries)]
        names += [self.build_wheels.context] if self.build_wheels.wheels else []
        return (*names, *(context for b in (*self.sources, *self.builds) for context in b.contexts))

    def labels(self) -> dict[str, str]:
        """OCI labels of the image."""
        labels = {
            "org.opencontainers.image.title": f"{self.recipe.recipe} for {self.arch.name}",
            "org.opencontainers.image.description": self.recipe.summary,
            "org.opencontainers.image.version": self.tag.partition(":")[2],
            "dev.graft.recipe": self.recipe.recipe,
            "dev.graft.arch": self.arch.name,
            "dev.graft.cuda": self.recipe.cuda,
            "dev.graft.key": self.image.key,
            "dev.graft.unlocked": ", ".join(sorted(i.name for i in self.floating)),
            **_component_labels(self.recipe.components_on(self.arch.name)),
        }
        if self.base.image is not None:
            image = self.base.image
            labels["dev.graft.base"] = f"{image.reference}@{image.digest}" if image.digest else image.reference
        if self.recipe.launch is not None:
            labels["dev.graft.launch"] = self.recipe.launch.words()
        return labels


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
    skeleton = _skeleton(project.bases[recipe.base])
    toolchain = {
        "stages": digest_of(files_of(sources, skeleton)),
        **{f"input {i.name}": i.identity for i in inputs if not i.position or i.kind in ("base", "apt")},
        "foundation": digest_of([[layer.name, layer.wheels] for layer in foundation]),
    }
    made: dict[str, OpenBuild] = {}
    for name in _in_order(components):
        made[name] = _build(project, recipe, name, arch, made, toolchain, sources)
    stages = (*skeleton, *_stages(made.values()), "packages", "runtime")
    image = {
        "recipe": digest_of([recipe.recipe, recipe.summary, arch.name, recipe.cuda, recipe.release]),
        "arch": digest_of(arch.model_dump(mode="json")),
        "env": digest_of([dict(env), sorted(recipe.drop_env), sorted(recipe.keep_env)]),
        "launch": digest_of(recipe.launch.words() if recipe.launch else None),
        # What a label says of a component and no other input does.
        "components": digest_of([sorted(_component_labels(components).items()), sorted(_overrides(components))]),
        "layers": digest_of([[layer.name, layer.wheels] for layer in (*foundation, *libraries)]),
        "stages": digest_of([files_of(sources, stages), sources.templates.get("Dockerfile.j2")]),
        "graft": __version__,
        **{f"input {i.name}": i.identity for i in inputs},
        **{f"component {b.name}": b.keyed.key for b in made.values()},
    }
    gate = {
        "smoke": digest_of(dict(sources.smoke)),
        "list": digest_of(list(recipe.smoke)),
        "waivers": digest_of([w.model_dump(mode="json") for w in recipe.waivers]),
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


def stages_of(component: Component) -> tuple[str, ...]:
    """The stages of a component that is not simply installed."""
    if component.image is not None:
        return ("build-image",)
    source = f"source-{component.kind}"
    return (source,) if component.build is None else (source, f"build-{component.build}")


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


def _in_order(components: Mapping[str, Component]) -> list[str]:
    """Components with stages of their own: sources before what is built from them, else by name."""
    waiting = {name: c for name, c in sorted(components.items()) if c.kind in ("git", "archive", "image", "sdist")}
    done: list[str] = []
    while waiting:
        # The recipe was checked for cycles.
        name = next(n for n, c in waiting.items() if not c.built_from & waiting.keys())
        done.append(name)
        del waiting[name]
    return done


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
            **{f"source {variable}": made[other].keyed.key for variable, other in component.sources.items()},
            **{f"needs {other}": made[other].keyed.key for other in component.needs},
        }
    return OpenBuild(name, component, inputs, environment, dict(sorted(component.sources.items())), Keyed(keyed))


def _environment(base: Base, recipe: Recipe, component: Component, arch: Arch) -> dict[str, str]:
    toolkit = base.toolkit or f"{site_packages(base)}/nvidia/cu{recipe.cuda.partition('.')[0]}"
    return {
        "CUDA_HOME": toolkit,
        "SOURCE_DATE_EPOCH": BUILD_EPOCH,
        **(arch.of_family() if component.family else arch).environment(),
        **component.build_env,
    }


def _skeleton(base: Base) -> tuple[str, str, str]:
    """The stages base, foundation and builder for a kind of base: files of images/stages/."""
    return (
        ("base-image", "foundation-image", "builder-open")
        if base.image
        else ("base-open", "foundation", "builder-open")
    )


def _component_labels(components: Mapping[str, Component]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for name, component in components.items():
        at = f"dev.graft.component.{name}"
        labels[f"{at}.version"] = component.version
        if component.commit:
            labels[f"{at}.commit"] = component.commit
        if component.git is None:
            continue
        labels[f"{at}.commit"] = component.git.commit
        if component.git.tree:
            labels[f"{at}.tree"] = component.git.tree
        if component.git.pulls:
            labels[f"{at}.pulls"] = " ".join(f"{p.number or '?'}@{p.head or '?'}" for p in component.git.pulls)
        for lost in component.git.lost:
            labels[f"dev.graft.patch.{name}.{lost.patch}"] = f"sha256:{lost.sha256}"
    return labels


def _overrides(components: Mapping[str, Component]) -> list[list[str]]:
    return [[name, c.overrides] for name, c in components.items() if c.overrides is not None]
