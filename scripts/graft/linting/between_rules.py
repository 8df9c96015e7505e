"""Rules about what two recipes of a project cannot both have."""

from __future__ import annotations

from collections.abc import Iterable

from graft.linting.facts import ProjectFacts
from graft.linting.load_rules import hits
from graft.linting.model import Hit, project_rule
from graft.tags import Claim, claims, cure_of, shared, told
from graft.yamlio import read


@project_rule(
    "recipe-double",
    "error",
    why="Locks, images and tags are named after the recipe alone: which of the two is meant, nobody knows.",
    example="recipes/glm.yaml and recipes/reference/glm.yaml",
    cure="rename one of the two",
)
def recipe_double(facts: ProjectFacts) -> Iterable[Hit]:
    """Two files of recipes/ have one name."""
    for problem in facts.doubles:
        yield from hits(problem, str(facts.paths.recipes))


@project_rule(
    "tags-shared",
    "error",
    why="The image that is made second would take the tag of the first, and who pulls it would get another image "
    "without a word. Templates are compared as if all were locked on one day.",
    example='tags: ["me/vllm:{cuda.compact}"], in two recipes',
    cure="put {recipe} and {arch} into the template",
)
def tags_shared(facts: ProjectFacts) -> Iterable[Hit]:
    """Two recipes, or two architectures of one, whose templates give the same tag."""
    every = [claim for recipe in facts.recipes for claim in claims(facts.project, recipe)]
    for one, other in shared(every):
        if facts.linted is None or facts.linted & {one.recipe, other.recipe}:
            yield Hit(told(one, other), _where(facts, other), cure_of(other), about=other.tag)


def _where(facts: ProjectFacts, claim: Claim) -> str:
    if claim.key != "tags":
        return facts.build.where(tuple(claim.key.split(".")))
    file = facts.paths.recipe(claim.recipe)
    return read(file).where(("tags",))
