"""Rules that pass on what the loaders and the plan refuse, so that it is found together with everything else."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from graft.errors import BadInput, GraftError
from graft.linting.facts import ProjectFacts, RecipeFacts
from graft.linting.model import Hit, project_rule, recipe_rule
from graft.recipe import smoke_file

NUMBER = re.compile(r"YAML reads .* quote it")
#: What the loader of locks says -> the rule that explains it. A test makes each of them with the loader itself.
LOCK_SAYS = (
    (re.compile(r"has no lock$"), "lock-missing"),
    (re.compile(r"has format \d+, this Graft reads"), "lock-newer"),
    (re.compile(r"^this is the lock of recipe"), "lock-other-recipe"),
    (re.compile(r"edited by hand|does not fit the lock"), "lock-edited"),
    (re.compile(r"is stale|has format \d+, this Graft writes|is missing$"), "lock-stale"),
)


def hits(problem: GraftError, default: str) -> Iterable[Hit]:
    """One hit for each finding of an error; `default` is the place of one that names none."""
    if problem.findings:
        for where, what in problem.findings:
            yield Hit(what, where, problem.cure)
    else:
        yield Hit(problem.what, problem.where or default, problem.cure)


@recipe_rule(
    "recipe-unreadable",
    "error",
    why="A file that is not plain YAML in UTF-8 means different things to different readers, and aliases make 1 "
    "KB of it "
    "into 1 GB.",
    example="recipes/big.yaml: larger than 1 MB",
    cure="correct the file at the line named",
)
def recipe_unreadable(facts: RecipeFacts) -> Iterable[Hit]:
    """The recipe is no YAML that Graft takes: not UTF-8, empty, too large, duplicate keys, anchors, bad syntax."""
    if facts.refused is not None and facts.data is None:
        yield from hits(facts.refused, str(facts.file))


@recipe_rule(
    "recipe-number",
    "error",
    why="YAML turns 13.0 into the number 13, 1.10 into 1.1 and a commit such as 12345678 into a number: what is pinned "
    "would not be what was written.",
    example="cuda: 13.0",
    cure="put it in quotes",
    general=True,
)
def recipe_number(facts: RecipeFacts) -> Iterable[Hit]:
    """A version, architecture, commit or value of env without quotes, which YAML reads as a number, true or false."""
    if facts.refused is not None and facts.data is not None:
        yield from (hit for hit in hits(facts.refused, str(facts.file)) if NUMBER.search(hit.message))


@recipe_rule(
    "recipe-schema",
    "error",
    why="A key that is not read does nothing, and nobody notices; so nothing is passed over.",
    example="archs: [sm90]",
    cure="correct the key or value at the line named; docs/recipe.md has all of them",
    general=True,
)
def recipe_schema(facts: RecipeFacts) -> Iterable[Hit]:
    """A key or value that the recipe language does not have, or that does not fit build.yaml."""
    if facts.refused is not None and facts.data is not None:
        yield from (hit for hit in hits(facts.refused, str(facts.file)) if not NUMBER.search(hit.message))


@recipe_rule(
    "recipe-smoke",
    "error",
    why="A smoke test that is not there would be found after the build.",
    example="smoke: [cores]",
    cure="name a file of images/smoke/",
)
def recipe_smoke(facts: RecipeFacts) -> Iterable[Hit]:
    """The recipe names a smoke test that images/smoke/ does not have."""
    for index, name in enumerate(facts.recipe.smoke if facts.recipe is not None else ()):
        try:
            smoke_file(facts.around.paths.smoke, name)
        except BadInput as problem:
            yield Hit(problem.what, facts.where("smoke", index), problem.cure, about=name)


@recipe_rule(
    "plan-refused",
    "error",
    why="Lint plans and renders each image, so that a build stops for no reason that could have been known before.",
    example='channels: ["{recipe}-{nothing}"]',
    cure="see the message",
    general=True,
)
def plan_refused(facts: RecipeFacts) -> Iterable[Hit]:
    """An image of the recipe cannot be planned or rendered."""
    for problem in facts.plans_refused:
        for hit in hits(problem, str(facts.file)):
            # A key of build.yaml is named as `build.yaml: channels`.
            key = hit.where.removeprefix("build.yaml: ")
            yield hit if key == hit.where else replace(hit, where=facts.around.build.where(tuple(key.split("."))))


def _lock_hits(facts: RecipeFacts, rule: str) -> Iterable[Hit]:
    problem = facts.lock_refused
    if problem is None:
        return
    named = next((name for says, name in LOCK_SAYS if says.search(problem.what)), "lock-invalid")
    if named == rule:
        yield from hits(problem, str(facts.around.paths.lock(facts.name)))


@recipe_rule(
    "lock-missing",
    "error",
    why="Without a lock nothing says which bytes enter the image.",
    example="recipes/new.yaml, and no recipes/locks/new.lock.yaml",
    cure="make lock RECIPE=<name>, and commit the two files it writes",
)
def lock_missing(facts: RecipeFacts) -> Iterable[Hit]:
    """The recipe has no lock."""
    return _lock_hits(facts, "lock-missing")


@recipe_rule(
    "lock-stale",
    "error",
    why="The lock was made from something else than what the recipe, build.yaml and the patches say now.",
    example="a version raised in the recipe, and no make lock after it",
    cure="make lock RECIPE=<name>",
)
def lock_stale(facts: RecipeFacts) -> Iterable[Hit]:
    """The lock does not belong to the recipe as it stands, or an older Graft wrote it."""
    return _lock_hits(facts, "lock-stale")


@recipe_rule(
    "lock-newer",
    "error",
    why="A newer Graft may mean something that this one would pass over.",
    example="lock: 99",
    cure="use the Graft that wrote the lock",
)
def lock_newer(facts: RecipeFacts) -> Iterable[Hit]:
    """The lock was written by a newer Graft."""
    return _lock_hits(facts, "lock-newer")


@recipe_rule(
    "lock-other-recipe",
    "error",
    why="A lock that was copied from another recipe names other bytes.",
    example="recipes/locks/a.lock.yaml with: recipe: b",
    cure="make lock RECIPE=<name>",
)
def lock_other_recipe(facts: RecipeFacts) -> Iterable[Hit]:
    """The lock is another recipe's."""
    return _lock_hits(facts, "lock-other-recipe")


@recipe_rule(
    "lock-edited",
    "error",
    why="A lock says what was resolved and judged together; a line that was changed by hand was neither.",
    example="a version changed in the lock, its digest not",
    cure="git checkout the lock, or make lock",
)
def lock_edited(facts: RecipeFacts) -> Iterable[Hit]:
    """The lock, or the requirements.txt beside it, was edited by hand."""
    return _lock_hits(facts, "lock-edited")


@recipe_rule(
    "lock-invalid",
    "error",
    why="A lock that is not what make lock writes, as after a merge, cannot be trusted in part.",
    example="<<<<<<< HEAD in a lock",
    cure="git checkout the lock, or make lock",
)
def lock_invalid(facts: RecipeFacts) -> Iterable[Hit]:
    """The lock is no lock: bad YAML, unknown or missing keys, wrong values."""
    return _lock_hits(facts, "lock-invalid")


@recipe_rule(
    "operators-unrecorded",
    "note",
    why="Where nothing is recorded, the gate takes whatever operators an image registers, and its first green run "
    "records them: a kernel that is lost before that is not seen.",
    example="smoke: [load], and no recipes/locks/<name>.operators.yaml in git",
    cure="make image records them with its first green gate; commit recipes/locks/<name>.operators.yaml",
)
def operators_unrecorded(facts: RecipeFacts) -> Iterable[Hit]:
    """The gate loads the extensions of an image, and no operators are recorded for its architecture."""
    if facts.unrecorded:
        where = f"recipes/locks/{facts.name}.operators.yaml"
        cure = f"run make image RECIPE={facts.name} for each ARCH, and commit {where}; or git checkout {where}"
        said = f"no operators are recorded for {', '.join(facts.unrecorded)}: the gate takes what the image has"
        yield Hit(said, facts.where("smoke"), cure)


@project_rule(
    "lock-tools",
    "error",
    why="The programs that Graft runs on the host, the engine's above all, are Debian packages: unlocked, two machines "
    "would build with different ones.",
    example="a package added to engine: packages: in build.yaml, and no make lock after it",
    cure="make lock, and commit recipes/locks/_tools.lock.yaml",
)
def lock_tools(facts: ProjectFacts) -> Iterable[Hit]:
    """The lock of the host's programs is missing, stale, or not what make lock wrote."""
    if facts.tools_refused is not None:
        yield from hits(facts.tools_refused, str(facts.paths.tools_lock))


@recipe_rule(
    "patch-refused",
    "error",
    why="A patch that is not there, comes after one that is left out, or is meant for another version cannot be "
    "applied.",
    example="patches: [vllm/no-such-patch]",
    cure="see the message",
)
def patch_refused(facts: RecipeFacts) -> Iterable[Hit]:
    """The recipe lists a patch that cannot be taken."""
    for problem in facts.patches_refused:
        yield from hits(problem, facts.where("patches"))


@project_rule(
    "patch-series",
    "error",
    why="The series of a component is read by every recipe that will ever patch it; a broken one is found now.",
    example="patches/vllm/fix.patch, which patches/vllm/series.yaml does not list",
    cure="correct the record, or the folder, at the line named",
)
def patch_series(facts: ProjectFacts) -> Iterable[Hit]:
    """A series of patches that does not load, or that holds a patch Graft refuses, whether a recipe uses it or not."""
    for problem in facts.refused:
        yield from hits(problem, str(facts.paths.patches))
