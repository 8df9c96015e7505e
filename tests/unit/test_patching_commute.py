"""Dependencies that a series does not declare, and patches that meet in one symbol."""

from __future__ import annotations

from patchwork import diff, numbered, patch, text

from graft.patching import judge
from graft.patching.commute import closure, commute, overlaps

BASE = text(numbered(1, 60))
FILES = {"demo/a.txt": BASE, "demo/b.txt": BASE}


def edit(content: bytes, line: int, word: str) -> bytes:
    return content.replace(f"line {line}\n".encode(), f"{word} {line}\n".encode())


ONE = edit(BASE, 15, "one")
TWO = edit(ONE, 17, "two")
FAR = edit(ONE, 50, "far")
FIRST = patch(diff(BASE, ONE), "first")


def test_patches_of_other_places_commute() -> None:
    found = commute(FILES, [FIRST, patch(diff(ONE, FAR), "far"), patch(diff(BASE, ONE, "demo/b.txt"), "other")])
    assert found.undeclared == ()
    assert [(s.first, s.second, s.reason) for s in found.swapped] == [("first", "far", ""), ("far", "other", "")]


def test_a_patch_that_needs_an_earlier_one_says_which() -> None:
    found = commute(FILES, [FIRST, patch(diff(ONE, FAR), "far"), patch(diff(FAR, edit(FAR, 17, "two")), "second")])
    assert [(a.id, a.needs) for a in found.alone] == [("second", "first")]
    assert found.undeclared == ("second is conflict without first: name that in its `after`",)


def test_neighbours_that_cannot_be_swapped_are_named() -> None:
    found = commute(FILES, [FIRST, patch(diff(ONE, TWO), "second")])
    assert found.swapped[0].reason == "second is conflict then"
    assert "first and second cannot be swapped, second is conflict then: second needs `after: [first]`" in (
        found.undeclared
    )


def test_what_is_declared_is_not_reported() -> None:
    second = patch(diff(ONE, TWO), "second", after=["first"])
    found = commute(FILES, [FIRST, second])
    assert found.undeclared == ()
    assert found.swapped[0].declared
    third = patch(diff(TWO, edit(TWO, 16, "three")), "third", after=["second"])
    assert [p.id for p in closure(third, [FIRST, second])] == ["first", "second"]
    assert commute(FILES, [FIRST, second, third]).undeclared == ()


def test_an_order_that_changes_the_result_is_a_dependency() -> None:
    """Both apply in either order, at the end of a file that is empty before: the second replaces what it finds."""
    new = patch(diff(None, b"hello there\n", "demo/n.txt"), "new")
    filled = patch(diff(b"hello there\n", b"hello again\n", "demo/n.txt"), "filled")
    found = commute(FILES, [new, filled])
    assert found.swapped[0].reason == "filled is gone then"
    assert found.alone[0].needs == "new"


def test_a_patch_that_does_not_apply_is_left_out() -> None:
    broken = patch(diff(b"nothing of it\n", b"x\n"), "broken")
    assert commute(FILES, [broken, FIRST]).swapped == ()


def test_two_patches_in_one_function_are_reported() -> None:
    body = "".join(f"    {name} = {n}\n" for n, name in enumerate("abcdefgh", 1))
    source = f"def run():\n{body}\n\ndef stop():\n    z = 1\n".encode()
    once = source.replace(b"a = 1", b"a = 11")
    twice = once.replace(b"h = 8", b"h = 88")
    other = twice.replace(b"z = 1", b"z = 11")
    series = [
        patch(diff(a, b, "demo/a.py", 1), name)
        for a, b, name in ((source, once, "one"), (once, twice, "two"), (twice, other, "three"))
    ]
    found = overlaps(judge({"demo/a.py": source}, series))
    assert [(o.where, o.ids) for o in found] == [("demo/a.py::run", ("one", "two"))]
