"""Undeclared dependencies of a series: each patch alone, neighbours swapped, and two patches in one symbol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from graft.patching.judge import judge
from graft.patching.model import PatchVerdict, SourceTree, Verdict
from graft.patching.sources import touched_paths
from graft.patchset import Patch


@dataclass(frozen=True)
class Alone:
    """A patch with nothing before it but what its `after` names.

    needs: an earlier patch that makes it applicable and that `after` does not name; empty when none alone does.
    """

    id: str
    verdict: Verdict
    needs: str = ""


@dataclass(frozen=True)
class Swapped:
    """Two neighbours in the other order. reason: why that is not the same; empty when it is."""

    first: str
    second: str
    reason: str = ""
    declared: bool = False


@dataclass(frozen=True)
class Overlap:
    """Patches that change one symbol (or, in files without symbols, lines of one file close to each other)."""

    where: str
    ids: tuple[str, ...]


@dataclass(frozen=True)
class Commutation:
    """What was found; `undeclared` in sentences, empty when the series says everything."""

    alone: tuple[Alone, ...]
    swapped: tuple[Swapped, ...]

    @property
    def undeclared(self) -> tuple[str, ...]:
        """Each dependency that a record does not name, as a sentence."""
        found = [
            f"{one.id} is {one.verdict} without {one.needs or 'an earlier patch'}: name that in its `after`"
            for one in self.alone
        ]
        found += [
            f"{pair.first} and {pair.second} cannot be swapped, {pair.reason}: "
            f"{pair.second} needs `after: [{pair.first}]`"
            for pair in self.swapped
            if pair.reason and not pair.declared
        ]
        return tuple(found)


def commute(tree: SourceTree | Mapping[str, bytes], patches: Sequence[Patch]) -> Commutation:
    """Judge each patch with only its declared predecessors, and each pair of neighbours swapped.

    Patches that cannot be applied in the series' order are left out: there is nothing to compare.
    """
    verdicts = judge(tree, patches)
    sound = [patch for patch, verdict in zip(patches, verdicts, strict=True) if verdict.verdict.is_applicable]
    alone = [found for index, patch in enumerate(sound) if (found := _alone(tree, sound[:index], patch)) is not None]
    return Commutation(tuple(alone), tuple(_swapped(tree, sound)))


def _alone(tree: SourceTree | Mapping[str, bytes], earlier: Sequence[Patch], patch: Patch) -> Alone | None:
    """None when the patch applies with what it names."""
    needed = closure(patch, earlier)
    verdict = judge(tree, [*needed, patch])[-1].verdict
    if verdict.is_applicable:
        return None
    touched = set(touched_paths([patch]))
    near = [p for p in earlier if p not in needed and touched & set(touched_paths([p]))]
    for other in reversed(near):
        chosen = {p.id for p in (*needed, other, *closure(other, earlier))}
        if judge(tree, [*(p for p in earlier if p.id in chosen), patch])[-1].verdict.is_applicable:
            return Alone(patch.id, verdict, other.id)
    return Alone(patch.id, verdict)


def closure(patch: Patch, earlier: Sequence[Patch]) -> list[Patch]:
    """What a patch comes after, directly or not, in the order of the series."""
    wanted = set(patch.record.after)
    for other in reversed(earlier):
        if other.id in wanted:
            wanted |= set(other.record.after)
    return [other for other in earlier if other.id in wanted]


def _swapped(tree: SourceTree | Mapping[str, bytes], patches: Sequence[Patch]) -> list[Swapped]:
    found = []
    paths = {patch.id: set(touched_paths([patch])) for patch in patches}
    for index, (first, second) in enumerate(pairwise(patches)):
        if not paths[first.id] & paths[second.id]:
            found.append(Swapped(first.id, second.id))
            continue
        before = _touching(patches[:index], paths, paths[first.id] | paths[second.id])
        declared = first.id in {p.id for p in closure(second, patches[: index + 1])}
        as_is = judge(tree, [*before, first, second])[-2:]
        other = judge(tree, [*before, second, first])[-2:]
        found.append(Swapped(first.id, second.id, _difference(as_is, other), declared))
    return found


def _touching(earlier: Sequence[Patch], paths: Mapping[str, set[str]], wanted: set[str]) -> list[Patch]:
    """Those that have a part in the state of the wanted files."""
    found: list[Patch] = []
    reached = set(wanted)
    for patch in reversed(earlier):
        if paths[patch.id] & reached:
            reached |= paths[patch.id]
            found.append(patch)
    return found[::-1]


def _difference(as_is: Sequence[PatchVerdict], other: Sequence[PatchVerdict]) -> str:
    wrong = next((v for v in other if not v.verdict.is_applicable), None)
    if wrong is not None:
        return f"{wrong.id} is {wrong.verdict} then"
    ends = [{**a.result, **b.result} for a, b in (as_is, other)]
    return "" if ends[0] == ends[1] else "the result is another one"


def overlaps(verdicts: Sequence[PatchVerdict]) -> tuple[Overlap, ...]:
    """The symbols that more than one patch changes; where there are none, the file."""
    owners: dict[str, list[str]] = {}
    for verdict in verdicts:
        places = {f"{h.path}::{h.symbol}" if h.symbol else h.path for h in verdict.hunks if h.line is not None}
        for place in places:
            owners.setdefault(place, []).append(verdict.id)
    return tuple(Overlap(place, tuple(ids)) for place, ids in sorted(owners.items()) if len(ids) > 1)
