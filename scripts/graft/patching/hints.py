"""What upstream most likely did to a hunk that has no place, and what most likely resolves a verdict."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Sequence

from graft.patching import symbols
from graft.patching.blocks import find, split
from graft.patching.model import FileDiff, Hunk, SourceTree, Verdict
from graft.patching.past import Past
from graft.patching.symbols import Symbol
from graft.patching.view import View

SHOWN = 60
#: How alike two functions must be for one to be called the successor of the other.
ALIKE = 0.6
#: Names of a folder, and places of a line, that are looked at for a hint.
MOST_NAMES = 500
MOST_PLACES = 50


def successor_of_file(tree: SourceTree, path: str) -> str:
    """Where a file that no longer exists may have gone."""
    folder, _, name = path.rpartition("/")
    same = sorted(n for n in tree.all_names if n.rpartition("/")[2] == name)
    suffix = next((n for n in same if path.endswith(f"/{n}") or n.endswith(f"/{path}")), None)
    if suffix is not None:
        return f"no such file; is the patch's path level wrong? There is {suffix}"
    if same:
        return f"no such file; its likely successor is {max(same, key=lambda n: _common(n, path))}"
    # Comparing with every name of a large tree takes seconds: a file that was renamed is mostly still in its folder.
    near = [n.rpartition("/")[2] for n in tree.all_names if n.rpartition("/")[0] == folder][:MOST_NAMES]
    close = difflib.get_close_matches(name, sorted(near), n=1, cutoff=0.6)
    return f"no such file; its likely successor is {folder}/{close[0]}" if close else "no such file"


def _common(one: str, other: str) -> int:
    """How many folders two paths share, from the top and from the bottom."""
    a, b = one.split("/"), other.split("/")
    return sum(x == y for x, y in zip(a, b, strict=False)) + sum(
        x == y for x, y in zip(reversed(a), reversed(b), strict=False)
    )


def successor_of_symbol(view: View, diff: FileDiff, number: int, hunk: Hunk, past: Past) -> str:
    """Where a symbol that no longer exists may have gone: by its code where that is known, else by its name."""
    wanted = past.wanted(diff, number, hunk)
    known = past.files.get(diff.path)
    was = known.around(number, hunk) if known is not None else None
    close = _alike(view, known.before, was) if known is not None and was is not None else None
    close = close or _named_alike(view, wanted)
    return f"{wanted} is no longer defined in the file" + (f"; its likely successor is {close}" if close else "")


def _alike(view: View, before: View, was: Symbol) -> str | None:
    words = _words(before, was)
    best, score = None, ALIKE
    for symbol in view.symbols:
        there = _words(view, symbol)
        # What differs so much in length cannot be alike; comparing is the slow part.
        if not there or not 0.4 < len(words) / len(there) < 2.5:
            continue
        matcher = difflib.SequenceMatcher(None, words, there, autojunk=False)
        if matcher.quick_ratio() > score and (found := matcher.ratio()) > score:
            best, score = symbol.name, found
    return best


def _words(view: View, symbol: Symbol) -> list[str]:
    if not symbol.heading:
        return symbols.words_of(view.content, symbol)
    return [word.decode("utf-8", "replace") for line in view.says(symbol) for word in line.split()]


def _named_alike(view: View, wanted: str) -> str | None:
    names = sorted({symbol.name for symbol in view.symbols})
    last = wanted.rpartition(".")[2]
    exact = [name for name in names if name.rpartition(".")[2] == last and name != wanted]
    close = exact or difflib.get_close_matches(wanted, names, n=1, cutoff=0.6)
    return close[0] if close else None


def nearest(hunk: Hunk, view: View, scopes: Sequence[Symbol | None]) -> str:
    """Which line of the pre-image is the first that does not stand where most of the others do.

    Looked for around the symbol that the hunk should be in, when there is just one.
    """
    scope = scopes[0] if len(scopes) == 1 else None
    first, last = (0, len(view.lines)) if scope is None else (max(scope.first - 4, 0), scope.last + 3)
    lines = view.lines[first:last]
    if find(_joined(lines), [_joined(hunk.before)]):
        return "only line ends differ: the patch and the file disagree about CRLF, or about a newline at the end"
    place, same = _best_place(hunk.before, lines)
    if same * 2 < len(hunk.before):
        return "its lines stand nowhere in the file"
    here = lines[place : place + len(hunk.before)]
    for i, line in enumerate(hunk.before):
        found = here[i] if i < len(here) else b""
        if line != found:
            return f"line {first + place + i + 1} differs: expected {_shown(line)}, found {_shown(found)}"
    return "its lines stand nowhere in the file"


def _best_place(wanted: Sequence[bytes], lines: Sequence[bytes]) -> tuple[int, int]:
    """The index at which most lines agree, and how many. Lines that stand everywhere say nothing."""
    where: dict[bytes, list[int]] = {}
    for index, line in enumerate(lines):
        where.setdefault(line, []).append(index)
    votes: dict[int, int] = {}
    for offset, line in enumerate(wanted):
        places = where.get(line, ())
        for index in places if len(places) <= MOST_PLACES else ():
            if index >= offset:
                votes[index - offset] = votes.get(index - offset, 0) + 1
    if not votes:
        return 0, 0
    place = min(votes, key=lambda p: (-votes[p], p))
    here = lines[place : place + len(wanted)]
    return place, sum(a == b for a, b in zip(wanted, here, strict=False))


def _joined(lines: Sequence[bytes]) -> bytes:
    return b"".join(line.rstrip(b"\r\n") + b"\n" for line in lines)


def merged_line(old: bytes, new: bytes, hunk: Hunk) -> int:
    """Where a merge puts a hunk, from 1: where its added lines stand, else the first line that it changes."""
    places = [found[0] for run in hunk.added if len(found := find(new, run)) == 1]
    return places[0] + 1 if places else first_difference(old, new)


def _shown(line: bytes) -> str:
    return repr(line.decode("utf-8", "replace").rstrip("\r\n")[:SHOWN]) if line else "the end of the file"


def what_upstream_did(view: View, diff: FileDiff, number: int, hunk: Hunk, past: Past) -> str:
    """What changed in the symbol of a hunk since the version it was made for; empty when that is not known."""
    known = past.files.get(diff.path)
    if known is None:
        return ""
    was = known.around(number, hunk)
    now = view.named(was) if was is not None else None
    where = f"`{was.name}`" if was is not None else "the file"
    if was is not None and now is None:
        return f"removed or renamed {where}, or declares it anew"
    old, new = known.before.text(was), view.text(now)
    added, removed = line_counts(old, new)
    if not added and not removed:
        return f"left {where} as it was"
    comments = "" if known.before.says(was) != view.says(now) else ", comments or layout only"
    return f"changed {where}: {added} lines added, {removed} removed{comments}"


def line_counts(old: Sequence[bytes], new: Sequence[bytes]) -> tuple[int, int]:
    """How many lines stand in one of them only; a line that moved is no change."""
    before, after = Counter(old), Counter(new)
    return (after - before).total(), (before - after).total()


def first_difference(old: bytes, new: bytes) -> int:
    """The first line (from 1) of `new` that is not the one of `old`."""
    before, after = split(old), split(new)
    same = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), None)
    return (min(len(before), len(after)) if same is None else same) + 1


def cure(verdict: Verdict, name: str, file: str) -> str:
    """What most likely resolves a verdict. `name`: <component>/<id>; `file`: the patch as the user would type it."""
    cures = {
        Verdict.AMBIGUOUS: f"give the hunk more context: make {file} again with `git diff -U10`, then make lock",
        Verdict.RELOCATED: f"look at the new place; if it is the right one, make {file} anew against it, then lock",
        Verdict.MERGE_CLEAN: f"graft patch refresh {name} --merge, read what it wrote, then make lock",
        Verdict.CONFLICT: f"make {file} anew against the pinned source, then run make lock",
        Verdict.GONE: f"make {file} anew against the likely successor, or graft patch drop {name} --because ...",
        Verdict.MERGED: f'upstream has it: graft patch drop {name} --because "upstream has it", then make lock',
        Verdict.PARTIAL: f"upstream has a part of it: graft patch refresh {name} --merge keeps the rest, then lock",
        Verdict.UNUSED: f"add {name} to a recipe, widen its `when`, or graft patch drop {name} --because ...",
        Verdict.MALFORMED: f"make {file} again with `git diff`, then run make lock",
    }
    return cures.get(verdict, "")
