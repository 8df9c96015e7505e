"""All rules together: waivers are used up, nothing is said twice, and nothing of a recipe hides another thing of it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from factories import RECIPE, Edit
from hypothesis import given, settings
from hypothesis import strategies as st
from linting_facts import CONFLICT, LOSER, NCCL, TORCH, around, component, facts, locked, series, waiver

from graft.errors import BadInput
from graft.linting import Closure, Finding, judge_recipe
from graft.linting.closure import Conflict, Mismatch
from graft.patchset import Ends

#: Anything that YAML can hold.
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = [(key,) for key in (*RECIPE, "unlocked", "drop_env", "keep_env")]
KEYS += [("components", name) for name in RECIPE["components"]]
KEYS += [("components", "vllm", key) for key in ("wheel", "git", "archive", "image", "version", "arches", "index")]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(KEYS), PLAIN), min_size=1, max_size=3), PLAIN)
def test_no_recipe_that_yaml_can_hold_breaks_a_rule(changes: list[tuple[tuple[str, ...], Any]], env: Any) -> None:
    def edit(recipe: dict[str, Any]) -> None:
        for path, value in changes:
            at = recipe
            for key in path[:-1]:
                at = at.get(key) if isinstance(at, dict) else None
            if isinstance(at, dict):
                at[path[-1]] = value

    found = judge_recipe(
        facts(edit, of=around(build=lambda b: b["bases"]["debian12"].update(env=env, image=copy.deepcopy(env))))
    )
    assert found == sorted(found, key=lambda f: (f.file, f.line))
    assert all(f.message and f.line >= 1 for f in found)


ENDED = series(ends=Ends(version="0.32.0"))


def said(found: list[Finding], *, smoke: bool = False) -> list[str]:
    """Rules of the findings that count; the toy project has no folder of smoke tests."""
    return [f.rule for f in found if f.waived is None and (smoke or f.rule != "recipe-smoke")]


def test_a_waiver_takes_its_finding_and_keeps_it_visible() -> None:
    shared = around(series=ENDED)
    waived = lambda r: r.update(waivers=[waiver("patch-ended", "vllm/defaults")])  # noqa: E731
    assert said(judge_recipe(facts(of=shared))) == ["patch-ended"]
    found = judge_recipe(facts(waived, of=shared))
    assert said(found) == []
    assert [f.waived for f in found if f.rule == "patch-ended"] == ["a reason (until a day)"]


@pytest.mark.parametrize("file", ["vllm/*", "*", "vllm/default?"])
def test_a_waiver_is_a_glob(file: str) -> None:
    found = judge_recipe(facts(lambda r: r.update(waivers=[waiver("patch-ended", file)]), of=around(series=ENDED)))
    assert said(found) == []


def test_a_waiver_that_covers_nothing_is_an_error_beside_the_finding() -> None:
    found = judge_recipe(facts(lambda r: r.update(waivers=[waiver("patch-ended", "vllm/x")]), of=around(series=ENDED)))
    assert sorted(said(found)) == ["patch-ended", "waiver-unused"]


def test_a_waiver_is_left_alone_where_its_rule_could_not_look() -> None:
    edit: Edit = lambda r: r.update(waivers=[waiver("requires-mismatch", "torch")])  # noqa: E731
    assert said(judge_recipe(facts(edit, closure=Closure(unread=("a.whl",), mismatches=(NCCL,))))) == [
        "files-conflict",
        "requires-mismatch",
    ]
    assert "waiver-unused" in said(judge_recipe(facts(edit, closure=Closure(mismatches=(NCCL,)))))
    assert said(judge_recipe(facts(edit, closure=Closure(mismatches=(NCCL, TORCH))))) == []


@pytest.mark.parametrize("rule", ["lock-stale", "recipe-schema", "files-conflict"])
def test_what_cannot_be_waived_says_so(rule: str) -> None:
    found = judge_recipe(facts(lambda r: r.update(waivers=[waiver(rule, "x")])))
    assert [f.message for f in found if f.rule == "waiver-unknown"] == [f"lint/{rule} cannot be waived"]
    assert "waiver-unused" not in said(found)


def test_a_waiver_of_a_rule_is_none_of_the_gates() -> None:
    made = facts(lambda r: r.update(waivers=[waiver("patch-ended", "x")]))
    assert made.recipe is not None
    assert [w.of_gate for w in made.recipe.waivers] == [False]


def test_what_was_not_looked_at_is_said_once_for_each_rule() -> None:
    found = judge_recipe(facts(closure=Closure(unread=("a.whl", "b.whl", "c.whl"), mismatches=(NCCL,))))
    notes = [f for f in found if f.level == "note"]
    assert [f.rule for f in notes] == ["files-conflict", "requires-mismatch"]
    assert all("not checked for a.whl and 2 more" in f.message and "make fetch" in f.cure for f in notes)
    assert "overrides-unneeded" not in said(found), "nothing is concluded from half of the wheels"


def test_several_faults_are_found_together() -> None:
    def edit(recipe: dict[str, Any]) -> None:
        recipe.update(arches=["sm90", "9.0a", "sm91"], archs=[], cuda=13.0)
        recipe["env"]["CUDAARCHS"] = "90"
        recipe["components"]["vllm"]["version"] = ">=0.32"

    assert sorted(said(judge_recipe(facts(edit)))) == [
        "arch-env",
        "arch-grammar",
        "arch-unknown",
        "pin-floating",
        "recipe-number",
        "recipe-schema",
    ]


def test_a_plan_repeats_nothing_that_a_rule_knows_better() -> None:
    refused = (
        BadInput("nvidia-cuda-nvcc 13.5.37 is not of CUDA 13.0: nvcc and the headers would not fit"),
        BadInput("'-x' is not a legal image tag"),
    )
    found = judge_recipe(facts(lock=locked(nvidia_cuda_nvcc="13.5.37"), plans_refused=refused))
    messages = [f.message for f in found if f.rule == "plan-refused"]
    assert messages == ["'-x' is not a legal image tag"]
    assert "group-toolkit" in said(found)


def test_a_fault_on_another_line_is_never_taken_for_the_same() -> None:
    def edit(recipe: dict[str, Any]) -> None:
        recipe["components"]["torch"]["version"] = ">=2"
        recipe["components"]["vllm"]["overrides"] = "torch"
        recipe["components"]["nccl"]["overides"] = "torch"

    found = judge_recipe(facts(edit))
    assert [f.rule for f in found if "overides" in f.message] == ["recipe-schema"]


@pytest.mark.parametrize(
    ("mismatch", "edit", "declared"),
    [
        (NCCL, None, True),
        (NCCL, lambda r: r["components"]["nccl"].pop("overrides"), False),
        (NCCL, lambda r: r["components"]["nccl"].update(overrides="vllm"), False),
        (NCCL, component("nccl", version="2.31.0"), False),
        (Mismatch("x", "cuda-python<13", "cuda-python", "13.4.4"), None, True),
        (Mismatch("x", "cuda-python<13", "cuda-python", "12.6.2"), None, False),
        (Mismatch("x", "cuda-python<13", "cuda-python", None), None, False),
    ],
)
def test_a_difference_is_declared_by_an_override_or_a_constraint(
    mismatch: Mismatch, edit: Edit | None, declared: bool
) -> None:
    found = judge_recipe(facts(*[edit] if edit else [], closure=Closure(mismatches=(mismatch,))))
    assert ("requires-mismatch" not in said(found)) == declared


@pytest.mark.parametrize(
    ("change", "decided"),
    [
        ({}, True),
        ({"package": "dsl-libs-cu13"}, True),
        ({"package": "another"}, False),
        ({"file": "other/*"}, False),
        ({"package": None}, False),
    ],
)
def test_which_wheel_wins_is_said_by_a_waiver_that_names_the_loser(change: dict[str, Any], decided: bool) -> None:
    edit: Edit = lambda r: r.update(smoke=["files"], waivers=[{**LOSER, **change}])  # noqa: E731
    found = judge_recipe(facts(edit, closure=Closure(mismatches=(NCCL,), conflicts=(CONFLICT,))))
    assert ("files-conflict" not in said(found)) == decided


def test_two_losers_of_two_leave_no_winner_and_one_loser_of_three_is_not_enough() -> None:
    both = [LOSER, {**LOSER, "package": "dsl-libs-cu13"}]
    three = Conflict(CONFLICT.file, (*CONFLICT.owners, ("c", "sha256=c")))
    for waivers, conflict in ((both, CONFLICT), ([LOSER], three)):
        edit: Edit = lambda r, w=waivers: r.update(smoke=["files"], waivers=w)  # type: ignore[misc]  # noqa: E731
        assert "files-conflict" in said(judge_recipe(facts(edit, closure=Closure(conflicts=(conflict,)))))


def source(**facts: Any) -> Edit:
    def edit(recipe: dict[str, Any]) -> None:
        recipe["components"]["x"] = {"version": "1.0", **facts}

    return edit


GIT = {"url": "https://git.invalid/x.git", "commit": "a" * 40}


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (source(git="https://git.invalid/x.git"), "x: git without commit"),
        (source(git={**GIT, "commit": "a" * 9}), "x: git without commit"),
        (source(git={"url": GIT["url"], "ref": "main"}), "x: git without commit (only ref 'main')"),
        (source(git={"url": GIT["url"], "tag": "v1"}), "x: git without commit (only tag 'v1')"),
        (source(git={**GIT, "pulls": [{"number": 31}]}), "x: pull 31 without head"),
        (source(git={**GIT, "lost": [{"patch": "p", "sha256": "a" * 64}]}), "x: patch p can be fetched by nobody"),
        (source(archive={"url": "https://a.invalid/x.tar.gz"}), "x: archive without sha256"),
        (source(image={"reference": "a.invalid/x:1"}), "x: image without digest"),
        (source(image="a.invalid/x:1"), "x: image without digest"),
        (source(wheel="x", version="latest"), "x: 'latest' is no exact version"),
        (source(wheel="x", version="1.*"), "x: '1.*' is no exact version"),
        (source(git=GIT), None),
        (source(git={**GIT, "pulls": [{"number": 31, "head": "b" * 40}]}), None),
        (source(archive={"url": "https://a.invalid/x", "sha256": "a" * 64}), None),
        (source(image={"reference": "a.invalid/x:1", "digest": "sha256:" + "a" * 64}), None),
        (source(image="a.invalid/x@sha256:" + "a" * 64), None),
        (source(wheel="x"), None),
    ],
)
def test_a_source_is_pinned_by_content(edit: Edit, says: str | None) -> None:
    found = [f for f in judge_recipe(facts(edit)) if f.rule == "pin-floating"]
    assert [f.message for f in found] == ([says] if says else [])
    assert all(f.level == "error" for f in found)
    unlocked = facts(edit, lambda r: r.update(unlocked=True))
    assert [f.level for f in judge_recipe(unlocked) if f.rule == "pin-floating"] == ["warning"] * len(found)


def test_a_base_image_is_pinned_by_its_digest() -> None:
    def base(**image: str) -> list[str]:
        shared = around(build=lambda b: b["bases"]["debian12"].update(image={"reference": "a.invalid/b:1", **image}))
        return [f.message for f in judge_recipe(facts(of=shared)) if f.rule == "pin-floating"]

    assert base() == ["base: debian12 of build.yaml: image without digest"]
    assert base(digest="sha256:" + "a" * 64) == []


@pytest.mark.parametrize(
    ("versions", "about"),
    [
        ({"torchaudio": "2.14.0"}, "torchaudio"),
        ({"torchaudio": "2.11.0"}, None),
        ({"torchvision": "0.28.0+cu130"}, "torchvision"),
        ({"torch": "2.13.0+cu132", "torchvision": "0.28.0+cu132"}, "torch"),
        ({"torch": "2.13.0+cu130", "torchvision": "0.28.0+cu130"}, None),
    ],
)
def test_the_family_of_torch(versions: dict[str, str], about: str | None) -> None:
    found = [f.about for f in judge_recipe(facts(lock=locked(**versions))) if f.rule == "group-torch"]
    assert found == ([about] if about else [])


def test_a_wheel_says_itself_which_python_it_wants() -> None:
    found = judge_recipe(facts(lock=locked(), closure=Closure(mismatches=(NCCL,), pythons=(("torch", ">=3.12"),))))
    assert [f.message for f in found if f.rule == "wheel-tags"] == ["torch asks for Python >=3.12, the base has 3.11"]


@pytest.mark.parametrize(("keep", "says"), [(["NCCL_GRAPH_FILE"], []), ([], ["env-inherited"])])
def test_what_a_base_sets_is_kept_by_name(keep: list[str], says: list[str]) -> None:
    shared = around(build=lambda b: b["bases"]["debian12"].update(env={"NCCL_GRAPH_FILE": None, "PATH": "/bin"}))
    found = judge_recipe(facts(lambda r: r.update(keep_env=keep), of=shared))
    assert [f.rule for f in found if f.rule == "env-inherited"] == says
