"""Where the hunks of one file stand: by their pre-image, which must occur exactly once. Nothing is guessed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from graft.patching import symbols
from graft.patching.hints import nearest, successor_of_file, successor_of_symbol, what_upstream_did
from graft.patching.model import FileDiff, Hunk, HunkVerdict, SourceTree, Verdict
from graft.patching.past import NOTHING_KNOWN, Past, at_margin, defined_again
from graft.patching.signs import merged, stands_already
from graft.patching.symbols import Symbol
from graft.patching.view import View, replaced


@dataclass(frozen=True)
class Outcome:
    """What became of one file.

    content: the file after the patch; None when it is deleted, or when not every hunk applies.
    rest:    the file with those hunks that upstream does not have; None unless all others apply.
    places:  the line index (from 0) of each hunk's pre-image; empty unless every one has a place.
    """

    hunks: tuple[HunkVerdict, ...]
    content: bytes | None = None
    rest: bytes | None = None
    places: tuple[int, ...] = ()


def judge_file(tree: SourceTree, diff: FileDiff, view: View | None, past: Past = NOTHING_KNOWN) -> Outcome:
    """One file of a patch. `view`: the file that it changes; None when there is none."""
    if diff.binary:
        return _whole(diff, Verdict.CONFLICT, "binary changes cannot be judged; they are not supported yet")
    if diff.is_new:
        return _judge_new(tree, diff)
    assert diff.old is not None
    if view is None:
        return _whole(diff, Verdict.GONE, successor_of_file(tree, diff.old))
    if diff.is_rename and diff.new is not None:
        blocked = f"{diff.new} exists already" if diff.new in tree.all_names else _blocked(tree, diff.new)
        if blocked:
            return _whole(diff, Verdict.CONFLICT, blocked)
    if diff.changes_mode and (diff.new_mode == "100755") == (diff.old in tree.executable):
        is_so = HunkVerdict(diff.path, 0, Verdict.MERGED, detail=f"it has mode {diff.new_mode} already")
        inner = _judge_hunks(diff, view, past) if diff.hunks else Outcome((), rest=view.content)
        return Outcome((is_so, *inner.hunks), rest=inner.rest)
    if not diff.hunks:
        if diff.is_deleted and view.content:
            return _whole(diff, Verdict.CONFLICT, "the patch deletes an empty file; this one has content")
        content = None if diff.is_deleted else view.content
        return Outcome((HunkVerdict(diff.path, 0, Verdict.EXACT),), content, content)
    return _judge_hunks(diff, view, past)


def _judge_new(tree: SourceTree, diff: FileDiff) -> Outcome:
    content = b"".join(line for hunk in diff.hunks for line in hunk.after)
    existing = tree.files.get(diff.path)
    blocked = _blocked(tree, diff.path)
    if blocked:
        return _whole(diff, Verdict.CONFLICT, blocked)
    if existing is None and diff.path not in tree.all_names:
        verdicts = tuple(HunkVerdict(diff.path, n, Verdict.EXACT, 1) for n in _numbers(diff))
        return Outcome(verdicts, content, content)
    # Two signs: the path, which did not exist when the patch was made, and all of its bytes.
    if existing == content and content.strip():
        return _whole(diff, Verdict.MERGED, "the file exists with these bytes")
    return _whole(diff, Verdict.CONFLICT, "the patch adds this file, but it exists already")


def _blocked(tree: SourceTree, path: str) -> str:
    """Why there can be no file of that name; empty when there can."""
    parts = path.split("/")
    file = next((above for i in range(1, len(parts)) if (above := "/".join(parts[:i])) in tree.all_names), None)
    if file is not None:
        return f"{file} is a file, so nothing can lie below it"
    if path not in tree.all_names and any(name.startswith(f"{path}/") for name in tree.all_names):
        return f"{path} is a folder"
    return ""


def _numbers(diff: FileDiff) -> range:
    return range(1, len(diff.hunks) + 1) if diff.hunks else range(1)


def _whole(diff: FileDiff, verdict: Verdict, detail: str) -> Outcome:
    """One verdict for every hunk of a file."""
    return Outcome(tuple(HunkVerdict(diff.path, n, verdict, detail=detail) for n in _numbers(diff)))


def _judge_hunks(diff: FileDiff, view: View, past: Past) -> Outcome:
    found = [_judge_hunk(diff, number, hunk, view, past) for number, hunk in enumerate(diff.hunks, 1)]
    verdicts, places = [verdict for verdict, _ in found], [place for _, place in found]
    everywhere = tuple(place for place in places if place is not None)
    if len(everywhere) == len(places):
        verdicts = _refuse_disorder(diff, verdicts, everywhere)
    needed = [(h, p) for h, p, v in zip(diff.hunks, places, verdicts, strict=True) if v.verdict is not Verdict.MERGED]
    if not all(v.verdict.is_applicable or v.verdict is Verdict.MERGED for v in verdicts):
        return Outcome(tuple(verdicts))
    at = [p for _, p in needed if p is not None]
    if any(a + len(h.before) > b for (h, _), (a, b) in zip(needed, pairwise(at), strict=False)):
        return Outcome(tuple(verdicts))
    rest = replaced(view.lines, [hunk for hunk, _ in needed], at)
    if len(needed) < len(diff.hunks):
        return Outcome(tuple(verdicts), rest=None if diff.is_deleted else rest)
    if diff.is_deleted and rest:
        detail = "the patch deletes the file, but it has more lines than the patch knows"
        return Outcome(tuple(replace(v, verdict=Verdict.CONFLICT, detail=detail) for v in verdicts))
    content = None if diff.is_deleted else rest
    return Outcome(tuple(verdicts), content, content, everywhere)


def _refuse_disorder(diff: FileDiff, verdicts: list[HunkVerdict], places: Sequence[int]) -> list[HunkVerdict]:
    """Hunks of a file must stay in their order and apart."""
    ends = [place + len(hunk.before) for place, hunk in zip(places, diff.hunks, strict=True)]
    if all(end <= place for end, (_, place) in zip(ends, pairwise(places), strict=False)):
        return verdicts
    detail = "the blocks stand in another order than in the patch"
    return [replace(v, verdict=Verdict.RELOCATED, detail=detail) if v.verdict.is_applicable else v for v in verdicts]


def _index(hunk: Hunk) -> int:
    """Where the patch expects the hunk, from 0."""
    return max(hunk.old_start - 1, 0)


def _judge_hunk(diff: FileDiff, number: int, hunk: Hunk, view: View, past: Past) -> tuple[HunkVerdict, int | None]:
    """The verdict, and the index (from 0) where the pre-image stands."""
    places = view.places(hunk)
    if not places:
        return _without_place(diff, number, hunk, view, past), None
    found = HunkVerdict(diff.path, number, Verdict.EXACT)
    if len(places) > 1:
        stands = ", ".join(str(place + 1) for place in places[:8])
        detail = f"its lines stand at {len(places)} places: lines {stands}"
        return replace(found, verdict=Verdict.AMBIGUOUS, detail=detail), None
    place = places[0]
    symbol = view.around(hunk, place)
    found = replace(found, line=place + 1, offset=place - _index(hunk))
    if symbol is not None:
        found = replace(found, symbol=symbol.name, fingerprint=view.fingerprint(symbol))
    wrong, detail = _refused_place(diff, number, hunk, view, past, place)
    if wrong is None:
        line = stands_already(view, diff, number, hunk, past) if past.files.get(diff.path) is not None else None
        detail = "" if line is None else f"look: code that it adds stands in line {line} already"
        return replace(found, verdict=Verdict.OFFSET if found.offset else Verdict.EXACT, detail=detail), place
    there = merged(view, diff, number, hunk, past) if wrong is Verdict.CONFLICT else None
    if there is not None:
        return replace(found, verdict=Verdict.MERGED, line=there.line, offset=0, detail=there.signs), place
    return replace(found, verdict=wrong, detail=detail), place


def _refused_place(
    diff: FileDiff, number: int, hunk: Hunk, view: View, past: Past, place: int
) -> tuple[Verdict | None, str]:
    """Why the only place of a pre-image is not a good one; (None, "") when it is."""
    if hunk.is_at_start and place != 0:
        return Verdict.CONFLICT, "the hunk begins at the first line, but other lines stand above it now"
    if hunk.is_at_end and place + len(hunk.before) != len(view.lines):
        return Verdict.CONFLICT, "the hunk reaches to the last line, but other lines stand below it now"
    return _other_symbol(diff, number, hunk, view, past, place)


def _other_symbol(
    diff: FileDiff, number: int, hunk: Hunk, view: View, past: Past, place: int
) -> tuple[Verdict | None, str]:
    """Whether the pre-image stands in another symbol than the patch was made for; and whether it is code at all."""
    known = past.files.get(diff.path)
    here = view.around(hunk, place)
    stands = here.name if here is not None else "no function or class"
    if known is not None:
        was = known.around(number, hunk)
        if (was is None) != (here is None) or (was is not None and here != view.named(was)):
            meant = was.name if was is not None else "code outside of functions and classes"
            return Verdict.RELOCATED, f"made for {meant}, but these lines stand in {stands}"
        again = defined_again(known, view, number, hunk)
        if again:
            return Verdict.RELOCATED, f"{again} is not defined as often as it was: look which one is the one to patch"
        if view.code[place : place + len(hunk.before)] != known.code(number, hunk):
            return Verdict.RELOCATED, "these lines stand in a comment or a string now, or no longer do"
        old, now = (v.context(p + hunk.leading) for v, p in ((known.before, known.places[number - 1]), (view, place)))
        if old.conditions != now.conditions:
            return Verdict.RELOCATED, f"these lines stand under other conditions now: {_shown(now.conditions)}"
        return None, ""
    if at_margin(hunk) or not symbols.has_symbols(diff.path):
        return None, ""
    locked = past.locked(diff.path, hunk)
    if locked and (here is None or here.name not in locked):
        return Verdict.RELOCATED, f"it was locked in {', '.join(locked)}, but these lines stand in {stands}"
    if hunk.heading and not _has_heading(diff.path, hunk.heading, view, place, here):
        git = symbols.git_heading(view.lines, place) or "the top of the file"
        return Verdict.RELOCATED, f"made for `{hunk.heading}`, but these lines stand below `{git}`"
    return None, ""


def _shown(conditions: Sequence[bytes]) -> str:
    return ", ".join(line.decode("utf-8", "replace") for line in conditions) or "none"


def _has_heading(path: str, heading: str, view: View, place: int, here: Symbol | None) -> bool:
    """Whether the place is in what git's heading names: git looks above the hunk's first line, not its changes."""
    index = bisect_left(view.headings, place) - 1
    above = symbols.heading_text(view.lines[view.headings[index]]) if index >= 0 else ""
    if above == heading:
        return True
    if not path.endswith(symbols.PYTHON):
        return False
    name = symbols.named(heading)
    if name is None:
        return symbols.named(above) is None
    return here is not None and name in (part.partition("#")[0] for part in here.name.split("."))


def _without_place(diff: FileDiff, number: int, hunk: Hunk, view: View, past: Past) -> HunkVerdict:
    there = merged(view, diff, number, hunk, past)
    upstream = what_upstream_did(view, diff, number, hunk, past)
    if there is not None:
        return HunkVerdict(diff.path, number, Verdict.MERGED, there.line, detail=there.signs, upstream=upstream)
    scopes = past.scopes(view, diff, number, hunk)
    if not scopes and _is_gone(view, diff, number, hunk, past):
        detail = successor_of_symbol(view, diff, number, hunk, past)
        return HunkVerdict(diff.path, number, Verdict.GONE, detail=detail, upstream=upstream)
    return HunkVerdict(diff.path, number, Verdict.CONFLICT, detail=nearest(hunk, view, scopes), upstream=upstream)


def _is_gone(view: View, diff: FileDiff, number: int, hunk: Hunk, past: Past) -> bool:
    """Whether no symbol of the name is left; one that stands there twice, or is declared anew, is not gone."""
    wanted = past.wanted(diff, number, hunk).partition("#")[0]
    names = {symbol.name.partition("#")[0] for symbol in view.symbols}
    return diff.path.endswith(symbols.PYTHON) and bool(view.symbols) and wanted not in names
