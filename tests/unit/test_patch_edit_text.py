"""Edits of series.yaml and of recipes as text: what is meant is read back, what is not stays byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from graft.errors import BadInput
from graft.patching.series_text import new_series, reordered, with_record, without_record, without_ref
from graft.yamlio import parse

PATH = Path("series.yaml")
A, B, C = ("  - id: a\n    title: A\n", "  - id: b\n    title: B\n", "  - id: c\n    title: C\n")
HEAD = "# Top.\ncomponent: demo\npatches:\n"
RECORD = {"id": "new", "title": "It's: new # really", "tests": ["tests/test_new.py"]}
NEW = "  - id: new\n    title: 'It''s: new # really'\n    tests: [tests/test_new.py]\n"


def text(*parts: str) -> bytes:
    return "".join(parts).encode()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(text(HEAD, A), text(HEAD, A, NEW), id="behind the last"),
        pytest.param(text(HEAD, A).rstrip(), text(HEAD, A, NEW), id="no newline at the end"),
        pytest.param(text(HEAD, A, "\n", B), text(HEAD, A, "\n", B, "\n", NEW), id="blank lines between"),
        pytest.param(text(HEAD, A, "\n# end\n"), text(HEAD, A, NEW, "\n# end\n"), id="a comment at the end"),
        pytest.param(
            text("patches:\n", A, "component: demo\n"), text("patches:\n", A, NEW, "component: demo\n"), id="in between"
        ),
        pytest.param(
            text(HEAD, A).replace(b"\n", b"\r\n"), text(HEAD, A, NEW).replace(b"\n", b"\r\n"), id="CRLF line ends"
        ),
        pytest.param(
            text("patches:\n- id: a\n"),
            text("patches:\n- id: a\n", *[line[2:] for line in NEW.splitlines(keepends=True)]),
            id="no indentation",
        ),
        pytest.param(
            text(HEAD, "  - id: a\n    title: >-\n      folded\n      # text\n"),
            text(HEAD, "  - id: a\n    title: >-\n      folded\n      # text\n", NEW),
            id="a folded text with a hash at the end",
        ),
    ],
)
def test_a_record_comes_behind_the_last(before: bytes, after: bytes) -> None:
    assert with_record(before, PATH, RECORD).decode() == after.decode()


@pytest.mark.parametrize(
    ("before", "gone", "after"),
    [
        pytest.param(text(HEAD, A, B, C), "a", text(HEAD, B, C), id="the first"),
        pytest.param(text(HEAD, A, B, C), "b", text(HEAD, A, C), id="in the middle"),
        pytest.param(text(HEAD, A, B, C), "c", text(HEAD, A, B), id="the last"),
        pytest.param(text(HEAD, A, "\n", B, "\n", C), "b", text(HEAD, A, "\n", C), id="with a gap"),
        pytest.param(text(HEAD, A, "\n", B), "b", text(HEAD, A), id="the last with a gap"),
        pytest.param(
            text(HEAD, A, "  # of b\n", B, "  # of c\n", C), "b", text(HEAD, A, "  # of c\n", C), id="with its comment"
        ),
        pytest.param(
            text(HEAD, "  # of all\n", A, B), "a", text(HEAD, "  # of all\n", B), id="the comment of the list stays"
        ),
        pytest.param(
            text(HEAD, A, "    # inside a\n", B), "b", text(HEAD, A, "    # inside a\n"), id="a comment in another"
        ),
        pytest.param(text(HEAD, "  -\n    id: a\n", B), "a", text(HEAD, B), id="the dash on a line of its own"),
        pytest.param(text(HEAD, A, B, "\n# end\n"), "b", text(HEAD, A, "\n# end\n"), id="a comment at the end stays"),
    ],
)
def test_a_record_goes_with_its_comment(before: bytes, gone: str, after: bytes) -> None:
    assert without_record(before, PATH, gone).decode() == after.decode()


def test_records_change_places_with_their_comments() -> None:
    before = text(HEAD, A, "\n  # of b\n", B, "\n", C, "# end\n")
    assert reordered(before, PATH, ["c", "a", "b"]) == text(HEAD, C, "\n", A, "\n  # of b\n", B, "# end\n")
    assert reordered(before, PATH, ["a", "b", "c"]) == before


@pytest.mark.parametrize("flow", ["patches: [{id: a}, {id: b}]\n", "patches:\n  [{id: a},\n   {id: b}]\n"])
def test_a_list_in_braces_is_left_to_people(flow: str) -> None:
    for edit in (lambda raw: with_record(raw, PATH, RECORD), lambda raw: without_record(raw, PATH, "a")):
        with pytest.raises(BadInput, match="line by line") as caught:
            edit(flow.encode())
        assert caught.value.cure


def test_a_long_text_is_folded_and_reads_the_same() -> None:
    long = "word and #hash: 'quoted' " * 20
    made = new_series("demo", {"id": "a", "reason": long.strip(), "until": "two  blanks " * 20})
    assert parse(made, PATH).data["patches"] == [{"id": "a", "reason": long.strip(), "until": "two  blanks " * 20}]
    folded = [line for line in made.decode().splitlines() if "hash" in line]
    assert len(folded) > 3
    assert max(map(len, folded)) <= 120


RECIPE = """\
recipe: toy
# The patches.
patches:
  - demo/a  # first
  # why b
  - 'demo/b'
  - demo/a-long
smoke: [core]
"""


@pytest.mark.parametrize(
    ("before", "ref", "after"),
    [
        pytest.param(RECIPE, "demo/a", RECIPE.replace("  - demo/a  # first\n", ""), id="a line"),
        pytest.param(RECIPE, "demo/b", RECIPE.replace("  - 'demo/b'\n", ""), id="quoted"),
        pytest.param("patches: [demo/a, demo/b] # x\n", "demo/a", "patches: [demo/b] # x\n", id="first in brackets"),
        pytest.param("patches: [demo/a, demo/b]\n", "demo/b", "patches: [demo/a]\n", id="last in brackets"),
        pytest.param('patches: ["demo/a"]\n', "demo/a", "patches: []\n", id="alone in brackets"),
        pytest.param(
            "patches: [ # demo/a is the first\n  demo/a,\n  demo/b\n]\n",
            "demo/a",
            "patches: [ # demo/a is the first\n  \n  demo/b\n]\n",
            id="brackets over several lines",
        ),
        pytest.param(
            "patches:  # all\n  - demo/a\n  # nothing else\nsmoke: [core]\n",
            "demo/a",
            "patches: []  # all\n  # nothing else\nsmoke: [core]\n",
            id="the only one",
        ),
        pytest.param("patches:\r\n  - demo/a\r\n  - demo/b\r\n", "demo/a", "patches:\r\n  - demo/b\r\n", id="CRLF"),
        pytest.param(
            "summary: demo/a and demo/b\npatches: [demo/b, demo/a]\nenv: {X: demo/a}\n",
            "demo/a",
            "summary: demo/a and demo/b\npatches: [demo/b]\nenv: {X: demo/a}\n",
            id="the same words elsewhere",
        ),
    ],
)
def test_a_recipe_loses_one_name_and_nothing_else(before: str, ref: str, after: str) -> None:
    made = without_ref(before.encode(), PATH, ref).decode()
    assert made == after
    assert parse(made.encode(), PATH).data["patches"] == [
        name for name in parse(before.encode(), PATH).data["patches"] if name != ref
    ]


def test_a_list_that_cannot_be_cut_is_left_to_people() -> None:
    with pytest.raises(BadInput, match="line by line"):
        without_ref(b'patches: ["demo\\/a", demo/b]\n', PATH, "demo/a")
