"""Whether upstream has a hunk already. No single sign is believed: repeated lines, or a rewritten place, can give any.

The signs, each looked for only in the symbol that the patch changed, in code (not in comments, and in strings only
where the patch itself changes one), and in the same block under the same conditions:
- its result stands there, whole and once (comments apart);
- what it adds stands there once, and what it removes does not stand there in any layout;
- the symbol's code is the code of the patched symbol;
- a three-way merge with the version that the patch was made for changes nothing;
- the text that the record says it works around is gone.
Where the code of its pre-image still stands, nothing is merged. A hunk that only removes has but one sign in its
lines, that they are gone: upstream has it only where the whole symbol is the patched one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graft.patching.blocks import says_something
from graft.patching.code import code_of
from graft.patching.context import DIRECTIVE, Context
from graft.patching.model import FileDiff, Hunk
from graft.patching.past import Past, defined_again
from graft.patching.squeeze import squeezed
from graft.patching.symbols import Symbol, innermost
from graft.patching.view import View

Lines = tuple[bytes, ...]


@dataclass(frozen=True)
class Merged:
    """line: where upstream has it, from 1; None when it has it in another form. signs: in words."""

    line: int | None
    signs: str


def merged(view: View, diff: FileDiff, number: int, hunk: Hunk, past: Past) -> Merged | None:
    """What shows that upstream has the hunk, by two independent signs; None when it is not shown."""
    if not any(says_something(run) for run in (*hunk.added, *hunk.removed)):
        return None
    known = past.files.get(diff.path)
    if known is not None and defined_again(known, view, number, hunk):
        return None
    for scope in past.scopes(view, diff, number, hunk):
        case = _Case(view, diff, number, hunk, past, scope)
        found = case.as_symbol() or case.as_block() or case.as_recorded()
        if found is not None:
            return found
    return None


def merges_to_nothing(view: View, diff: FileDiff, number: int, hunk: Hunk, past: Past) -> Merged | None:
    """The same where a three-way merge leaves the file as it is: that is one sign, this finds the second."""
    for scope in past.scopes(view, diff, number, hunk):
        found = _Case(view, diff, number, hunk, past, scope).as_merge()
        if found is not None:
            return found
    return None


def stands_already(view: View, diff: FileDiff, number: int, hunk: Hunk, past: Past) -> int | None:
    """The line (from 1) at which code that the hunk adds stands in its symbol; None when none of it does."""
    for scope in past.scopes(view, diff, number, hunk):
        case = _Case(view, diff, number, hunk, past, scope)
        for run in case.added:
            if says_something(run) and (places := case.part.places(run)):
                return case.part.index(places[0]) + 1
    return None


class _Case:
    """One hunk against one symbol (None: the whole file)."""

    def __init__(self, view: View, diff: FileDiff, number: int, hunk: Hunk, past: Past, scope: Symbol | None) -> None:
        self.view, self.hunk, self.number, self.scope = view, hunk, number, scope
        self.known = past.files.get(diff.path)
        self.gone = past.gone.get(diff.path, ())
        self.part = view.part(scope)
        if self.known is not None:
            self.after, self.before = self.known.made(number, hunk), self.known.code(number, hunk)
            self.certain = True
        else:
            after = code_of(view.path, hunk.after, whole=False)
            before = code_of(view.path, hunk.before, whole=False)
            self.after, self.before = after.lines, before.lines
            self.certain = after.certain and before.certain
        added = _runs(hunk.after, self.after, hunk.added)
        self.added = [run for run, _ in added]
        self.added_at = dict(added)
        self.removed = [run for run, _ in _runs(hunk.before, self.before, hunk.removed)]

    def as_symbol(self) -> Merged | None:
        """The symbol is the patched one; for code at the margin, the file is."""
        if self.known is None:
            return None
        was = self.known.around(self.number, self.hunk)
        made = self.known.after.named(was) if was is not None else None
        if was is not None and made is None:
            return None
        here = _meaning(self.view, self.scope)
        if here != _meaning(self.known.after, made) or here == _meaning(self.known.before, was):
            return None
        if self.scope is not None and was is not None:
            here_around, around = self.view.context(self.scope.first - 1), self.known.before.context(was.first - 1)
            if here_around != around:
                return None
        name, line = ("the file", 1) if self.scope is None else (self.scope.name, self.scope.first)
        return Merged(line, f"{name} is the patched one, comments apart")

    def as_block(self) -> Merged | None:
        """Its result stands there, and what it adds and removes is so by itself."""
        wanted, pristine = _said(self.after), _said(self.before)
        if not self.certain:
            return None
        if wanted == pristine:
            return self._as_comment()
        added = [run for run in self.added if says_something(run)]
        places = self.part.places(wanted)
        if len(places) != 1 or not added or not self._is_so(added) or self._still_needed():
            return None
        first = len(_said(self.after[: self.hunk.leading]))
        if not self._same_context(self.part.index(places[0] + first), self.hunk.leading):
            return None
        return Merged(
            self.part.index(places[0]) + 1, "its result stands there, comments apart, and what it removes does not"
        )

    def _as_comment(self) -> Merged | None:
        """A hunk that changes comments only: then its lines are what counts."""
        text = self.view.text(self.scope)
        added = [tuple(run) for run in self.hunk.added if says_something(run)]
        removed = [tuple(run) for run in self.hunk.removed if says_something(run)]
        places = _places(text, self.hunk.after)
        if len(places) != 1 or not added or not all(len(_places(text, run)) == 1 for run in added):
            return None
        if any(_places(text, run) for run in removed) or _places(text, self.hunk.before):
            return None
        return Merged(places[0] + (self.scope.first if self.scope else 1), "its comment stands there")

    def as_merge(self) -> Merged | None:
        """A merge changes nothing, and what it adds and removes is so in its own block."""
        added = [run for run in self.added if says_something(run)]
        if self.known is None or not added or not self._is_so(added) or self._still_needed():
            return None
        if not all(self._same_context(self.part.index(self.part.places(run)[0]), self.added_at[run]) for run in added):
            return None
        return Merged(None, "a three-way merge changes nothing, and what it adds and removes is so in its place")

    def as_recorded(self) -> Merged | None:
        """Another wording of the fix: what it works around and removes is gone, and half of what it adds is there."""
        texts = self.gone
        if self.known is not None:
            texts = tuple(text for text in texts if squeezed(text) in squeezed(self.known.before.content))
        if not texts or any(squeezed(text) in squeezed(self.view.content) for text in texts):
            return None
        removed = [run for run in self.removed if says_something(run)]
        if not removed or not self._is_so([]) or self._still_needed():
            return None
        was = self.known.around(self.number, self.hunk) if self.known is not None else None
        pristine = self.known.before.says(was) if self.known is not None else _said(self.before)
        added = [run for run in self.added if says_something(run) and not _places(pristine, run)]
        there = [
            places[0]
            for run in added
            if len(places := self.part.places(run)) == 1
            and self._same_context(self.part.index(places[0]), self.added_at[run])
        ]
        if not there or len(there) * 2 < len(added):
            return None
        signs = "what the record names and what it removes is gone, and a part of what it adds stands in its place"
        return Merged(self.part.index(there[0]) + 1, signs)

    def _is_so(self, added: Sequence[Lines]) -> bool:
        """Each run of added code stands once; no removed code stands, however it is laid out."""
        flat = self.part.flat
        new = [squeezed(b"\n".join(run)) for run in self.added]
        gone = [squeezed(b"\n".join(run)) for run in self.removed if says_something(run)]
        return all(len(self.part.places(run)) == 1 for run in added) and not any(
            # What it adds may hold the text of what it removes.
            flat.count(text) > sum(run.count(text) for run in new)
            for text in gone
        )

    def _still_needed(self) -> bool:
        """The code of the pre-image stands: the place that the patch is for is as it was."""
        pristine = _said(self.before)
        return bool(pristine) and pristine != _said(self.after) and bool(self.part.places(pristine))

    def _same_context(self, index: int, line: int) -> bool:
        """Whether the line at `index` of the file is in the block, and under the conditions, of the hunk's `line`."""
        here = self.view.context(index)
        if self.known is not None:
            return here == self.known.context(self.number, line)
        return self._shown(here, index)

    def _shown(self, here: Context, index: int) -> bool:
        """Without the pinned file only what the hunk shows is known of its context, and a file's include guard."""
        shown = {line.strip() for line in self.after}
        inner = innermost(self.view.symbols, index + 1, index + 1)
        names = [symbol.name.partition("#")[0] for symbol in self.view.symbols]
        if inner is not None and names.count(inner.name.partition("#")[0]) > 1:
            return False
        if inner is not None and inner != self.scope and self.view.code[inner.first - 1].strip() not in shown:
            return False
        first = next((line for line in self.view.code if line), b"")
        guard = {first} if DIRECTIVE.match(first) else set()
        return (
            not here.behind
            and not here.inside
            and all(header in shown for header in here.headers)
            and all(condition in shown | guard for condition in here.conditions)
        )


def _meaning(view: View, symbol: Symbol | None) -> object:
    return view.fingerprint(symbol) or view.says(symbol)


def _runs(lines: Sequence[bytes], code: Lines, runs: Sequence[Sequence[bytes]]) -> list[tuple[Lines, int]]:
    """The code of each run of changed lines, and where it begins in `lines`, whose code is `code`."""
    found: list[tuple[Lines, int]] = []
    at = 0
    for run in runs:
        while list(lines[at : at + len(run)]) != list(run):
            at += 1
        said = _said(code[at : at + len(run)])
        if said:
            found.append((said, at))
        at += len(run)
    return found


def _said(lines: Sequence[bytes]) -> Lines:
    return tuple(line for line in lines if line)


def _places(lines: Sequence[bytes], block: Sequence[bytes]) -> list[int]:
    if not block:
        return []
    wanted, first = list(block), block[0]
    size = len(wanted)
    return [i for i in range(len(lines) - size + 1) if lines[i] == first and list(lines[i : i + size]) == wanted]
