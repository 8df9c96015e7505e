"""How architectures are written: every spelling is known for what it is, and only code that names one is literal."""

from __future__ import annotations

from typing import Any

import pytest
from factories import Edit
from hypothesis import given
from hypothesis import strategies as st
from linting_facts import around, facts

from graft.linting import arch_text, judge_project, judge_recipe

DIGITS = st.sampled_from(["8.0", "8.9", "9.0", "10.0", "10.3", "11.0", "12.0", "12.1"])
SUFFIX = st.sampled_from(["", "a", "f"])


@given(
    DIGITS, SUFFIX, st.sampled_from(["", "sm_", "sm", "compute_"]), st.sampled_from(["", "+PTX", "-real", "-virtual"])
)
def test_every_spelling_is_read(capability: str, suffix: str, front: str, extra: str) -> None:
    digits = capability.replace(".", "") if front else capability
    found = arch_text.spelling(f"{front}{digits}{suffix}{extra}")
    assert found is not None
    assert (found.capability, found.suffix, found.extra) == (capability, suffix, extra)
    assert found.name == "sm" + capability.replace(".", "")


@given(st.text(max_size=12))
def test_any_text_is_read_or_is_none(text: str) -> None:
    found = arch_text.spelling(text)
    assert found is None or arch_text.spelling(found.name) is not None
    arch_text.literal(text)


@given(st.lists(st.tuples(DIGITS, SUFFIX), max_size=5))
def test_both_forms_are_seen_in_any_order(parts: list[tuple[str, str]]) -> None:
    text = ";".join(capability + suffix for capability, suffix in parts)
    both = {c for c, s in parts if s and (c, "") in parts}
    assert set(arch_text.both_forms(arch_text.spellings(text))) == both


@pytest.mark.parametrize(
    ("written", "cure"),
    [
        ("9.0a", "write sm90"),
        ("9.0", "write sm90"),
        ("90a", "write sm90"),
        ("sm_90a", "write sm90"),
        ("sm90a", "write sm90"),
        ("SM90A", "write sm90"),
        ("compute_120", "write sm120"),
        ("9.0+PTX", "write sm90"),
        ("90-real", "write sm90"),
        ("12.0f", "write sm120"),
        (9.0, "write sm90"),
        (90, "write sm90"),
        ("8.7", "build.yaml knows sm90, sm100, sm110, sm120"),
    ],
)
def test_a_tools_spelling_says_what_to_write(written: object, cure: str) -> None:
    found = [f for f in judge_recipe(facts(lambda r: r.update(arches=["sm100", written]))) if f.level == "error"]
    assert [(f.rule, f.cure) for f in found] == [("arch-grammar", cure)], "said once, by the rule that knows"
    assert str(written) in found[0].message


@pytest.mark.parametrize(
    ("edit", "rule", "cure"),
    [
        (lambda r: r.update(arches=["sm_101"]), "arch-renamed", "write sm110"),
        (lambda r: r.update(arches=["10.1"], cuda="12.9"), "arch-renamed", "write sm110, and raise cuda to 13.0"),
        (lambda r: r.update(arches=["sm12O"]), "arch-unknown", "did you mean sm120? known: sm90, sm100, sm110, sm120"),
        (lambda r: r["components"]["b12x"].update(arches=["12.0"]), "arch-grammar", "write sm120"),
    ],
)
def test_an_architecture_that_is_not_there(edit: Edit, rule: str, cure: str) -> None:
    found = [f for f in judge_recipe(facts(edit)) if f.level == "error"]
    assert [(f.rule, f.cure) for f in found] == [(rule, cure)]


def test_thor_in_the_table_before_cuda_13() -> None:
    shared = around(project=lambda p: p["arches"]["sm110"].update(cuda="12.8"))
    found = judge_recipe(facts(lambda r: r.update(arches=["sm110"]), of=shared))
    said = [f for f in found if f.rule == "arch-renamed"]
    assert [(f.file, f.cure) for f in said] == [("build.yaml", 'in build.yaml: cuda: "13.0"')]


@pytest.mark.parametrize(
    "line",
    [
        "export TORCH_CUDA_ARCH_LIST='9.0a'",
        'os.environ["CUDAARCHS"] = "90;100"',
        "cmake -DCMAKE_CUDA_ARCHITECTURES=120a",
        "nvcc -gencode=arch=compute_90a,code=sm_90a x.cu",
        "nvcc -arch=sm_90 x.cu",
        'ARCHES = ["sm90", "sm100"]',
        "list='9.0a;10.0a'",
    ],
)
def test_an_architecture_in_code_is_literal(line: str) -> None:
    found = judge_project(around(texts={"images/scripts/x.sh": f"first\n{line}\n"}))
    assert [(f.rule, f.file, f.line) for f in found] == [("arch-literal", "images/scripts/x.sh", 2)]


@pytest.mark.parametrize(
    "line",
    [
        "echo $TORCH_CUDA_ARCH_LIST",
        "TORCH_CUDA_ARCH_LIST={{ plan.arch.torch_list }}",
        "raise X('wanted: one architecture as 9.0a')",
        "runs on sm90, sm100 and sm120",
        "version 9.0; version 10.0",
        "# export CUDAARCHS=90",
        "sleep 90; sleep 100",
    ],
)
def test_words_and_variables_are_not(line: str) -> None:
    assert judge_project(around(texts={"images/scripts/x.sh": line})) == []


def test_what_needs_no_suffix_may_be_built_without() -> None:
    shared = around(project=lambda p: p["arches"]["sm90"].update(suffix=None))

    def only_torch(recipe: dict[str, Any]) -> None:
        recipe.update(patches=[], components={"torch": recipe["components"]["torch"]})

    plain = facts(only_torch, of=shared)
    assert plain.recipe is not None
    assert "arch-suffix" not in {f.rule for f in judge_recipe(plain)}
