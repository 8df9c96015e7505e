"""Everything that can be known without network, engine or GPU, as rules with an id, a place and a cure.

`commands.lint` reads the project into facts, the rules look at them, and all findings come at once. docs/rules.md is
made from the rules.
"""

from __future__ import annotations

from graft.linting import (
    arch_rules,
    between_rules,
    group_rules,
    load_rules,
    patch_rules,
    pin_rules,
    remote_rules,
    waiver_rules,
)
from graft.linting.closure import Closure, Wheels
from graft.linting.facts import ProjectFacts, RecipeFacts
from graft.linting.model import PREFIX, RULES, Finding, Level, Rule
from graft.linting.run import judge_project, judge_recipe

#: Modules whose import fills the registry, in the order of the page.
RULE_MODULES = (load_rules, between_rules, arch_rules, group_rules, pin_rules, remote_rules, patch_rules, waiver_rules)

__all__ = [
    "PREFIX",
    "RULES",
    "Closure",
    "Finding",
    "Level",
    "ProjectFacts",
    "RecipeFacts",
    "Rule",
    "Wheels",
    "judge_project",
    "judge_recipe",
]
