"""Which wheel is taken for a base, and how uv's refusals are told."""

from __future__ import annotations

import datetime
import itertools
import random

import pytest
from factories import Data, make_lock, make_project, make_recipe
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.tags import compatible_tags, cpython_tags

from graft import resolve
from graft.errors import BadInput, FetchFailed
from graft.lock import lock_text, plain
from graft.resolve import best_wheel, without_addresses
from graft.wheel_tags import target_tags

BASE = make_project().bases["debian12"]
TAGS = target_tags(BASE)

#: Best first, as pip would choose on Python 3.11 with glibc 2.36.
ORDER = [
    "x-1-cp311-cp311-manylinux_2_36_x86_64.whl",
    "x-1-cp311-cp311-manylinux_2_28_x86_64.whl",
    "x-1-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
    "x-1-cp311-cp311-manylinux1_x86_64.whl",
    "x-1-cp311-cp311-linux_x86_64.whl",
    "x-1-cp311-abi3-manylinux_2_28_x86_64.whl",
    "x-1-cp311-none-manylinux_2_28_x86_64.whl",
    "x-1-cp310-abi3-manylinux_2_28_x86_64.whl",
    "x-1-cp38-abi3-manylinux_2_28_x86_64.whl",
    "x-1-py3-none-manylinux_2_28_x86_64.whl",
    "x-1-cp311-none-any.whl",
    "x-1-py311-none-any.whl",
    "x-1-py3-none-any.whl",
    "x-1-py2.py3-none-any.whl",
]
UNFIT = [
    "x-1-cp311-cp311-musllinux_1_2_x86_64.whl",
    "x-1-cp311-cp311-manylinux_2_37_x86_64.whl",
    "x-1-cp311-cp311-manylinux_2_28_aarch64.whl",
    "x-1-cp312-cp312-manylinux_2_28_x86_64.whl",
    "x-1-cp312-abi3-manylinux_2_28_x86_64.whl",
    "x-1-cp311-cp311t-manylinux_2_28_x86_64.whl",
    "x-1-cp311-cp311-macosx_11_0_arm64.whl",
    "x-1-cp311-cp311-win_amd64.whl",
    "x-1-py2-none-any.whl",
]


def chosen(*names: str) -> str | None:
    found = best_wheel([{"name": name} for name in names], TAGS)
    return None if found is None else str(found["name"])


@pytest.mark.parametrize(("better", "worse"), list(itertools.pairwise(ORDER[:-1])))
def test_the_closer_wheel_is_taken(better: str, worse: str) -> None:
    assert chosen(worse, better) == chosen(better, worse) == better


@pytest.mark.parametrize("name", UNFIT)
def test_a_wheel_for_something_else_is_never_taken(name: str) -> None:
    assert chosen(name) is None
    assert chosen(name, ORDER[-1]) == ORDER[-1]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([*ORDER, *UNFIT]), max_size=8), st.randoms())
def test_the_order_of_the_index_does_not_matter(names: list[str], chance: random.Random) -> None:
    mixed = chance.sample(names, len(names))
    assert chosen(*mixed) == chosen(*names)


def test_tags_are_those_of_packaging() -> None:
    platforms = [f"manylinux_2_{minor}_x86_64" for minor in range(36, 4, -1)]
    for after, name in (("manylinux_2_17", "2014"), ("manylinux_2_12", "2010"), ("manylinux_2_5", "1")):
        platforms.insert(platforms.index(f"{after}_x86_64") + 1, f"manylinux{name}_x86_64")
    platforms.append("linux_x86_64")
    assert [
        *cpython_tags((3, 11), platforms=platforms),
        *compatible_tags((3, 11), interpreter="cp311", platforms=platforms),
    ] == TAGS
    assert len(TAGS) == len(set(TAGS))


def test_a_wheel_is_named_by_its_address_when_it_has_no_name() -> None:
    url = "https://example.invalid/a/torch-2.13.0%2Bcu130-cp311-cp311-manylinux_2_28_x86_64.whl"
    assert best_wheel([{"url": url}], TAGS) == {"url": url}
    assert resolve._file_name({"url": url}) == "torch-2.13.0+cu130-cp311-cp311-manylinux_2_28_x86_64.whl"


NO_SOLUTION = """  x No solution found when resolving dependencies:
  `-> Because torch==2.13.0 depends on triton==3.7.0 and you require triton==3.6.0, we can conclude that your
      requirements are unsatisfiable.
"""
NOT_KNOWN = """  x No solution found when resolving dependencies:
  `-> Because no-such was not found in the package registry and you require no-such==1, your requirements are
      unsatisfiable.
"""
NO_INDEX = """error: Failed to fetch: `https://user:pa'ss)word@index.internal:8080/simple/torch/`
  Caused by: error sending request for url (https://user:pa'ss)word@index.internal:8080/simple/torch/)
  Caused by: operation timed out
"""


@pytest.mark.parametrize(
    ("stderr", "kind", "code"),
    [(NO_SOLUTION, BadInput, 2), (NOT_KNOWN, BadInput, 2), (NO_INDEX, FetchFailed, 4), ("", FetchFailed, 4)],
)
def test_uvs_refusals_have_their_codes(stderr: str, kind: type[BadInput], code: int) -> None:
    problem = resolve._refusal(stderr)
    assert type(problem) is kind
    assert problem.exit_code == code
    assert problem.cure
    for part in ("index.internal", "user:", "word", "8080"):
        assert part not in str(problem.as_dict())


def test_the_reason_of_uv_is_kept() -> None:
    assert "depends on triton==3.7.0" in str(resolve._refusal(NO_SOLUTION).tail)
    assert "operation timed out" in str(resolve._refusal(NO_INDEX).tail)


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("url (https://a/b) failed", "url (<address>) failed"),
        ("`https://u:p@a/b`: no", "`<address>`: no"),
        ("at 'file:///srv/x', then", "at '<address> then"),
        ("HTTPS://U:P@A/ and git+ssh://git@h/r", "<address> and <address>"),
        ("https://u:p)q'r@h/s x", "<address> x"),
        ("no address: a/b c:d", "no address: a/b c:d"),
    ],
)
def test_addresses_are_removed(text: str, clean: str) -> None:
    assert without_addresses(text) == clean


def test_a_package_without_a_fitting_wheel_says_what_to_do() -> None:
    entry = {"version": "1", "wheels": [{"name": UNFIT[0]}]}
    with pytest.raises(BadInput, match=r"x 1 has no wheel for Python 3\.11 on x86_64-manylinux_2_36") as caught:
        resolve._wheel("x", entry, TAGS, BASE)
    assert "sdist" in str(caught.value.cure)
    with pytest.raises(BadInput, match="x 1 has no sdist"):
        resolve._sdist("x", entry)


def test_a_file_that_was_taken_back_is_marked_in_the_lock() -> None:
    lock = make_lock()
    found = resolve.Resolved(lock.packages, lock.builder, lock.sources, lock.date, lock.resolver)
    marked = resolve.with_yanks(found, lambda name, file: "broken" if name == "torch" and file else None)
    assert [(pin.name, pin.yanked) for pin in marked.packages if pin.yanked is not None] == [("torch", "broken")]
    assert [pin.model_copy(update={"yanked": None}) for pin in marked.packages] == list(lock.packages)
    one = next(iter(lock.sources))
    marked = resolve.with_yanks(found, lambda name, file: "" if file == lock.sources[one].file else None)
    assert marked.sources[one].yanked == ""
    assert all(pin.yanked is None for pin in marked.packages)
    assert "yanked" not in lock_text(plain(lock))


class Index:
    """Stands in for uv: remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[object] = []

    def versions(self, wanted: object, *more: object) -> dict[str, str]:
        self.asked.append(wanted)
        return {}

    def files(self, versions: dict[str, str]) -> dict[str, Data]:
        self.asked.append(versions)
        sdist = {"size": 1, "hashes": {"sha256": "a" * 64}, "upload-time": datetime.datetime(2026, 11, 1)}
        return {
            name: {"version": version, "sdist": {**sdist, "name": f"{name}-{version}.tar.gz"}}
            for name, version in versions.items()
        }


def test_a_build_gets_what_its_kind_and_what_it_asks_for() -> None:
    project = make_project(lambda p: p["builds"]["flashinfer-aot"].update(requires=["setuptools", "torch"]))
    recipe = make_recipe(lambda r: r["components"]["flashinfer"].update(build_requires=["grpcio-tools==1.78.0"]))
    index = Index()
    resolve._build_versions(project, recipe, {"torch": "2.13.0"}, index)  # type: ignore[arg-type]
    assert index.asked == [["grpcio-tools==1.78.0", "setuptools", "torch"]]


def test_a_source_of_others_brings_nothing_into_the_image() -> None:
    def headers(recipe: Data) -> None:
        recipe["components"]["headers"] = {"sdist": "flashinfer-python", "version": "0.6.1"}
        reads = {"build": "python", "modules": [], "sources": {"CUTLASS_DIR": "headers/3rdparty/cutlass"}}
        recipe["components"]["flashinfer"].update(reads)

    recipe, index = make_recipe(headers), Index()
    assert "flashinfer-python==0.6.1" not in resolve._requirements(make_project(), recipe, recipe.components, {})
    found = resolve._sources_alone(recipe, index)  # type: ignore[arg-type]
    assert index.asked == [{"flashinfer-python": "0.6.1"}]
    assert [(name, pin.file, pin.alone) for name, pin in found.items()] == [
        ("headers", "flashinfer-python-0.6.1.tar.gz", True)
    ]
