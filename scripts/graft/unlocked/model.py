"""What the plan of a recipe without a lock holds: layers, components with stages of their own, labels of the image."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from graft.arch import Arch
from graft.kinds import kind_of
from graft.pins import Input
from graft.plan import CHANNELS, Keyed, site_packages
from graft.project import Base, Project
from graft.recipe import Component, Recipe
from graft.tags import Naming, facts_of, filled, references


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
    def refused(self) -> tuple[str, ...]:
        """Lines of its log that mean a part of it is missing."""
        return kind_of(self.component.build).refused if self.component.build else ()

    @property
    def needs(self) -> None:
        """What it needs at run time: nobody knows before it is built."""
        return None

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
        return skeleton_of(self.base)[0]

    @property
    def foundation_stage(self) -> str:
        return skeleton_of(self.base)[1]

    @property
    def builder_stage(self) -> str:
        return skeleton_of(self.base)[2]

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
        names = ["tools", "scripts", "smoke-tests"]
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
            **component_labels(self.recipe.components_on(self.arch.name)),
        }
        if self.base.image is not None:
            image = self.base.image
            labels["dev.graft.base"] = f"{image.reference}@{image.digest}" if image.digest else image.reference
        if self.recipe.launch is not None:
            labels["dev.graft.launch"] = self.recipe.launch.words()
        return labels


def stages_of(component: Component) -> tuple[str, ...]:
    """The stages of a component that is not simply installed."""
    if component.image is not None:
        return ("build-image",)
    source = f"source-{component.kind}"
    return (source,) if component.build is None else (source, f"build-{kind_of(component.build).stage}", "built")


def skeleton_of(base: Base) -> tuple[str, str, str]:
    """The stages base, foundation and builder for a kind of base: files of images/stages/."""
    return (
        ("base-image", "foundation-image", "builder-open")
        if base.image
        else ("base-open", "foundation", "builder-open")
    )


def component_labels(components: Mapping[str, Component]) -> dict[str, str]:
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
