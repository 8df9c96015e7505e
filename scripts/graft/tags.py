"""Tags that nobody types: templates, filled in with facts of the recipe, its lock's date and the key."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from graft.errors import BadInput
from graft.project import Project
from graft.recipe import Component, Recipe

TAG = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$")
#: As git itself abbreviates.
SHORT_COMMIT = 7
#: In place of what differs with every lock and image: two tags that only differ there meet one day.
ANY_DAY = "2000-01-01"


@dataclass(frozen=True)
class Naming:
    """What the recipe does not know of an image. date: of the lock, or of an unlocked recipe."""

    arch: str
    date: str
    key12: str


def facts_of(recipe: Recipe, naming: Naming) -> dict[str, str]:
    """Placeholder -> value."""
    facts = {
        "recipe": recipe.recipe,
        "arch": naming.arch,
        "cuda": recipe.cuda,
        "cuda.compact": f"cu{recipe.cuda.replace('.', '')}",
        "lock.date": naming.date,
        "lock.date.compact": naming.date.replace("-", ""),
        "key12": naming.key12,
    }
    if recipe.release is not None:
        facts["release"] = recipe.release
    patches = [ref.partition("/")[2] for ref in recipe.patches]
    for name, component in recipe.components.items():
        facts |= {f"{name}.{fact}": value for fact, value in _component_facts(component).items()}
        if component.git is not None and component.on(naming.arch):
            patches += [lost.patch for lost in component.git.lost]
    if patches:
        facts["patches.compact"] = "-".join(patch.replace("-", "") for patch in patches)
    return facts


def _component_facts(component: Component) -> dict[str, str]:
    facts = {"version": component.version, "short": _short(component)}
    try:
        release = Version(component.version).release
        facts["compact"] = "".join(str(number) for number in release[:2])
    except InvalidVersion:
        # A Debian package's: it has no compact form.
        pass
    if component.git is not None and component.git.tree is not None:
        facts["tree"] = component.git.tree[:SHORT_COMMIT]
    return facts


def _short(component: Component) -> str:
    """The commit as git abbreviates it, else as the recipe does, else the version."""
    commit = component.git.commit if component.git is not None else component.commit
    if commit is None:
        return component.version[:9]
    return commit[:SHORT_COMMIT] if len(commit) == 40 else commit[:9]


def filled(template: str, facts: Mapping[str, str], where: str) -> str:
    """The template with its placeholders replaced. Raises BadInput for one that names no fact."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in facts:
            raise BadInput(f"unknown placeholder {{{match[1]}}}", where=where, cure=", ".join(facts))
        return facts[match[1]].replace("+", "_")

    return re.sub(r"\{([^{}]*)\}", value, template)


def references(recipe: Recipe, facts: Mapping[str, str]) -> tuple[str, ...]:
    """The recipe's own tags. Raises BadInput for one that is none, or when what was published is not among them."""
    where = f"recipes/{recipe.recipe}.yaml: tags"
    made = tuple(filled(template, facts, where) for template in recipe.tags)
    for reference in made:
        check_tag(reference, where)
    published = recipe.published.tag if recipe.published is not None else None
    if published is not None and published not in made:
        found = ", ".join(made) or "the recipe has no tags"
        raise BadInput(
            f"{published} was published, and the templates give another: {found}",
            where=f"recipes/{recipe.recipe}.yaml: published",
            cure="correct the template, or the facts it is made from",
        )
    return made


def check_tag(reference: str, where: str) -> None:
    """Raises BadInput when what stands behind the last colon is no legal tag."""
    tag = reference.rpartition(":")[2]
    if not TAG.match(tag):
        raise BadInput(f"{tag!r} is not a legal image tag", where=where, cure="shorten or change it")


@dataclass(frozen=True)
class Claim:
    """A tag that moves to the images of one recipe and architecture. key: of build.yaml, or `tags` of the recipe."""

    tag: str
    recipe: str
    arch: str
    key: str


def claims(project: Project, recipe: Recipe) -> Iterator[Claim]:
    """The tags of all channels and templates, for each of the recipe's architectures, without their repositories.

    `make push` publishes all of them in one repository. A template that makes no tag has none: planning refuses it.
    """
    for arch in recipe.arches:
        # The key is another one in every image.
        facts = facts_of(recipe, Naming(arch, ANY_DAY, f"<{recipe.recipe} {arch}>"))
        moving = project.registry.channels
        yield Claim(moving.tag("candidate", recipe.recipe, arch), recipe.recipe, arch, "registry.channels")
        yield Claim(moving.tag("stable", recipe.recipe, arch), recipe.recipe, arch, "registry.channels")
        for key, templates in (("channels", project.channels), ("tags", recipe.tags)):
            for template in templates:
                try:
                    made = filled(template, facts, key)
                except BadInput:
                    continue
                yield Claim(made.rpartition(":")[2], recipe.recipe, arch, key)


def shared(of: Iterable[Claim]) -> Iterator[tuple[Claim, Claim]]:
    """Pairs of claims of one tag by two recipes, or two architectures of one; a pair of images once."""
    seen: set[frozenset[tuple[str, str]]] = set()
    by_tag = sorted(of, key=lambda claim: (claim.tag, claim.recipe))
    for _, group in itertools.groupby(by_tag, key=lambda claim: claim.tag):
        for one, other in itertools.combinations(group, 2):
            pair = frozenset({(one.recipe, one.arch), (other.recipe, other.arch)})
            if len(pair) == 2 and pair not in seen:
                seen.add(pair)
                yield one, other


def check_alone(project: Project, recipe: Recipe, arch: str, others: Iterable[Recipe]) -> None:
    """Raises BadInput when a tag of the recipe's image is that of another recipe or architecture as well."""
    every = [claim for each in (recipe, *others) for claim in claims(project, each)]
    for one, other in shared(every):
        if (recipe.recipe, arch) in ((one.recipe, one.arch), (other.recipe, other.arch)):
            own, theirs = (one, other) if (one.recipe, one.arch) == (recipe.recipe, arch) else (other, one)
            raise BadInput(told(own, theirs), where=place_of(own), cure=cure_of(own))


def told(one: Claim, other: Claim) -> str:
    """What is wrong with two claims."""
    return f"{one.tag!r} is the tag of {one.recipe} on {one.arch} and of {other.recipe} on {other.arch}"


def place_of(claim: Claim) -> str:
    """Where the template of a claim stands."""
    return f"recipes/{claim.recipe}.yaml: tags" if claim.key == "tags" else f"build.yaml: {claim.key}"


def cure_of(claim: Claim) -> str:
    """How the tag of a claim becomes one image's alone."""
    return "put {recipe} and {arch} into the template" if claim.key != "registry.channels" else "rename one recipe"
