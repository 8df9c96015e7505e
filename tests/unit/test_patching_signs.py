"""What `merged`, ends and merges are read from: code without comments, texts that are gone, three versions."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patchwork import diff, patch

from graft.patching import SourceTree, Verdict, judge
from graft.patching.code import code_of
from graft.patching.ends import End, end_of, evidence_files, gone_texts
from graft.patching.three_way import three_way
from graft.patchset import Ends


@pytest.mark.parametrize(
    ("path", "text", "code"),
    [
        ("a.py", "x = 1  # one\n", ["x = 1"]),
        ("a.py", "x  =  1\n", ["x = 1"]),
        ("a.py", "  x = '#  no  comment'  # one\n", ["  x = '#  no  comment'"]),
        ("a.py", "# all of it\n\n", ["", ""]),
        ("a.py", '"""Doc.\n  # kept\n"""\n', ['"""Doc.', "\0  # kept", '\0"""']),
        ("a.py", "x = 'it\\'s # none'\n", ["x = 'it\\'s # none'"]),
        ("a.py", "x = 1\n'''\ny = 2\n'''\n", ["x = 1", "", "", ""]),
        ("a.cu", "int x = 1; // one\n", ["int x = 1;"]),
        ("a.cu", "  int  /* a */ x;\r\n", ["int x;"]),
        ("a.cu", "/* a\nint y;\n*/ int z;\n", ["", "", "int z;"]),
        ("a.cu", 's = "// none";\n', ['s = "// none";']),
        ("a.cu", "#if 0\nint x;\n#else\nint y;\n#endif\n", ["#if 0", "", "#else", "int y;", "#endif"]),
        (
            "a.cu",
            "#if 0\n#if 1\nint x;\n#endif\nint w;\n#endif\nint y;\n",
            ["#if 0", "", "", "", "", "#endif", "int y;"],
        ),
        ("a.txt", "x  # no language\n", ["x  # no language"]),
    ],
)
def test_code_without_comments(path: str, text: str, code: list[str]) -> None:
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    assert [line.decode() for line in code_of(path, lines).lines] == code


@pytest.mark.parametrize(
    ("path", "text", "certain"),
    [
        ("a.py", "x = 1\n", True),
        ("a.py", "tail of a docstring\n'''\n", False),
        ("a.py", "it's the middle of one\n", False),
        ("a.cu", "/* begins\n", False),
        ("a.cu", "int x; /* whole */\n", True),
    ],
)
def test_a_fragment_that_may_begin_inside_of_a_string_is_not_certain(path: str, text: str, certain: bool) -> None:
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    assert code_of(path, lines, whole=False).certain is certain


GONE = Ends.model_validate({"version": "2.0", "commit": "a" * 40, "gone": [{"file": "a.py", "text": "a guard here"}]})
WITH, WITHOUT = SourceTree({"a.py": b"# a guard here\n"}), SourceTree({"a.py": b"\n"})


@pytest.mark.parametrize(
    ("version", "tree", "pinned", "commit", "reached"),
    [
        ("1.0", WITH, WITH, None, False),
        ("3.0", WITH, WITH, None, False),
        ("1.0", WITHOUT, WITH, None, True),
        ("1.0", WITHOUT, None, None, True),
        # The text never stood there, or the file is gone: the next witness is asked.
        ("1.0", WITHOUT, WITHOUT, None, False),
        ("3.0", WITHOUT, WITHOUT, None, True),
        ("3.0", SourceTree({}), WITH, None, True),
        ("1.0", SourceTree({}), WITH, True, True),
        ("3.0", SourceTree({}), WITH, False, False),
        (None, SourceTree({}), WITH, None, None),
        ("2.0.post1", SourceTree({}), WITH, None, True),
        ("2.0rc1", SourceTree({}), WITH, None, False),
    ],
)
def test_the_best_witness_of_an_end_wins(
    version: str | None, tree: SourceTree, pinned: SourceTree | None, commit: bool | None, reached: bool | None
) -> None:
    assert end_of(GONE, version, tree, pinned, lambda asked: commit).reached is reached


def test_an_end_that_nothing_can_judge() -> None:
    assert end_of(None, "1.0", WITH) == End(None, "the record has no `ends` that could be judged")
    assert end_of(Ends(commit="a" * 40), "1.0", WITH).reached is None


def test_what_an_end_looks_into() -> None:
    ends = {"gone": [{"file": "a.py", "text": "first text"}, {"file": "a.py", "text": "second text"}]}
    one = patch(b"", ends=ends)
    assert evidence_files([one, patch(b"")]) == {"a.py"}
    assert gone_texts(one.record.ends) == {"a.py": ("first text", "second text")}


def test_merges_of_three_versions() -> None:
    base = b"".join(b"line %d\n" % n for n in range(20))
    ours, theirs = base.replace(b"line 3\n", b"three\n"), base.replace(b"line 15\n", b"fifteen\n")
    assert three_way(base, ours, theirs) == theirs.replace(b"line 3\n", b"three\n")
    assert three_way(base, ours, ours) == ours
    assert three_way(base, ours, base) == ours
    assert three_way(base, ours, base.replace(b"line 3\n", b"3\n")) is None
    assert three_way(b"a\0b\n", b"a\0c\n", b"a\0d\n") is None
    assert three_way(base + b"end", ours + b"end", theirs + b"end") == (
        theirs.replace(b"line 3\n", b"three\n") + b"end"
    )


NAMES = st.lists(st.text("abcdefgh", min_size=4, max_size=8), min_size=14, max_size=14, unique=True)


@st.composite
def upstreams(draw: st.DrawFn) -> tuple[bytes, bytes, bytes]:
    """A file, the same after a patch of one function, and what upstream made of it."""
    names = draw(NAMES)
    before = [f"        {name} = self.{name}({i})\n" for i, name in enumerate(names)]
    at = draw(st.integers(4, 8))
    after = list(before)
    after[at : at + 1] = [f"        {names[at]} = self.kept('{names[at]}')\n", f"        self.use({names[at]})\n"]
    chosen = draw(st.sampled_from(["with", "without", "first", "second", "other place"]))
    kept = {
        "with": after,
        "without": before,
        "first": [*after[: at + 1], *after[at + 2 :]],
        "second": [*before[: at + 1], after[at + 1], *before[at + 1 :]],
        "other place": before,
    }[chosen]
    there = list(kept)
    for _ in range(draw(st.integers(0, 3))):
        spot = draw(st.integers(0, len(there)))
        extra = draw(st.sampled_from(["        # a word\n", "        self.more()\n", "\n", "        '''idle'''\n"]))
        there.insert(spot, extra)
    tail = "".join(after[at : at + 2]) if chosen == "other place" else ""
    return tuple(
        f"class Model:\n    one = 1\n    two = 2\n    three = 3\n\n    def load(self):\n{''.join(body)}"
        f"        return 1\n\n    def other(self):\n        return 2\n{more}".encode()
        for body, more in ((before, ""), (after, ""), (there, tail))
    )  # type: ignore[return-value]


def statements(content: bytes) -> list[str]:
    """The statements of Model.load."""
    model = ast.parse(content).body[0]
    assert isinstance(model, ast.ClassDef)
    load = next(node for node in model.body if isinstance(node, ast.FunctionDef) and node.name == "load")
    return [ast.dump(node) for node in load.body]


@settings(max_examples=300, deadline=None)
@given(upstreams(), st.booleans())
def test_merged_is_said_only_where_the_change_is_there(case: tuple[bytes, bytes, bytes], with_base: bool) -> None:
    base, fixed, upstream = case
    one = patch(diff(base, fixed, "demo/a.py").replace(b"@@\n", b"@@ class Model:\n", 1))
    bases = SourceTree({"demo/a.py": base}) if with_base else None
    verdict = judge({"demo/a.py": upstream}, [one], bases=bases)[0]
    was, now, there = statements(base), statements(fixed), statements(upstream)
    added, removed = [s for s in now if s not in was], [s for s in was if s not in now]
    has_it = all(s in there for s in added) and not any(s in there for s in removed)
    if verdict.verdict in (Verdict.MERGED, Verdict.PARTIAL):
        assert has_it
    if verdict.result:
        made = verdict.result["demo/a.py"]
        assert made is not None
        assert [s for s in there if s not in removed] == [s for s in statements(made) if s not in added]
