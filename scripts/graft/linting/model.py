"""What a rule is, what it finds, and the registry of all rules.

A rule is a function over facts that were gathered before: it opens nothing. Its docstring is the sentence of what it
finds; the page docs/rules.md is made from it and from the texts given to the decorator.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeVar

from graft.linting.facts import ProjectFacts, RecipeFacts

Level = Literal["error", "warning", "note"]
RULE_ID = re.compile(r"^[a-z]+(?:-[a-z0-9]+)+$")
#: How a waiver names a rule, in front of its id.
PREFIX = "lint/"


@dataclass(frozen=True)
class Hit:
    """What a rule says. where: `file:line` or a file; cure and level: the rule's own when not given.

    about:     what it is about, in one word of the user's (a distribution, a file, a key): waivers name it.
    unchecked: nothing was found wrong, the rule could not look.
    """

    message: str
    where: str
    cure: str | None = None
    about: str = ""
    level: Level | None = None
    unchecked: bool = False


@dataclass(frozen=True)
class Finding:
    """A hit, placed: what --json and SARIF show. line: from 1. waived: the reason of the waiver that covers it."""

    rule: str
    level: Level
    message: str
    file: str
    line: int
    cure: str
    recipe: str
    about: str
    waived: str | None = None


@dataclass(frozen=True)
class Rule:
    """One rule. why, example and cure are for the page; about: what its waivers name, None when it has none.

    general: what it says may only repeat what a nearer rule says of the same thing, and is left out then.
    """

    id: str
    level: Level
    what: str
    why: str
    example: str
    cure: str
    about: str | None
    general: bool
    of_recipe: Callable[[RecipeFacts], Iterable[Hit]] | None = None
    of_project: Callable[[ProjectFacts], Iterable[Hit]] | None = None

    @property
    def group(self) -> str:
        return self.id.partition("-")[0]


RULES: dict[str, Rule] = {}
RecipeCheck = TypeVar("RecipeCheck", bound=Callable[[RecipeFacts], Iterable[Hit]])
ProjectCheck = TypeVar("ProjectCheck", bound=Callable[[ProjectFacts], Iterable[Hit]])


def recipe_rule(
    rule_id: str,
    level: Level,
    *,
    why: str,
    example: str,
    cure: str,
    about: str | None = None,
    general: bool = False,
) -> Callable[[RecipeCheck], RecipeCheck]:
    """Register a rule that looks at one recipe."""

    def register(check: RecipeCheck) -> RecipeCheck:
        _add(Rule(rule_id, level, _what(check), why, example, cure, about, general, of_recipe=check))
        return check

    return register


def project_rule(
    rule_id: str, level: Level, *, why: str, example: str, cure: str
) -> Callable[[ProjectCheck], ProjectCheck]:
    """Register a rule that looks at what all recipes share; no recipe can waive it."""

    def register(check: ProjectCheck) -> ProjectCheck:
        _add(Rule(rule_id, level, _what(check), why, example, cure, None, False, of_project=check))
        return check

    return register


def _what(check: Callable[..., object]) -> str:
    if not check.__doc__:
        raise ValueError(f"{check.__name__}: a rule says in its docstring what it finds")
    return " ".join(check.__doc__.split())


def _add(rule: Rule) -> None:
    if rule.id in RULES or not RULE_ID.fullmatch(rule.id):
        raise ValueError(f"{rule.id}: a rule's id is unique and kebab-case with its group in front")
    RULES[rule.id] = rule
