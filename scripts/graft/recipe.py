"""recipes/<name>.yaml: what people write."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from pydantic import Field, StringConstraints, field_validator, model_validator

from graft.arch import Arch, CudaVersion, check_cuda, select
from graft.errors import BadInput
from graft.paths import Paths
from graft.project import Distribution, Project, Slug
from graft.yamlio import Document, Model, findings_error, read, validate

RECIPE_NAME = re.compile(r"^[a-z0-9]+(?:[._-][a-z0-9]+)*$")
Sentence = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]+$", max_length=300)]
EnvKey = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
#: Nothing that a Dockerfile or a shell would expand or end a word at.
EnvValue = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_./:,;=+@%^~ -]*$", max_length=1000)]
Module = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]+$")]
PatchRef = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]*/[a-z0-9]+(?:-[a-z0-9]+)*$")]
Date = Annotated[str, StringConstraints(pattern=r"^20[0-9]{2}-[01][0-9]-[0-3][0-9]$")]

SOURCES = ("wheel", "sdist", "git", "archive", "image")
SUPPORTED_SOURCES = ("wheel", "sdist")


class Component(Model):
    """One upstream project: a source, and how it gets into the image.

    commit: the upstream commit that a prebuilt wheel records, an abbreviation of at least 7 hex digits.
    overrides: the component whose own copy this one replaces.
    modules: for build kinds that compile named modules ahead of time.
    """

    wheel: Distribution | None = None
    sdist: Distribution | None = None
    git: str | None = None
    archive: str | None = None
    image: str | None = None
    version: str
    commit: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{7,40}$")] | None = None
    overrides: Slug | None = None
    build: Slug | None = None
    modules: tuple[Module, ...] = Field(default=(), strict=False)
    arches: tuple[str, ...] | None = Field(default=None, strict=False)

    @field_validator("version")
    @classmethod
    def _version(cls, value: str) -> str:
        try:
            canonical = str(Version(value))
        except InvalidVersion:
            raise ValueError(f"{value!r} is not a version (PEP 440); a pin is exact, without an operator") from None
        if canonical != value:
            raise ValueError(f"write {value!r} in its canonical form: {canonical!r}")
        return value

    @model_validator(mode="after")
    def _one_source(self) -> Component:
        given = [kind for kind in SOURCES if getattr(self, kind) is not None]
        if len(given) != 1:
            found = f"found {' and '.join(given)}" if given else "found none"
            raise ValueError(f"give exactly one source of {', '.join(SOURCES)}; {found}")
        if given[0] not in SUPPORTED_SOURCES:
            raise ValueError(f"source kind {given[0]!r} cannot be built yet; use {' or '.join(SUPPORTED_SOURCES)}")
        if self.sdist is not None and self.build is None:
            raise ValueError("an sdist needs a build kind, for example: build: flashinfer-aot")
        if self.wheel is not None and self.build is not None:
            raise ValueError("a wheel is installed as it is: remove build, or give its sdist")
        if self.modules and self.build is None:
            raise ValueError("modules belong to a build kind")
        return self

    @property
    def distribution(self) -> str:
        """The normalised name on the index."""
        return canonicalize_name(self.wheel or self.sdist or "")

    @property
    def is_built(self) -> bool:
        return self.build is not None

    def on(self, arch: str) -> bool:
        """Whether the component is part of the image for `arch`."""
        return self.arches is None or arch in self.arches


class Constraint(Model):
    """A bound on something that the closure brings, with its reason."""

    require: str
    because: Sentence

    @field_validator("require")
    @classmethod
    def _requirement(cls, value: str) -> str:
        try:
            parsed = Requirement(value)
        except InvalidRequirement:
            raise ValueError(f"{value!r} is not a requirement such as cuda-python==13.*") from None
        if parsed.url or parsed.extras or parsed.marker or not parsed.specifier:
            raise ValueError(f"{value!r}: a name and a version bound, nothing else")
        return value


class Waiver(Model):
    """Something that the gate, or a rule of lint (`lint/<rule>`), may find: where, and until when.

    file: a glob relative to site-packages; for a rule, over what its findings are about.
    """

    check: Annotated[str, StringConstraints(pattern=r"^(?:lint/)?[a-z0-9]+(?:[._-][a-z0-9]+)*$", max_length=80)]
    file: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_./*?+-]+$")]
    package: Distribution | None = None
    arch: str | None = None
    reason: Sentence
    until: Sentence

    @property
    def of_gate(self) -> bool:
        return not self.check.startswith("lint/")


class Recipe(Model):
    """The whole of one recipe."""

    recipe: str
    summary: Sentence
    base: Slug
    cuda: CudaVersion
    arches: tuple[str, ...] = Field(min_length=1, strict=False)
    components: dict[Slug, Component] = Field(min_length=1)
    constraints: tuple[Constraint, ...] = Field(default=(), strict=False)
    patches: tuple[PatchRef, ...] = Field(default=(), strict=False)
    env: dict[EnvKey, EnvValue] = Field(default_factory=dict)
    smoke: tuple[Slug, ...] = Field(min_length=1, strict=False)
    waivers: tuple[Waiver, ...] = Field(default=(), strict=False)

    @field_validator("recipe")
    @classmethod
    def _name(cls, value: str) -> str:
        if not RECIPE_NAME.fullmatch(value) or len(value) > 63:
            raise ValueError(f"{value!r} is not a recipe name: lower-case letters, digits, and . _ - between them")
        return value

    def components_on(self, arch: str) -> dict[str, Component]:
        """The components of the image for `arch`, in the recipe's order."""
        return {name: component for name, component in self.components.items() if component.on(arch)}

    def patches_of(self, component: str) -> tuple[str, ...]:
        """Patch ids of one component, in the recipe's order."""
        return tuple(ref.partition("/")[2] for ref in self.patches if ref.partition("/")[0] == component)


def recipe_path_checked(paths: Paths, name: str) -> None:
    """Raises BadInput for a name that is not a recipe name, before it becomes part of any path."""
    if not RECIPE_NAME.fullmatch(name) or len(name) > 63:
        raise BadInput(
            f"{name!r} is not a recipe name",
            where="RECIPE",
            cure="lower-case letters, digits, and . _ - between them; `ls recipes` shows what there is",
        )


def load_recipe(paths: Paths, project: Project, name: str) -> Recipe:
    """One recipe, checked against build.yaml. Raises BadInput with every finding."""
    recipe_path_checked(paths, name)
    return recipe_of(read(paths.recipe(name)), project, name)


def recipe_of(document: Document, project: Project, name: str) -> Recipe:
    """The recipe that a file holds, checked against build.yaml. Raises BadInput with every finding."""
    recipe = validate(document, Recipe)
    findings = [(document.where(at), what) for at, what in _against_project(recipe, project, name)]
    if findings:
        raise findings_error(findings)
    return recipe


def smoke_file(folder: Path, name: str, where: str | None = None) -> Path:
    """The file of a smoke test, named as the recipe names it. Raises BadInput when `folder` has none of that name."""
    path = folder / f"{name.replace('-', '_')}.py"
    if not path.is_file():
        there = ", ".join(sorted(found.stem.replace("_", "-") for found in folder.glob("*.py")))
        raise BadInput(f"there is no smoke test {name!r}", where=where or str(path), cure=f"there is: {there}")
    return path


def recipe_names(paths: Paths) -> list[str]:
    """All recipes of the project, sorted."""
    return sorted(p.stem for p in paths.recipes.glob("*.yaml"))


def select_arch(recipe: Recipe, project: Project, name: str, where: str) -> Arch:
    """The architecture to build for. Raises BadInput when it, the recipe or its CUDA do not fit together."""
    arch = select(project.arches, name)
    if name not in recipe.arches:
        raise BadInput(
            f"recipe {recipe.recipe} is not made for {name}",
            where=where,
            cure=f"ARCH is one of {', '.join(recipe.arches)}; or add {name} to the recipe and run make lock",
        )
    check_cuda(arch, recipe.cuda, where)
    return arch


Finding = tuple[tuple[str | int, ...], str]


def _against_project(recipe: Recipe, project: Project, name: str) -> list[Finding]:
    findings: list[Finding] = []
    if recipe.recipe != name:
        findings.append((("recipe",), f"recipe: {recipe.recipe!r} stands in a file named {name}.yaml"))
    if recipe.base not in project.bases:
        findings.append((("base",), f"base: {recipe.base!r} is not in build.yaml: {', '.join(project.bases)}"))
    for index, arch in enumerate(recipe.arches):
        if arch not in project.arches:
            findings.append((("arches", index), f"arches: unknown architecture {arch!r}"))
        if arch in recipe.arches[:index]:
            findings.append((("arches", index), f"arches: {arch} is listed twice"))
    for index, waiver in enumerate(recipe.waivers):
        if waiver.arch is not None and waiver.arch not in recipe.arches:
            findings.append((("waivers", index, "arch"), f"waivers: {waiver.arch!r} is no architecture of this recipe"))
        if waiver.of_gate and waiver.check not in recipe.smoke:
            findings.append((("waivers", index, "check"), f"waivers: {waiver.check!r} is no smoke test of this recipe"))
    for index, test in enumerate(recipe.smoke):
        if test in recipe.smoke[:index]:
            findings.append((("smoke", index), f"smoke: {test} is listed twice"))
    findings += _components(recipe, project)
    for index, ref in enumerate(recipe.patches):
        if ref.partition("/")[0] not in recipe.components:
            findings.append(
                (("patches", index), f"patches: {ref}: no component {ref.partition('/')[0]!r} in this recipe")
            )
        if ref in recipe.patches[:index]:
            findings.append((("patches", index), f"patches: {ref} is listed twice"))
    return findings


def _components(recipe: Recipe, project: Project) -> list[Finding]:
    findings: list[Finding] = []
    owners: dict[str, str] = {}
    for name, component in recipe.components.items():
        at = ("components", name)
        if component.build is not None and component.build not in project.builds:
            findings.append(
                ((*at, "build"), f"{name}: unknown build kind {component.build!r}: {', '.join(project.builds)}")
            )
        if component.overrides == name:
            findings.append(((*at, "overrides"), f"{name}: overrides itself"))
        if component.overrides is not None and component.overrides not in recipe.components:
            findings.append(
                ((*at, "overrides"), f"{name}: overrides {component.overrides!r}, which is no component here")
            )
        for arch in component.arches or ():
            if arch not in project.arches:
                findings.append(((*at, "arches"), f"{name}: unknown architecture {arch!r}"))
        other = owners.setdefault(component.distribution, name)
        if other != name:
            findings.append((at, f"{name}: {component.distribution} is already component {other!r}"))
    return findings
