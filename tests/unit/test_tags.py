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
from graft.tags import TAG, Naming, check_alone, claims, facts_of, filled, references, shared

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


def other_of(template: str, **facts: object) -> Recipe:
    def edit(recipe: Data) -> None:
        recipe.update(recipe="other", tags=[template], published=None, **facts)

    return Recipe.model_validate(edited(OPEN, edit))


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ("a:x", "a:x"),
        ("a/b:x-{arch}", "c/d:x-sm120"),  # pushed into one repository
        ("a:{lock.date}", "a:{lock.date}"),  # of one day
        ("a:other-sm120", "a:y"),  # the channel of the other
        ("a:other-sm120-stable", "a:y"),
    ],
)
def test_a_tag_that_two_recipes_make_is_refused(mine: str, theirs: str) -> None:
    project = load_project(Paths(ROOT).build_yaml)
    with pytest.raises(BadInput) as caught:
        check_alone(project, recipe_with(mine), "sm120", [other_of(theirs)])
    assert "is the tag of open on sm120 and of other on sm120" in caught.value.what
    assert caught.value.where == "recipes/open.yaml: tags"
    assert caught.value.cure


@pytest.mark.parametrize("template", ["a:{key12}", "a:{recipe}", "a:{recipe}-{arch}", "a:{nothing}"])
def test_a_tag_of_its_own_is_taken(template: str) -> None:
    project = load_project(Paths(ROOT).build_yaml)
    check_alone(project, recipe_with(template), "sm120", [other_of(template)])


def test_architectures_of_one_recipe_have_tags_of_their_own() -> None:
    project = load_project(Paths(ROOT).build_yaml)
    two = other_of("a:{recipe}", arches=["sm90", "sm120"])
    with pytest.raises(BadInput, match="is the tag of other on sm120 and of other on sm90"):
        check_alone(project, two, "sm120", [])
    assert [(one.arch, other.arch) for one, other in shared(claims(project, two))] == [("sm90", "sm120")]


def test_no_tags_of_the_projects_recipes_meet() -> None:
    paths = Paths(ROOT)
    project = load_project(paths.build_yaml)
    every = [load_recipe(paths, project, name) for name in recipe_names(paths)]
    assert list(shared(claim for recipe in every for claim in claims(project, recipe))) == []
