"""All rules over the facts: hits become findings, waivers are used up, and what is said twice is said once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from graft.linting.facts import ProjectFacts, RecipeFacts
from graft.linting.model import PREFIX, RULES, Finding, Hit, Rule
from graft.paths import Paths
from graft.recipe import Waiver

LEVELS = ("error", "warning", "note")
#: What the plan refuses mostly has no line.
PLAN = "plan-refused"


def judge_recipe(facts: RecipeFacts) -> list[Finding]:
    """Every finding about one recipe, waived ones with their reason."""
    found: list[tuple[Rule, Finding]] = []
    unchecked: set[str] = set()
    for rule in RULES.values():
        for hit in rule.of_recipe(facts) if rule.of_recipe is not None else ():
            found.append((rule, _finding(rule, hit, facts.around.paths, facts.name)))
            if hit.unchecked:
                unchecked.add(rule.id)
    kept = [finding for rule, finding in found if not (rule.general and _is_said_nearer(finding, found))]
    waivers = facts.recipe.waivers if facts.recipe is not None else ()
    used: set[int] = set()
    judged = [_waived(finding, waivers, used) for finding in kept]
    judged += _unused(facts, waivers, used, unchecked)
    return ordered(judged)


def judge_project(facts: ProjectFacts) -> list[Finding]:
    """Every finding about what the recipes share."""
    found = [
        _finding(rule, hit, facts.paths, "")
        for rule in RULES.values()
        if rule.of_project is not None
        for hit in rule.of_project(facts)
    ]
    return ordered(found)


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """By file and line; each once."""
    unique = list(dict.fromkeys(findings))
    return sorted(unique, key=lambda f: (f.file, f.line, LEVELS.index(f.level), f.rule, f.message))


def _finding(rule: Rule, hit: Hit, paths: Paths, recipe: str) -> Finding:
    file, colon, line = hit.where.rpartition(":")
    if not (colon and line.isdigit()):
        file, line = hit.where, "1"
    root = f"{paths.root}/"
    return Finding(
        rule.id,
        hit.level or rule.level,
        hit.message,
        file.removeprefix(root),
        int(line),
        hit.cure or rule.cure,
        recipe,
        hit.about,
    )


def _is_said_nearer(finding: Finding, found: Sequence[tuple[Rule, Finding]]) -> bool:
    """Whether a rule that knows more has an error about the same thing, on the same line if the finding has one."""
    for rule, other in found:
        if rule.general or other.level != "error" or not other.about:
            continue
        is_there = finding.rule == PLAN or (finding.file, finding.line) == (other.file, other.line)
        if is_there and re.search(rf"(?<![\w-]){re.escape(other.about)}(?![\w-])", finding.message):
            return True
    return False


def _waived(finding: Finding, waivers: Sequence[Waiver], used: set[int]) -> Finding:
    if not finding.about or RULES[finding.rule].about is None or finding.level == "note":
        return finding
    for index, waiver in enumerate(waivers):
        names = waiver.package in (None, finding.about) and waiver.arch in (None, finding.about)
        if waiver.check == PREFIX + finding.rule and names and fnmatchcase(finding.about, waiver.file):
            used.add(index)
            return replace(finding, waived=f"{waiver.reason} (until {waiver.until})")
    return finding


def _unused(facts: RecipeFacts, waivers: Sequence[Waiver], used: set[int], unchecked: set[str]) -> Iterable[Finding]:
    rule = RULES["waiver-unused"]
    for index, waiver in enumerate(waivers):
        named = RULES.get(waiver.check.removeprefix(PREFIX)) if waiver.check.startswith(PREFIX) else None
        if named is None or named.about is None or named.id in unchecked or index in used:
            continue
        hit = Hit(f"nothing needs the waiver of {waiver.check} for {waiver.file}", facts.where("waivers", index))
        yield _finding(rule, hit, facts.around.paths, facts.name)
