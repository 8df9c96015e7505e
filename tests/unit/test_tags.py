"""Tags: what a template is made of, and that what comes out is a tag."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from factories import OPEN, Data, edited
from hypothesis import given
from hypothesis import strategies as st

from graft.errors import BadInput
from graft.paths import Paths
from graft.project import load_project
from graft.recipe import Recipe, load_recipe, recipe_names
from graft.tags import TAG, Naming, facts_of, filled, references

ROOT = Path(__file__).parents[2]
NAMING = Naming("sm120", "2026-06-21", "0123456789ab")


def recipe_with(template: str) -> Recipe:
    return Recipe.model_validate(edited(OPEN, lambda r: r.update(tags=[template], published=None)))


@pytest.mark.parametrize(
    "name", [n for n in recipe_names(Paths(ROOT)) if Paths(ROOT).recipe(n).parent.name == "reference"]
)
def test_what_was_published_comes_out_of_the_template(name: str) -> None:
    paths = Paths(ROOT)
    recipe = load_recipe(paths, load_project(paths.build_yaml), name)
    assert recipe.published is not None
    naming = Naming("sm120", str(recipe.date), "0" * 12)
    assert references(recipe, facts_of(recipe, naming)) == (recipe.published.tag,)


def test_the_published_tag_of_dark_devotion() -> None:
    paths = Paths(ROOT)
    recipe = load_recipe(paths, load_project(paths.build_yaml), "dark-devotion")
    (tag,) = references(recipe, facts_of(recipe, NAMING))
    assert tag == "voipmonitor/vllm:dark-devotion-df8ad3b-b12x5af873a-mtptopkscores-cu132-20260621"
    # Nothing of it stands in the template but the names of its parts.
    assert not re.search(r"[0-9a-f]{7}|20260621|cu132|mtp", recipe.tags[0])


@pytest.mark.parametrize(
    ("template", "tag"),
    [
        ("a:{recipe}-{arch}-{release}", "a:open-sm120-r7"),
        ("a:{cuda}-{cuda.compact}", "a:13.2-cu132"),
        ("a:{lock.date}-{lock.date.compact}-{key12}", "a:2026-06-21-20260621-0123456789ab"),
        ("a:{torch.version}-torch{torch.compact}", "a:2.12.0_cu132-torch212"),
        ("a:{vllm.short}-{vllm.tree}-{vllm.version}", "a:5555555-6666666-0.11.2"),
        ("a:{flashinfer.short}", "a:ccccccc"),
        ("a:{cutlass.version}", "a:0_g222222222"),
        ("a:{cublas.version}", "a:13.4.1.2-1"),
        ("a:{patches.compact}", "a:topkscores"),
    ],
)
def test_placeholders(template: str, tag: str) -> None:
    recipe = recipe_with(template)
    assert references(recipe, facts_of(recipe, NAMING)) == (tag,)


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("a:{vllm.branch}", "unknown placeholder {vllm.branch}"),
        ("a:{mathlib.tree}", "unknown placeholder {mathlib.tree}"),
        ("a:{recipe", "'{recipe' is not a legal image tag"),
        ("a:" + "{vllm.tree}" * 19, "is not a legal image tag"),
    ],
)
def test_a_template_that_gives_no_tag_is_refused(template: str, says: str) -> None:
    recipe = recipe_with(template)
    with pytest.raises(BadInput) as caught:
        references(recipe, facts_of(recipe, NAMING))
    assert says in caught.value.what
    assert caught.value.where == "recipes/open.yaml: tags"


def test_an_abbreviated_commit_stays_as_it_is() -> None:
    def edit(recipe: Data) -> None:
        recipe["components"]["flashinfer"]["commit"] = "5df63a720"

    assert facts_of(Recipe.model_validate(edited(OPEN, edit)), NAMING)["flashinfer.short"] == "5df63a720"


@given(st.text("0123456789abcdef", min_size=40, max_size=40), st.dates())
def test_a_tag_is_legal_and_says_its_commit_and_its_day(commit: str, day: object) -> None:
    def edit(recipe: Data) -> None:
        recipe["components"]["vllm"]["git"]["commit"] = commit
        recipe.update(tags=["a/b:{recipe}-{vllm.short}-{lock.date.compact}"], published=None)

    recipe = Recipe.model_validate(edited(OPEN, edit))
    (reference,) = references(recipe, facts_of(recipe, Naming("sm120", str(day), "0" * 12)))
    tag = reference.partition(":")[2]
    assert TAG.fullmatch(tag)
    assert tag == f"open-{commit[:7]}-{str(day).replace('-', '')}"


NAMES = st.from_regex(r"[a-z.]{1,6}", fullmatch=True)


@given(st.dictionaries(NAMES, st.from_regex(r"[a-z0-9+.]{0,6}", fullmatch=True)))
def test_every_placeholder_is_replaced_and_nothing_else(facts: dict[str, str]) -> None:
    template = "-".join(f"x{{{name}}}" for name in facts)
    assert filled(template, facts, "here") == "-".join(f"x{value.replace('+', '_')}" for value in facts.values())
