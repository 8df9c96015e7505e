"""Rules about patches that are sound, and no longer needed."""

from __future__ import annotations

from collections.abc import Iterable

from graft.linting.facts import ProjectFacts, RecipeFacts
from graft.linting.model import Hit, project_rule, recipe_rule
from graft.patching import SourceTree
from graft.patching.ends import end_of
from graft.yamlio import read


@recipe_rule(
    "patch-ended",
    "warning",
    why="A patch that has served is carried, judged and explained at every update; and where upstream has it, it "
    "may undo "
    "what came later.",
    example='ends: {version: "0.33.0"}, and the recipe has 0.33.0',
    cure="make patch-status shows what the files say; then graft patch drop",
    about="the patch, as `vllm/fix`",
)
def patch_ended(facts: RecipeFacts) -> Iterable[Hit]:
    """The end of a patch is reached by the version that the recipe has."""
    for index, ref in enumerate(facts.recipe.patches if facts.recipe is not None else ()):
        component, _, patch_id = ref.partition("/")
        found = facts.around.series.get(component)
        record = next((p.record for p in found.patches if p.id == patch_id), None) if found is not None else None
        if record is None or facts.recipe is None:
            continue
        end = end_of(record.ends, facts.recipe.components[component].version, SourceTree({}))
        if end.reached:
            yield Hit(f"{ref} has served: {end.why}", facts.where("patches", index), about=ref)


@project_rule(
    "patch-unused",
    "warning",
    why="Nothing tests or locks a patch that no recipe lists: it rots, and the next reader takes it for used.",
    example="patches/vllm/fix.patch, in no recipe's patches",
    cure="list it in a recipe, or graft patch drop it",
)
def patch_unused(facts: ProjectFacts) -> Iterable[Hit]:
    """A patch that no recipe lists."""
    if facts.used is None:
        return
    for component, found in facts.series.items():
        for index, patch in enumerate(found.patches):
            if f"{component}/{patch.id}" not in facts.used:
                where = read(found.folder / "series.yaml").where(("patches", index, "id"))
                yield Hit(f"no recipe lists {component}/{patch.id}", where)
