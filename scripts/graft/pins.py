"""What a recipe's image is made from, input by input: pinned by content, or only named.

For recipes without a lock. An input is *pinned* when the recipe gives its content (commit, tree, sha256, digest); it
*floats* when only a version, tag, number or address says which; it is *unreachable* when the recipe or build.yaml
already says that nobody can fetch it from here. Pure, as the plan is: whether a host answers is asked elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from graft.component import Component
from graft.project import Base, Project
from graft.recipe import Recipe
from graft.sources import GitSource, Pull

State = Literal["pinned", "floating", "unreachable"]
Kind = Literal["base", "git", "pull", "patch", "archive", "image", "apt", "index", "wheels", "tools"]

NO_HASH = "named by version; only a lock knows its hash"


@dataclass(frozen=True)
class Input:
    """One input.

    name:     unique within the recipe: `vllm`, `vllm pull 31`, `base`.
    identity: what keys are made from: the content where it is pinned, else the name that stands for it.
    address:  what to ask for it: an https address, an image reference, the name of an index; empty where nobody is.
    floats:   why its content may be another one tomorrow; empty when it is pinned.
    lost:     why nobody can fetch it from here; empty when nothing is known against it.
    position: where it stands in the recipe's YAML.
    """

    name: str
    kind: Kind
    identity: str
    address: str = ""
    floats: str = ""
    lost: str = ""
    position: tuple[str | int, ...] = ()

    @property
    def state(self) -> State:
        return "unreachable" if self.lost else "floating" if self.floats else "pinned"

    @property
    def why(self) -> str:
        """Why it is not simply pinned, in one sentence; empty when it is."""
        return "; ".join(part for part in (self.lost, self.floats) if part)


def inputs_of_recipe(project: Project, recipe: Recipe, arch: str) -> tuple[Input, ...]:
    """Every input of the image for an architecture: the base, the components in their order, and what they bring in."""
    base = project.bases[recipe.base]
    components = recipe.components_on(arch)
    found = [base_input(recipe.base, base)]
    for name, component in components.items():
        found += component_inputs(name, component, project.indexes)
    found += _brought_in(project, recipe, base, components)
    return tuple(found)


def base_input(name: str, base: Base) -> Input:
    at = ("base",)
    if base.image is None:
        packages = ", ".join(sorted(base.runtime))
        return Input(
            "base", "base", f"debian {packages}", floats="Debian packages by name; a lock has them", position=at
        )
    reference, digest = base.image.reference, base.image.digest
    if digest is None:
        why = f"{name} is {reference}, by tag only" if ":" in reference.rpartition("/")[2] else f"{name} has no tag"
        return Input("base", "base", f"image {reference}", reference, why, position=at)
    return Input("base", "base", digest, reference, position=at)


def component_inputs(name: str, component: Component, indexes: Mapping[str, str | None]) -> list[Input]:
    """The inputs that one component is made from, in the order in which they are put together."""
    at = ("components", name)
    if component.git is not None:
        return list(_git(name, component.git))
    if component.archive is not None:
        source = component.archive
        return [Input(name, "archive", f"sha256:{source.sha256}", source.url, position=(*at, "archive"))]
    if component.image is not None:
        image = component.image
        paths = " ".join(image.paths)
        floats = "" if image.digest else f"{image.reference}, by tag only"
        identity = f"{image.digest or f'image {image.reference}'} {paths}"
        return [Input(name, "image", identity, image.reference, floats, position=(*at, "image"))]
    if component.apt is not None:
        named = (f"{package}={component.version}" for package in component.apt)
        return [Input(f"{name} {pin.partition('=')[0]}", "apt", pin, floats=NO_HASH, position=at) for pin in named]
    pin = f"{component.indexed}=={component.version}"
    if component.index is None:
        return [Input(name, "index", pin, floats=NO_HASH, position=at)]
    lost = "" if indexes.get(component.index) else f"index {component.index} has no address in build.yaml"
    return [Input(name, "index", f"{pin} of {component.index}", component.index, NO_HASH, lost, (*at, "index"))]


def _git(name: str, source: GitSource) -> Iterator[Input]:
    at = ("components", name, "git")
    yield Input(name, "git", f"commit {source.commit}", source.url, position=at)
    for index, pull in enumerate(source.pulls):
        yield _pull(name, source, pull, index)
    if source.tree is not None:
        # Not another thing to fetch: what commit and heads must give. It is an input, since it decides on success.
        yield Input(f"{name} tree", "git", f"tree {source.tree}", position=(*at, "tree"))
    for index, lost in enumerate(source.lost):
        yield Input(
            f"{name} patch {lost.patch}",
            "patch",
            f"sha256:{lost.sha256}",
            lost=lost.because,
            position=(*at, "lost", index),
        )


def _pull(name: str, source: GitSource, pull: Pull, index: int) -> Input:
    at = ("components", name, "git", "pulls", index)
    title = f"{name} {pull.name}" if pull.number or pull.head else f"{name} head {index + 1}"
    url = pull.url or source.url
    if pull.head is not None:
        return Input(title, "pull", f"commit {pull.head}", url, position=at)
    proven = "; the tree that must come out is pinned" if source.tree else ""
    if pull.number is not None:
        floats = f"named by number, and the head of a pull request moves{proven}"
        return Input(title, "pull", f"{url} pull {pull.number}", url, floats, position=at)
    return Input(title, "pull", "unnamed", "", f"never named{proven}", pull.note or "", at)


def _brought_in(project: Project, recipe: Recipe, base: Base, components: Mapping[str, Component]) -> Iterator[Input]:
    """What nobody names one by one: dependencies, and what builds need."""
    constraints = sorted(constraint.require for constraint in recipe.constraints)
    if any(component.distribution for component in components.values()):
        what = "resolved when it is built, within the constraints; only a lock names them"
        yield Input("dependencies", "wheels", " ".join(["dependencies", *constraints]), floats=what)
    kinds = sorted({component.build for component in components.values() if component.build})
    own = (requirement for component in components.values() for requirement in component.build_requires)
    requires = sorted({*own, *(requirement for kind in kinds for requirement in project.builds[kind].requires)})
    if requires:
        yield Input("build requirements", "wheels", " ".join(requires), floats="chosen when it is built")
    if base.image is not None and base.runtime:
        yield Input("base packages", "apt", " ".join(sorted(base.runtime)), floats="Debian packages by name")
    if kinds and base.builder:
        yield Input("builder packages", "apt", " ".join(sorted(base.builder)), floats="Debian packages by name")
    yield Input("uv", "tools", "uv", floats="the one that is installed beside Graft")
