"""Every rule finds what it is for, and only that; a rule without both cases fails here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from linting_facts import CASES, Made, around, facts, locked

from graft.linting import RULES, Finding, ProjectFacts, judge_project, judge_recipe
from graft.lock import lock_text, plain


def judged(made: Made, folder: Path) -> list[Finding]:
    made = made(folder) if callable(made) else made
    return judge_project(made) if isinstance(made, ProjectFacts) else judge_recipe(made)


def test_every_rule_has_a_case_and_every_case_a_rule() -> None:
    assert set(CASES) == set(RULES)


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_finds_what_it_is_for(rule: str, tmp_path: Path) -> None:
    found = [finding for finding in judged(CASES[rule].fails, tmp_path) if finding.rule == rule]
    assert len(found) == 1, found
    assert CASES[rule].says in found[0].message
    assert found[0].level == RULES[rule].level
    assert found[0].line >= 1
    assert found[0].cure
    assert not Path(found[0].file).is_absolute() or "series.yaml" in found[0].file


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_is_silent_where_all_is_well(rule: str, tmp_path: Path) -> None:
    assert [finding for finding in judged(CASES[rule].passes, tmp_path) if finding.rule == rule] == []


def test_what_only_the_lock_names_is_found_there(tmp_path: Path) -> None:
    shared = around(tmp_path)
    made = facts(lock=locked(nvidia_cuda_nvcc="13.5.37"), of=shared)
    assert made.lock is not None
    shared.paths.locks.mkdir(parents=True)
    shared.paths.lock("toy").write_text(lock_text(plain(made.lock)))
    found = next(finding for finding in judge_recipe(made) if finding.rule == "group-toolkit")
    lines = shared.paths.lock("toy").read_text().splitlines()
    assert found.file == "recipes/locks/toy.lock.yaml"
    assert lines[found.line - 1] == "- name: nvidia-cuda-nvcc"


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.id)
def test_a_rule_explains_itself(rule: object) -> None:
    for text in (rule.what, rule.why, rule.example, rule.cure):  # type: ignore[attr-defined]
        assert len(text) > 7
        assert not re.search(r"[^:]//(?!\S*invalid)", text), "no addresses"
