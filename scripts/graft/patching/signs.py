"""Whether upstream has a hunk already. No single sign is believed: repeated lines, or a rewritten place, can give any.

The signs, each looked for only in the symbol that the patch changed there:
- its result stands there, whole and once (comments apart);
- what it adds stands there once, and what it removes does not stand there;
- the symbol's code is the code of the patched symbol;
- a three-way merge with the version that the patch was made for changes nothing;
- the text that the record says it works around is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graft.patching.blocks import find, says_something
from graft.patching.code import code_of
from graft.patching.model import FileDiff, Hunk
from graft.patching.past import Past
from graft.patching.symbols import Symbol
from graft.patching.view import View


@dataclass(frozen=True)
class Merged:
    """line: where upstream has it, from 1; None when it has it in another form. signs: in words."""

    line: int | None
    signs: str


def merged(view: View, diff: FileDiff, number: int, hunk: Hunk, past: Past) -> Merged | None:
    """What shows that upstream has the hunk, by two independent signs; None when it is not shown."""
    changes = any(says_something(run) for run in (*hunk.added, *hunk.removed))
    if not changes:
        return None
    for scope in past.scopes(view, diff, number, hunk):
        found = (
            _as_text(view, hunk, scope)
            or _as_code(view, hunk, scope)
            or _as_symbol(view, diff, number, hunk, scope, past)
            or _as_recorded(view, diff, number, hunk, scope, past)
        )
        if found is not None:
            return found
    return None


def merges_to_nothing(view: View, diff: FileDiff, number: int, hunk: Hunk, past: Past) -> Merged | None:
    """The same where a three-way merge leaves the file as it is: that is one sign, this finds the second."""
    for scope in past.scopes(view, diff, number, hunk):
        text = list(view.text(scope))
        added = [run for run in hunk.added if says_something(run)]
        removed = [run for run in hunk.removed if says_something(run)]
        if (added or removed) and _once(text, added) and _nowhere(text, removed):
            return Merged(None, "a three-way merge changes nothing, and what it adds and removes is so in its place")
    return None


def _as_text(view: View, hunk: Hunk, scope: Symbol | None) -> Merged | None:
    places = find(view.content, hunk.after) if hunk.after else []
    if len(places) != 1 or not _inside(places[0], hunk, scope):
        return None
    text = list(view.text(scope))
    added = [run for run in hunk.added if says_something(run)]
    removed = [run for run in hunk.removed if says_something(run)]
    if not (added or removed) or not _once(text, added) or not _nowhere(text, removed):
        return None
    return Merged(places[0] + 1, "its result stands there, and what it adds and removes is so by itself")


def _as_code(view: View, hunk: Hunk, scope: Symbol | None) -> Merged | None:
    after, before = code_of(view.path, hunk.after, whole=False), code_of(view.path, hunk.before, whole=False)
    wanted, pristine = _said(after.lines), _said(before.lines)
    if not after.certain or not before.certain or not wanted or wanted == pristine:
        return None
    code = list(view.says(scope))
    places = _places(code, wanted)
    added = [run for run in _runs(view.path, hunk.added) if says_something(run)]
    removed = [run for run in _runs(view.path, hunk.removed) if says_something(run)]
    if len(places) != 1 or not (added or removed) or not _once(code, added) or not _nowhere(code, removed):
        return None
    return Merged(_line_of(view, scope, places[0]), "the same code stands there, only comments or layout differ")


def _as_symbol(view: View, diff: FileDiff, number: int, hunk: Hunk, scope: Symbol | None, past: Past) -> Merged | None:
    known = past.files.get(diff.path)
    if known is None or scope is None:
        return None
    was = known.around(number, hunk)
    made = known.after.named(was) if was is not None else None
    if was is None or made is None:
        return None
    here, patched, pristine = _meaning(view, scope), _meaning(known.after, made), _meaning(known.before, was)
    if here != patched or patched == pristine:
        return None
    return Merged(scope.first, f"{scope.name} is the patched one, comments apart")


def _as_recorded(
    view: View, diff: FileDiff, number: int, hunk: Hunk, scope: Symbol | None, past: Past
) -> Merged | None:
    """Another wording of the fix: what it works around and removes is gone, and a part of what it adds is there."""
    texts = past.gone.get(diff.path, ())
    known = past.files.get(diff.path)
    if known is not None:
        texts = tuple(text for text in texts if text.encode() in known.before.content)
    if not texts or any(text.encode() in view.content for text in texts):
        return None
    removed = [run for run in _runs(view.path, hunk.removed) if says_something(run)]
    if not removed or not _nowhere(view.says(scope), removed):
        return None
    was = known.around(number, hunk) if known is not None else None
    pristine = known.before.says(was) if known is not None else _said(code_of(view.path, hunk.before).lines)
    added = [run for run in _runs(view.path, hunk.added) if says_something(run) and not _places(pristine, run)]
    there = [places[0] for run in added if len(places := _places(view.says(scope), run)) == 1]
    if not there:
        return None
    signs = "what the record names and what it removes is gone, and a part of what it adds stands in its place"
    return Merged(_line_of(view, scope, there[0]), signs)


def _meaning(view: View, symbol: Symbol) -> object:
    return view.fingerprint(symbol) or view.says(symbol)


def _inside(place: int, hunk: Hunk, scope: Symbol | None) -> bool:
    """Whether the changed lines of a post-image at `place` lie in the symbol."""
    if scope is None:
        return True
    first = place + hunk.leading + 1
    last = place + len(hunk.after) - hunk.trailing
    return scope.first <= first and last <= scope.last


def _runs(path: str, runs: Sequence[Sequence[bytes]]) -> list[tuple[bytes, ...]]:
    """The code of each run of changed lines; without those that may stand in a string or a comment."""
    read = [code_of(path, run, whole=False) for run in runs]
    return [_said(code.lines) for code in read if code.certain and _said(code.lines)]


def _said(lines: Sequence[bytes]) -> tuple[bytes, ...]:
    return tuple(line for line in lines if line)


def _once(lines: Sequence[bytes], runs: Sequence[Sequence[bytes]]) -> bool:
    return all(len(_places(lines, run)) == 1 for run in runs)


def _nowhere(lines: Sequence[bytes], runs: Sequence[Sequence[bytes]]) -> bool:
    return not any(_places(lines, run) for run in runs)


def _places(lines: Sequence[bytes], block: Sequence[bytes]) -> list[int]:
    wanted, first = list(block), block[0]
    size = len(wanted)
    return [i for i in range(len(lines) - size + 1) if lines[i] == first and list(lines[i : i + size]) == wanted]


def _line_of(view: View, scope: Symbol | None, place: int) -> int:
    """The line (from 1) of the place-th line of code of a symbol."""
    first, last = (0, len(view.code)) if scope is None else (scope.first - 1, scope.last)
    return [i + 1 for i in range(first, last) if view.code[i]][place]
