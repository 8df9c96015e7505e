"""Where the components of a recipe, or its environment, do not agree with each other or with build.yaml."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from packaging.version import Version

from graft.component import Component, component_of
from graft.kinds import KINDS
from graft.project import Base, Project

#: Where it stands in the recipe, and what is wrong.
Finding = tuple[tuple[str | int, ...], str]
Components = Mapping[str, Component]


@dataclass(frozen=True)
class EnvChoice:
    """What a recipe says of the environment."""

    env: Mapping[str, str]
    keep: Sequence[str]
    drop: Sequence[str]


def component_findings(components: Components, arches: Sequence[str], cuda: str, project: Project) -> list[Finding]:
    """Names that name nothing, and distributions with two owners."""
    findings: list[Finding] = []
    owners: dict[str, str] = {}
    used = {source for c in components.values() for source in c.mounted}
    for name, component in components.items():
        at = ("components", name)
        findings += [((*at, key), f"{name}: {what}") for key, what in _one(name, component, components, project)]
        findings += [((*at, "family"), f"{name}: {what}") for what in _family(component, arches, cuda, project)]
        if component.is_source_only and name not in used:
            what = "nothing is built from it: give build, or name it in the sources of a component that needs it"
            findings.append((at, f"{name}: {what}"))
        other = owners.setdefault(component.distribution, name) if component.distribution else name
        if other != name:
            findings.append((at, f"{name}: {component.distribution} is already component {other!r}"))
    findings += [(("components", name, "sources"), f"{name}: {what}") for name, what in _cycles(components)]
    return findings


def _one(name: str, component: Component, components: Components, project: Project) -> Iterator[tuple[str, str]]:
    if component.build is not None and component.build not in project.builds:
        yield "build", f"unknown build kind {component.build!r}: {', '.join(project.builds)}"
    yield from _of_its_kind(component)
    if component.overrides == name:
        yield "overrides", "overrides itself"
    if component.overrides is not None and component.overrides not in components:
        yield "overrides", f"overrides {component.overrides!r}, which is no component here"
    for arch in component.arches or ():
        if arch not in project.arches:
            yield "arches", f"unknown architecture {arch!r}"
    if component.index is not None and component.index not in project.indexes:
        there = ", ".join(project.indexes) or "it names none"
        yield "index", f"index {component.index!r} is not in build.yaml: {there}"
    for variable, reference in component.sources.items():
        source = component_of(reference)
        if source not in components:
            yield "sources", f"{variable} is {source!r}, which is no component here"
        elif components[source].kind not in ("git", "archive", "sdist"):
            yield "sources", f"{variable} is {source!r}, which has no source tree: {components[source].kind}"
        elif not _everywhere(component, components[source], project):
            yield "sources", f"{variable} is {source!r}, which is not there on all its architectures"

    for index, other in enumerate(component.needs):
        if other in component.needs[:index]:
            yield "needs", f"needs {other} twice"
        elif other not in components:
            yield "needs", f"needs {other!r}, which is no component here"
        elif components[other].build is None and components[other].image is None:
            yield "needs", f"needs {other!r}, which no build makes: what is on an index is there anyway"
        elif not _everywhere(component, components[other], project):
            yield "needs", f"needs {other!r}, which is not there on all its architectures"


def _of_its_kind(component: Component) -> Iterator[tuple[str, str]]:
    """What a build of this kind would download."""
    kind = KINDS.get(component.build or "")
    for variable, what in kind.sources.items() if kind is not None else ():
        if variable not in component.sources:
            yield "sources", f"its build downloads {what}: make it a component, and give {variable} in sources"


def _everywhere(component: Component, other: Component, project: Project) -> bool:
    return set(component.arches or project.arches) <= set(other.arches or project.arches)


def _family(component: Component, arches: Sequence[str], cuda: str, project: Project) -> Iterator[str]:
    if not component.family:
        return
    for arch in filter(component.on, arches):
        row = project.arches.get(arch)
        if row is not None and (row.family is None or Version(cuda) < Version(row.family)):
            needs = f"CUDA {row.family}" if row.family else "a family form, which its row in build.yaml does not have"
            yield f"{arch} with CUDA {cuda}: code for the family needs {needs}"


def _cycles(components: Components) -> Iterator[tuple[str, str]]:
    for name in components:
        seen, waiting = set[str](), list(components[name].built_from)
        while waiting:
            source = waiting.pop()
            if source == name:
                yield name, "it has to be there before its own build"
                break
            if source not in seen and source in components:
                seen.add(source)
                waiting += components[source].built_from


def floating_findings(components: Components, base: Base | None) -> list[Finding]:
    """Pins that move, in a recipe that is not marked `unlocked: true`; a lock cannot name them."""
    findings: list[Finding] = []
    cure = "pin it, or mark the recipe `unlocked: true`"
    if base is not None and base.image is not None and base.image.digest is None:
        findings.append((("base",), f"base: its image has no digest in build.yaml: {cure}"))
    for name, component in components.items():
        at = ("components", name)
        if component.image is not None and component.image.digest is None:
            findings.append(((*at, "image"), f"{name}: an image without digest can move: {cure}"))
        for index, pull in enumerate(component.git.pulls if component.git else ()):
            if pull.head is None:
                findings.append(((*at, "git", "pulls", index), f"{name}: {pull.name} has no head: {cure}"))
        for index, lost in enumerate(component.git.lost if component.git else ()):
            what = (
                f"{name}: patch {lost.patch} can be fetched by nobody: put it into patches/, {cure.partition(', ')[2]}"
            )
            findings.append(((*at, "git", "lost", index), what))
    return findings


def apt_findings(components: Components, base: Base | None) -> list[Finding]:
    """Debian packages by version are added to a base image; what a bootstrap base holds is build.yaml's."""
    if base is None or base.image is not None:
        return []
    what = "apt adds to a base image; the packages of a bootstrap base stand in build.yaml"
    return [(("components", n, "apt"), f"{n}: {what}") for n, c in components.items() if c.apt is not None]


def env_findings(chosen: EnvChoice, base: Base | None) -> list[Finding]:
    """What a base image sets has to be kept, dropped or set anew, each by name."""
    if base is None:
        return []
    findings: list[Finding] = []
    if base.image is None:
        return [((key,), f"{key}: a bootstrap base sets nothing") for key in _said(chosen)]
    for key, names in (("keep_env", chosen.keep), ("drop_env", chosen.drop)):
        for index, name in enumerate(names):
            if name in names[:index]:
                findings.append(((key, index), f"{key}: {name} is listed twice"))
            if name in chosen.env:
                findings.append(
                    ((key, index), f"{key}: {name} is set by the recipe's env, so the base's value is gone")
                )
    for index, name in enumerate(chosen.keep):
        if name in chosen.drop:
            findings.append((("keep_env", index), f"keep_env: {name} is in drop_env too"))
        elif name not in base.env:
            findings.append((("keep_env", index), f"keep_env: the base's env in build.yaml has no {name}"))
        elif base.env[name] is None and chosen.drop:
            what = f"keep_env: to drop others, {name} has to be set again, and its value is not in build.yaml"
            findings.append((("keep_env", index), what))
    for name in base.env:
        if name not in chosen.env and name not in chosen.keep and name not in chosen.drop:
            findings.append(
                (("base",), f"base: its image sets {name}: name it in keep_env or drop_env, or set it in env")
            )
    return findings


def _said(chosen: EnvChoice) -> Iterator[str]:
    if chosen.keep:
        yield "keep_env"
    if chosen.drop:
        yield "drop_env"
