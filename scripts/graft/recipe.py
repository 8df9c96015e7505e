"""recipes/<name>.yaml: what people write."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated

from packaging.requirements import InvalidRequirement, Requirement
from pydantic import Field, field_validator, model_validator

from graft.agreement import EnvChoice, Finding, apt_findings, component_findings, env_findings, floating_findings
from graft.arch import Arch, CudaVersion, check_cuda, select
from graft.component import Component as Component
from graft.errors import BadInput
from graft.paths import Paths
from graft.project import LOWER_NAME, Distribution, Project, Slug
from graft.release import EnvKey, EnvValue, Launch, Measured, Profile, Published, ReferenceTemplate
from graft.secret_shapes import shapes_in
from graft.sources import Sentence
from graft.yamlio import Document, Model, findings_error, grammar, read, sized, validate

RECIPE_NAME = re.compile(r"^[a-z0-9]+(?:[._-][a-z0-9]+)*$")
PatchRef = Annotated[str, grammar(r"[a-z0-9][a-z0-9-]*/[a-z0-9]+(?:-[a-z0-9]+)*", "a patch such as vllm/fix-it")]
Date = Annotated[str, grammar(r"20[0-9]{2}-[01][0-9]-[0-3][0-9]", "a day such as 2026-06-21")]

#: What `launch` is called among the profiles, and the smoke test that reads them.
LAUNCH, START_TEST = "launch", "start"
#: The smoke test that holds the image to its recorded operators.
OPERATORS_TEST = "load"
#: The smoke test that holds the size budget.
SIZE_TEST = "size"
Bytes = Annotated[str, *sized(r"[1-9][0-9]{0,5}(?:\.[0-9]{1,3})?(?:kB|MB|GB)", "9.5GB (units: kB, MB, GB)")]
UNITS = {"kB": 1_000, "MB": 1_000_000, "GB": 1_000_000_000}

#: A recipe that moves is named by its day too.
ReleaseName = Annotated[str, grammar(r"[a-z0-9]+(?:[._-][a-z0-9]+)*", LOWER_NAME, 63)]


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

    check: Annotated[str, grammar(r"(?:lint/)?[a-z0-9]+(?:[._-][a-z0-9]+)*", "a smoke test, or lint/ and a rule", 80)]
    file: Annotated[
        str, grammar(r"[A-Za-z0-9_./*?+-]+", "a file, or a glob of * and ?: letters, digits, and . _ / + -")
    ]
    package: Distribution | None = None
    arch: str | None = None
    reason: Sentence
    until: Sentence

    @field_validator("file")
    @classmethod
    def _reaches(cls, value: str) -> str:
        if ".." in value.split("/"):
            raise ValueError(f"{value!r}: nothing is found above site-packages: write the path without ..")
        if "**" in value:
            raise ValueError(f"{value!r}: write * for **: it stands for slashes too")
        return value

    @property
    def of_gate(self) -> bool:
        return not self.check.startswith("lint/")


class SizeBudget(Model):
    """What the image may weigh, uncompressed: files of the whole image, and of a component's distributions."""

    total: Bytes | None = None
    components: dict[Slug, Bytes] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _something(self) -> SizeBudget:
        if self.total is None and not self.components:
            raise ValueError("give total, components, or both")
        return self


class Recipe(Model):
    """The whole of one recipe.

    unlocked: parts of it are named and not pinned, so it has no lock; `date` is its day, which a lock would know.
    drop_env, keep_env: what the base image sets and the image must not, or must, have.
    """

    recipe: str
    summary: Sentence
    release: ReleaseName | None = None
    date: Date | None = None
    unlocked: bool = False
    base: Slug
    cuda: CudaVersion
    arches: tuple[str, ...] = Field(min_length=1, strict=False)
    components: dict[Slug, Component] = Field(min_length=1)
    constraints: tuple[Constraint, ...] = Field(default=(), strict=False)
    patches: tuple[PatchRef, ...] = Field(default=(), strict=False)
    env: dict[EnvKey, EnvValue] = Field(default_factory=dict)
    drop_env: tuple[EnvKey, ...] = Field(default=(), strict=False)
    keep_env: tuple[EnvKey, ...] = Field(default=(), strict=False)
    launch: Launch | None = None
    profiles: dict[Slug, Profile] = Field(default_factory=dict)
    tags: tuple[ReferenceTemplate, ...] = Field(default=(), strict=False)
    published: Published | None = None
    measured: tuple[Measured, ...] = Field(default=(), strict=False)
    smoke: tuple[Slug, ...] = Field(min_length=1, strict=False)
    waivers: tuple[Waiver, ...] = Field(default=(), strict=False)
    size_budget: SizeBudget | None = None

    @field_validator("recipe")
    @classmethod
    def _name(cls, value: str) -> str:
        if not RECIPE_NAME.fullmatch(value) or len(value) > 63:
            raise ValueError(f"{value!r} is not a recipe name: lower-case letters, digits, and . _ - between them")
        return value

    @model_validator(mode="after")
    def _unlocked(self) -> Recipe:
        if self.unlocked and self.date is None:
            raise ValueError("an unlocked recipe has no lock to take its day from: give date, for example 2026-06-21")
        if self.unlocked and self.patches:
            raise ValueError("patches: they are judged against what a lock names, and an unlocked recipe has none")
        return self

    def components_on(self, arch: str) -> dict[str, Component]:
        """The components of the image for `arch`, in the recipe's order."""
        return {name: component for name, component in self.components.items() if component.on(arch)}

    def profiles_on(self, arch: str) -> dict[str, Launch]:
        """How the image for `arch` is launched: `launch` under that name, and the profiles, in the recipe's order."""
        own: dict[str, Launch] = {} if self.launch is None else {LAUNCH: self.launch}
        return own | {name: profile for name, profile in self.profiles.items() if profile.on(arch)}

    def patches_of(self, component: str) -> tuple[str, ...]:
        """Patch ids of one component, in the recipe's order."""
        return tuple(ref.partition("/")[2] for ref in self.patches if ref.partition("/")[0] == component)


def bytes_of(text: str) -> int:
    """`9.5GB` in bytes, decimal units as disks and networks are sold."""
    return int(Decimal(text[:-2]) * UNITS[text[-2:]])


def recipe_path_checked(paths: Paths, name: str, where: str = "RECIPE") -> None:
    """Raises BadInput for a name that is not a recipe name, before it becomes part of any path.

    where: what the name is from: what the user typed, or a file that lies in recipes/.
    """
    if not RECIPE_NAME.fullmatch(name) or len(name) > 63:
        raise BadInput(
            f"{name!r} is not a recipe name",
            where=where,
            cure="lower-case letters, digits, and . _ - between them; "
            + ("`ls recipes` shows what there is" if where == "RECIPE" else "rename the file"),
        )


def load_recipe(paths: Paths, project: Project, name: str) -> Recipe:
    """One recipe, checked against build.yaml. Raises BadInput with every finding, and for a name that two have."""
    recipe_path_checked(paths, name)
    _, twice = every_recipe(paths, name)
    if twice:
        raise twice[0]
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
        raise BadInput(f"there is no smoke test {name!r}", where=where or str(path), cure=smoke_tests(folder))
    return path


def smoke_tests(folder: Path) -> str:
    """Which smoke tests there are, as what to do about one that is not."""
    there = ", ".join(sorted(found.stem.replace("_", "-") for found in folder.glob("*.py")))
    return f"there is: {there}" if there else f"{folder.parent.name}/{folder.name} holds no tests: git checkout images"


def recipe_names(paths: Paths) -> list[str]:
    """All recipes of the project, sorted: those of recipes/ and of its folders. Raises BadInput for one name twice."""
    names, twice = every_recipe(paths)
    if twice:
        raise twice[0]
    return names


def every_recipe(paths: Paths, name: str = "*") -> tuple[list[str], list[BadInput]]:
    """The names of all recipes (or of those called `name`), sorted and each once, and what is wrong with doubles."""
    files = [*paths.recipes.glob(f"{name}.yaml"), *paths.recipe_folders(f"{name}.yaml")]
    files.sort(key=lambda path: path.stem)
    twice = [
        BadInput(
            f"two recipes are named {one.stem}: {paths.relative(one)} and {paths.relative(other)}",
            where=paths.relative(other),
            cure="a lock and a tag are named after the recipe alone: rename one",
        )
        for one, other in itertools.pairwise(files)
        if one.stem == other.stem
    ]
    return list(dict.fromkeys(path.stem for path in files)), twice


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
    # Where the list itself is wrong, what refers to it is a consequence.
    of_recipe = set(recipe.arches) if set(recipe.arches) <= project.arches.keys() else None
    for index, waiver in enumerate(recipe.waivers):
        if waiver.arch is not None and of_recipe is not None and waiver.arch not in of_recipe:
            findings.append((("waivers", index, "arch"), f"waivers: {waiver.arch!r} is no architecture of this recipe"))
        if waiver.of_gate and waiver.check not in recipe.smoke:
            findings.append((("waivers", index, "check"), f"waivers: {waiver.check!r} is no smoke test of this recipe"))
    for index, test in enumerate(recipe.smoke):
        if test in recipe.smoke[:index]:
            findings.append((("smoke", index), f"smoke: {test} is listed twice"))
    findings += _secret_findings(recipe)
    findings += _budget_findings(recipe)
    findings += _profile_findings(recipe, of_recipe)
    findings += component_findings(recipe.components, recipe.arches, recipe.cuda, project)
    findings += apt_findings(recipe.components, project.bases.get(recipe.base))
    findings += env_findings(EnvChoice(recipe.env, recipe.keep_env, recipe.drop_env), project.bases.get(recipe.base))
    findings += [] if recipe.unlocked else floating_findings(recipe.components, project.bases.get(recipe.base))
    for index, ref in enumerate(recipe.patches):
        if ref.partition("/")[0] not in recipe.components:
            findings.append(
                (("patches", index), f"patches: {ref}: no component {ref.partition('/')[0]!r} in this recipe")
            )
        if ref in recipe.patches[:index]:
            findings.append((("patches", index), f"patches: {ref} is listed twice"))
    return findings


def _secret_findings(recipe: Recipe) -> list[Finding]:
    """Values that look like a secret: all of them end up in the image, its labels or its history."""
    places: list[tuple[tuple[str | int, ...], Mapping[str, str]]] = [(("env",), recipe.env)]
    places += [(("launch", "env"), recipe.launch.env)] if recipe.launch is not None else []
    places += [(("profiles", name, "env"), profile.env) for name, profile in recipe.profiles.items()]
    places += [(("components", name, "build_env"), part.build_env) for name, part in recipe.components.items()]
    return [
        (
            (*at, key),
            f"{'.'.join(map(str, at))}: the value of {key} looks like {shape}, and everybody who has the image could"
            " read it: give it when the image is run",
        )
        for at, env in places
        for key, value in env.items()
        for shape in shapes_in(f"{key}={value}")
    ]


def _budget_findings(recipe: Recipe) -> list[Finding]:
    """A budget that nobody holds, or of a component that is not there."""
    budget, held = recipe.size_budget, SIZE_TEST in recipe.smoke
    if budget is None:
        return [(("smoke",), "smoke: size holds a budget: give size_budget, or take it out")] if held else []
    findings: list[Finding] = []
    if not held:
        findings.append((("size_budget",), f"size_budget: nobody would hold it: add {SIZE_TEST} to smoke"))
    for name in budget.components:
        component = recipe.components.get(name)
        at = ("size_budget", "components", name)
        if component is None:
            findings.append((at, f"size_budget: no component {name!r} in this recipe"))
        elif not component.distribution:
            findings.append((at, f"size_budget: nothing is installed of component {name}"))
    return findings


def _profile_findings(recipe: Recipe, arches: Collection[str] | None) -> list[Finding]:
    """Profiles that nobody would read, of an architecture that is not there, or under a name that is taken."""
    findings: list[Finding] = []
    if recipe.profiles and START_TEST not in recipe.smoke:
        findings.append((("profiles",), f"profiles: nobody would read them: add {START_TEST} to smoke"))
    for name, profile in recipe.profiles.items():
        if name == LAUNCH:
            findings.append((("profiles", name), f"profiles: {LAUNCH} is the name of the key of that name"))
        for index, arch in enumerate(profile.arches or ()):
            if arches is not None and arch not in arches:
                at = ("profiles", name, "arches", index)
                findings.append((at, f"profiles: {arch!r} is no architecture of this recipe"))
    return findings
