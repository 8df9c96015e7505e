"""The strict YAML loader: every rule with the place it names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field, create_model

from graft.errors import BadInput
from graft.yamlio import MAX_BYTES, MAX_DEPTH, MAX_WRITTEN, Model, dump, grammar, load, parse, read, validate

HERE = Path("r.yaml")


class Part(Model):
    version: str
    commit: str | None = None
    ready: bool = False


class Note(Model):
    because: str


class Doc(Model):
    name: str
    count: int = 1
    parts: dict[str, Part] = Field(default_factory=dict)
    notes: tuple[Note, ...] = Field(default=(), strict=False)


def refused(tmp_path: Path, text: str | bytes) -> BadInput:
    """The error for a file with this text, loaded as Doc; its `where` without the folder."""
    path = tmp_path / "r.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(BadInput) as caught:
        load(path, Doc)
    problem = caught.value
    assert problem.exit_code == 2
    assert problem.where is not None
    problem.where = problem.where.replace(f"{tmp_path}/", "")
    return problem


def test_a_good_file_becomes_a_frozen_model(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text('name: x\nparts:\n  torch: {version: "2.10"}\nnotes:\n  - because: y\n')
    doc = load(path, Doc)
    assert (doc.name, doc.parts["torch"].version, doc.notes[0].because) == ("x", "2.10", "y")
    with pytest.raises(ValueError, match="frozen"):
        doc.name = "z"


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        pytest.param("name: x\ncuont: 1\n", "r.yaml:2", "unknown key 'cuont'; did you mean 'count'?", id="key"),
        pytest.param(
            "name: x\nparts:\n  torch:\n    verison: '1'\n    version: '1'\n",
            "r.yaml:4",
            "unknown key 'parts.torch.verison'; did you mean 'version'?",
            id="key-in-a-dict-of-models",
        ),
        pytest.param(
            "name: x\nnotes:\n  - because: y\n  - because: y\n    becuase: z\n",
            "r.yaml:5",
            "unknown key 'notes.1.becuase'; did you mean 'because'?",
            id="key-in-a-list-of-models",
        ),
        pytest.param("name: x\nzzz: 1\n", "r.yaml:2", "known keys: count, name, notes, parts", id="nothing-similar"),
        pytest.param("count: 1\n", "r.yaml:1", "missing key 'name'", id="missing"),
        pytest.param("name: x\ncount: '1'\n", "r.yaml:2", "count: input should be a valid integer", id="type"),
        pytest.param("name: x\nname: y\n", "r.yaml:2", "duplicate key 'name' (first on line 1)", id="duplicate"),
        pytest.param(
            "name: x\nparts:\n  a: {version: '1', version: '2'}\n",
            "r.yaml:3",
            "duplicate key 'version' (first on line 3)",
            id="duplicate-in-flow",
        ),
        pytest.param("name: x\ncount: &c 1\n", "r.yaml:2", "anchors and aliases are not allowed", id="anchor"),
        pytest.param("name: x\ncount: *c\n", "r.yaml:2", "anchors and aliases are not allowed", id="alias"),
        pytest.param("name: x\n<<: {count: 1}\n", "r.yaml:2", "keys must be plain strings", id="merge-key"),
        pytest.param("name: x\n1: y\n", "r.yaml:2", "keys must be plain strings", id="number-as-key"),
        pytest.param("name: x\non: y\n", "r.yaml:2", "keys must be plain strings", id="bool-as-key"),
        pytest.param("", "r.yaml:1", "the file is empty", id="empty"),
        pytest.param("# only a comment\n", "r.yaml:1", "the file is empty", id="only-a-comment"),
        pytest.param("- a\n- b\n", "r.yaml:1", "expected a mapping at the top level", id="list"),
        pytest.param(b"name: x\n# \xff\n", "r.yaml:2", "not UTF-8", id="not-utf-8"),
        pytest.param(b"#" * (MAX_WRITTEN + 1), "r.yaml", "larger than 1 MB", id="big"),
        pytest.param("name: x\nparts: {a: [}\n", "r.yaml:2", "not valid YAML", id="syntax"),
        pytest.param("name: x\n---\nname: y\n", "r.yaml:2", "another document", id="two-documents"),
        pytest.param("name: x\nparts: !thing {}\n", "r.yaml:2", "YAML type '!thing' is not allowed", id="tag"),
        pytest.param("name: x\nparts: !!set {a}\n", "r.yaml:2", "not allowed here", id="set"),
        pytest.param(
            "name: !!python/object/apply:os.system ['true']\n", "r.yaml:1", "not allowed here", id="python-object"
        ),
        pytest.param("name: 2026-11-30\n", "r.yaml:1", "YAML type 'timestamp' is not allowed here", id="date"),
    ],
)
def test_a_rule_is_reported_with_its_place(tmp_path: Path, text: str | bytes, where: str, what: str) -> None:
    problem = refused(tmp_path, text)
    assert problem.where == where
    assert what in problem.what


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("12.10", 'YAML reads 12.10 as a number; quote it: "12.10"'),
        ("1.50", 'YAML reads 1.50 as a number; quote it: "1.50"'),
        ("12345678", 'YAML reads 12345678 as a number; quote it: "12345678"'),
        ("1_000", 'YAML reads 1_000 as a number; quote it: "1_000"'),
        ("0x10", 'YAML reads 0x10 as a number; quote it: "0x10"'),
        ("5.e+10", 'YAML reads 5.e+10 as a number; quote it: "5.e+10"'),
        ("on", "YAML reads this as true or false; quote it"),
        ("no", "YAML reads this as true or false; quote it"),
    ],
)
def test_an_unquoted_value_is_shown_as_it_was_written(tmp_path: Path, written: str, says: str) -> None:
    problem = refused(tmp_path, f"name: x\nparts:\n  vllm:\n    version: {written}\n")
    assert problem.where == "r.yaml:4"
    assert problem.what == f"parts.vllm.version: {says}"


@pytest.mark.parametrize("written", ["01234567", "12:30:45", ".inf", ".nan"])
def test_what_is_a_number_only_to_yaml_must_be_quoted(tmp_path: Path, written: str) -> None:
    problem = refused(tmp_path, f"name: x\nparts:\n  vllm: {{version: '1', commit: {written}}}\n")
    assert problem.where == "r.yaml:3"
    assert "is a number only to YAML" in problem.what
    assert problem.cure == f'quote it: "{written}"'


def test_a_commit_that_looks_like_a_float_to_other_loaders_stays_text() -> None:
    assert parse(b"commit: 5e63720\n", HERE).data == {"commit": "5e63720"}


def test_several_findings_come_at_once_and_in_full(tmp_path: Path) -> None:
    problem = refused(tmp_path, "cuont: 1\nparts:\n  a: {version: 1.0}\n  b: {}\n")
    lines = problem.what.splitlines()
    said = "\n".join([f"{problem.where}: {lines[0]}", *lines[1:]]).replace(f"{tmp_path}/", "")
    for expected in (
        "r.yaml:1: unknown key 'cuont'",
        "r.yaml:1: missing key 'name'",
        'r.yaml:3: parts.a.version: YAML reads 1.0 as a number; quote it: "1.0"',
        "r.yaml:4: missing key 'parts.b.version'",
    ):
        assert expected in said
    assert "and 3 more:" in said


def test_an_alias_bomb_is_refused_before_it_is_expanded(tmp_path: Path) -> None:
    levels = "\n".join(f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 9)}]" for i in range(1, 30))
    problem = refused(tmp_path, f"l0: &l0 [x]\n{levels}\n")
    assert problem.what == "anchors and aliases are not allowed"
    assert problem.where == "r.yaml:1"


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 100_000])
def test_deep_nesting_is_refused(tmp_path: Path, depth: int) -> None:
    problem = refused(tmp_path, "name: " + "[" * depth + "]" * depth + "\n")
    assert problem.where == "r.yaml:1"
    assert "nest" in problem.what


def test_nesting_within_the_limit_is_read() -> None:
    text = "a: " + "[" * (MAX_DEPTH - 2) + "]" * (MAX_DEPTH - 2)
    assert parse(text.encode(), HERE).data["a"]


def test_a_missing_file_suggests_a_similar_one(tmp_path: Path) -> None:
    (tmp_path / "glm-dsa.yaml").touch()
    with pytest.raises(BadInput) as caught:
        read(tmp_path / "glm-das.yaml")
    assert caught.value.where == str(tmp_path / "glm-das.yaml")
    assert caught.value.cure == "did you mean glm-dsa.yaml?"


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read: it is a folder") as caught:
        read(tmp_path)
    assert caught.value.cure


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "r.yaml")
    with pytest.raises(BadInput, match="no regular file"):
        read(tmp_path / "r.yaml")


def test_a_link_that_leads_nowhere_and_a_folder_that_is_not_there_have_a_cure(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").symlink_to("r.yaml")
    with pytest.raises(BadInput, match="symbolic links") as caught:
        read(tmp_path / "r.yaml")
    assert caught.value.cure == "point the link to a file"
    with pytest.raises(BadInput, match="file not found") as caught:
        read(tmp_path / "patches" / "vllm" / "series.yaml")
    assert caught.value.cure == "there is no folder patches/"


@pytest.mark.parametrize(
    ("kind", "value", "says"),
    [
        (Annotated[str, grammar("[a-z]+", "a word", 5)], "Ab", "'Ab' is not a word"),
        (Annotated[str, grammar("[a-z]+", "a word", 5)], "abcdef", "longer than 5 characters"),
        (Annotated[str, grammar("[a-z]+", "a word", shown=False)], "S3CRET", "the value is not a word"),
        (Annotated[str, Field(min_length=2)], "a", "shorter than 2 characters"),
        (Annotated[str, Field(max_length=2)], "abc", "longer than 2 characters"),
        (str, None, "a text is expected"),
        (Part, "x", "a mapping is expected"),
    ],
)
def test_what_is_wrong_is_said_in_words(kind: Any, value: object, says: str) -> None:
    made = create_model("Made", __base__=Model, it=(kind, ...))
    with pytest.raises(BadInput) as caught:
        validate(parse(dump({"it": value}).encode(), HERE), made)
    assert caught.value.what == f"it: {says}"


def test_lines_are_those_of_the_keys() -> None:
    document = parse(b"a:\n  b:\n    - x\n    -\n      c: 1\n", HERE)
    places = [("a",), ("a", "b"), ("a", "b", 0), ("a", "b", 1), ("a", "b", 1, "c"), ("a", "b", 1, "gone")]
    assert [document.where(p) for p in places] == [f"r.yaml:{n}" for n in (1, 2, 3, 5, 5, 5)]


def test_a_header_becomes_comment_lines() -> None:
    assert dump({"a": 1}, "Made by\n\na machine") == "# Made by\n#\n# a machine\na: 1\n"


TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
LEAF = st.none() | st.booleans() | st.integers() | TEXT | st.floats(allow_nan=False, allow_infinity=False)
TREE = st.recursive(
    LEAF, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4), max_leaves=12
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(TEXT, TREE, min_size=1, max_size=4))
def test_what_is_dumped_is_read_back(data: dict[str, object]) -> None:
    assert parse(dump(data, "header").encode(), HERE).data == data


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200) | st.text("a:[]{}&*!-\n\t'\"#|>%@ 01.", max_size=60).map(str.encode))
def test_any_bytes_are_read_or_refused_with_a_place(raw: bytes) -> None:
    where = "r.yaml:0"
    try:
        parse(raw, HERE)
    except BadInput as problem:
        where = str(problem.where)
    assert where.startswith("r.yaml:")


def test_what_graft_wrote_may_be_larger(tmp_path: Path) -> None:
    parse(b"a: b\n" + b"#" * MAX_WRITTEN, tmp_path)
    with pytest.raises(BadInput, match="larger than 10 MB"):
        parse(b"#" * (MAX_BYTES + 1), tmp_path)


def test_an_error_about_several_places_holds_each_of_them(tmp_path: Path) -> None:
    problem = refused(tmp_path, "nmae: x\ncuont: 1\n")
    assert [Path(where).name for where, _ in problem.findings] == ["r.yaml:1", "r.yaml:1", "r.yaml:2"]
    assert all(what in problem.what for _, what in problem.findings)
