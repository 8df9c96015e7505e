"""Tags that nobody types: templates, filled in with facts of the recipe, its lock's date and the key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from graft.errors import BadInput
from graft.recipe import Component, Recipe

TAG = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$")
#: As git itself abbreviates.
SHORT_COMMIT = 7


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
