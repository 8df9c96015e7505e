"""What must hold for any patch, on generated files and edits."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from patchwork import diff, patch

from graft.patching import SourceTree, Verdict, judge, parse
from graft.patching.model import Malformed

WORDS = st.text("abcdefgh ({:\t", min_size=1, max_size=6)
PATHS = st.sampled_from(["demo/a.txt", "demo/a.py", "demo/a.cuh"])
#: Few different lines, so that blocks repeat.
REPEATING = st.lists(st.sampled_from(["a\n", "b\n", "}\n", "\n"]), max_size=14).map("".join)


@st.composite
def unique_lines(draw: st.DrawFn, low: int = 1, high: int = 40) -> list[str]:
    words = draw(st.lists(WORDS, min_size=low, max_size=high))
    return [f"{word} {number}\n" for number, word in enumerate(words)]


@st.composite
def edits(draw: st.DrawFn) -> tuple[list[str], list[str]]:
    """A file of lines that do not repeat, and the same after some edits."""
    old = draw(unique_lines())
    new = list(old)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(new)))
        gone = draw(st.integers(0, 2))
        new[at : at + gone] = [
            f"new {draw(WORDS)} {draw(st.integers(100, 10**6))}\n" for _ in range(draw(st.integers(0, 2)))
        ]
    assume(new != old and new)
    return old, new


def joined(lines: list[str], newline: bool) -> bytes:
    content = "".join(lines).encode()
    return content if newline else content.removesuffix(b"\n")


@settings(deadline=None)
@given(edits(), PATHS, st.booleans(), st.booleans(), st.integers(1, 5))
def test_a_diff_is_exact_on_its_own_base(
    pair: tuple[list[str], list[str]], path: str, newline: bool, newline_after: bool, context: int
) -> None:
    old, new = joined(pair[0], newline), joined(pair[1], newline_after)
    assume(old != new)
    verdict = judge({path: old}, [patch(diff(old, new, path, context))])[0]
    # One thing may be found: lines that repeat in the edit itself, so that it would fit its own result.
    assert verdict.verdict in (Verdict.EXACT, Verdict.AMBIGUOUS)
    if verdict.verdict is Verdict.EXACT:
        assert verdict.result == {path: new}
    else:
        assert "second time" in verdict.detail


@settings(deadline=None)
@given(unique_lines(9), st.integers(1, 30), st.data())
def test_a_shifted_hunk_is_an_offset(old: list[str], shift: int, data: st.DataObject) -> None:
    # A hunk at the first or last line stays there.
    at = data.draw(st.integers(4, len(old) - 5))
    new = [*old[:at], "changed for good\n", *old[at + 1 :]]
    above = [f"above {i}\n" for i in range(shift)]
    verdict = judge(
        {"demo/a.txt": "".join([*above, *old]).encode()}, [patch(diff(joined(old, True), joined(new, True)))]
    )[0]
    assert verdict.verdict is Verdict.OFFSET
    assert [hunk.offset for hunk in verdict.hunks] == [shift]
    assert verdict.result == {"demo/a.txt": "".join([*above, *new]).encode()}


@settings(deadline=None)
@given(unique_lines(9), st.data())
def test_a_block_that_stands_twice_is_ambiguous(old: list[str], data: st.DataObject) -> None:
    at = data.draw(st.integers(4, len(old) - 5))
    new = [*old[:at], "changed for good\n", *old[at + 1 :]]
    again = data.draw(st.integers(0, 5))
    content = "".join([*old, *[f"between {i}\n" for i in range(again)], *old]).encode()
    assert (
        judge({"demo/a.txt": content}, [patch(diff(joined(old, True), joined(new, True)))])[0].verdict
        is Verdict.AMBIGUOUS
    )


@settings(max_examples=400, deadline=None)
@given(REPEATING, REPEATING, st.integers(1, 3), REPEATING, REPEATING)
def test_no_patch_applies_twice(old: str, new: str, context: int, above: str, below: str) -> None:
    """Also where lines repeat, which is where applying in reverse, or again, deceives."""
    assume(old != new)
    one = patch(diff(old.encode(), new.encode(), context=context))
    for base in (old, above + old + below):
        tree = SourceTree({"demo/a.txt": base.encode()})
        first = judge(tree, [one])[0]
        if first.verdict.is_applicable:
            twice = judge(tree, [one, one])[1]
            assert not twice.verdict.is_applicable
            assert first.result != {"demo/a.txt": base.encode()}


@settings(deadline=None)
@given(st.binary(max_size=400), st.integers(0, 400), st.binary(max_size=3))
def test_damaged_bytes_are_parsed_or_malformed(noise: bytes, at: int, inserted: bytes) -> None:
    good = diff(b"a\nb\nc\nd\n", b"a\nb\nx\nd\n")
    for data in (noise, good[:at] + inserted + good[at:], good[: at % len(good)]):
        try:
            found = parse(data).paths
        except Malformed:
            continue
        assert all(found)
