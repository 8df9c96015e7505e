"""Says what would become of every hunk of every patch, without changing anything.

The judgement is Graft's own reading of the bytes; the engine (git) applies them afterwards, and its result must
be the one that was judged. A hunk is placed only where its whole pre-image stands, byte by byte, and only when
that is one place.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from graft.patching import symbols
from graft.patching.model import (
    FileDiff,
    Hunk,
    HunkVerdict,
    Malformed,
    ParsedPatch,
    PatchVerdict,
    SourceTree,
    Verdict,
)
from graft.patching.parse import parse
from graft.patchset import Patch

#: From worst to best: the first that a hunk has is the patch's.
WORST_FIRST = (
    Verdict.GONE,
    Verdict.CONFLICT,
    Verdict.AMBIGUOUS,
    Verdict.RELOCATED,
    Verdict.MERGE_CLEAN,
    Verdict.OFFSET,
    Verdict.EXACT,
)


def judge(
    tree: SourceTree | Mapping[str, bytes],
    patches: Sequence[Patch],
    locked: Mapping[str, Collection[str]] | None = None,
) -> list[PatchVerdict]:
    """One verdict per patch, in order; each is judged on what the applicable ones before it leave.

    locked: patch id -> the symbols (`path::name`) that it was in when it was locked. git's headings name only the
    outermost symbol; these find a hunk that moved into another function of the same class.
    """
    current = tree if isinstance(tree, SourceTree) else SourceTree(dict(tree))
    verdicts: list[PatchVerdict] = []
    for patch in patches:
        verdict = _moved(_judge_one(current, patch), (locked or {}).get(patch.id))
        if verdict.verdict.is_applicable:
            current = _after(current, verdict)
        verdicts.append(verdict)
    return verdicts


def _judge_one(tree: SourceTree, patch: Patch) -> PatchVerdict:
    try:
        parsed = parse(patch.data)
    except Malformed as problem:
        return PatchVerdict(patch.id, Verdict.MALFORMED, (), detail=str(problem))
    outcomes = [_judge_file(tree, diff) for diff in parsed.files]
    hunks = tuple(hunk for outcome in outcomes for hunk in outcome.hunks)
    verdict = _summary(hunks)
    if not verdict.is_applicable:
        return PatchVerdict(patch.id, verdict, hunks)
    result: dict[str, bytes | None] = {}
    executable = set(tree.executable)
    for diff, outcome in zip(parsed.files, outcomes, strict=True):
        if diff.old is not None:
            result[diff.old] = None
            executable.discard(diff.old)
        if diff.new is not None:
            result[diff.new] = outcome.content
            is_executable = diff.old in tree.executable if diff.new_mode is None else diff.new_mode == "100755"
            executable |= {diff.new} if is_executable else set()
    made = PatchVerdict(patch.id, verdict, hunks, result=result, executable=frozenset(executable))
    return _refuse_repeatable(tree, made, parsed)


def _moved(verdict: PatchVerdict, locked: Collection[str] | None) -> PatchVerdict:
    if not verdict.verdict.is_applicable or not locked:
        return verdict
    hunks = tuple(
        replace(hunk, verdict=Verdict.RELOCATED, detail=f"it was locked in {', '.join(sorted(locked))}")
        if hunk.symbol is not None and hunk.offset and f"{hunk.path}::{hunk.symbol}" not in locked
        else hunk
        for hunk in verdict.hunks
    )
    if hunks == verdict.hunks:
        return verdict
    return PatchVerdict(verdict.id, _summary(hunks), hunks)


def _refuse_repeatable(tree: SourceTree, made: PatchVerdict, parsed: ParsedPatch) -> PatchVerdict:
    """Repeated lines can let a patch fit its own result once more; then nothing shows whether it is in already."""
    after = _after(tree, made)
    again = [hunk for diff in parsed.files for hunk in _judge_file(after, diff).hunks]
    if not _summary(again).is_applicable:
        return made
    detail = "the patch would apply a second time to its own result; give it more context"
    hunks = tuple(replace(hunk, verdict=Verdict.AMBIGUOUS, detail=detail) for hunk in made.hunks)
    return PatchVerdict(made.id, Verdict.AMBIGUOUS, hunks, detail=detail)


def _after(tree: SourceTree, verdict: PatchVerdict) -> SourceTree:
    files = dict(tree.files)
    names = set(tree.all_names)
    for path, content in verdict.result.items():
        if content is None:
            files.pop(path, None)
            names.discard(path)
        else:
            files[path] = content
            names.add(path)
    return SourceTree(files, verdict.executable, names)


def _summary(hunks: Iterable[HunkVerdict]) -> Verdict:
    found = {hunk.verdict for hunk in hunks}
    if found == {Verdict.MERGED}:
        return Verdict.MERGED
    worst = next((v for v in WORST_FIRST if v in found), Verdict.CONFLICT)
    if Verdict.MERGED in found and worst.is_applicable:
        return Verdict.PARTIAL
    return worst


@dataclass(frozen=True)
class _Outcome:
    hunks: tuple[HunkVerdict, ...]
    content: bytes | None = None


def _judge_file(tree: SourceTree, diff: FileDiff) -> _Outcome:
    if diff.binary:
        return _whole(diff, Verdict.CONFLICT, "binary changes cannot be judged; they are not supported yet")
    if diff.is_new:
        return _judge_new(tree, diff)
    assert diff.old is not None
    content = tree.files.get(diff.old)
    if content is None:
        return _whole(diff, Verdict.GONE, _successor(tree, diff.old))
    if diff.is_rename and diff.new in tree.all_names:
        return _whole(diff, Verdict.CONFLICT, f"{diff.new} exists already")
    if diff.changes_mode and (diff.new_mode == "100755") == (diff.old in tree.executable):
        merged = HunkVerdict(diff.path, 0, Verdict.MERGED, detail=f"it has mode {diff.new_mode} already")
        return _Outcome((merged, *(_judge_hunks(diff, content).hunks if diff.hunks else ())))
    if not diff.hunks:
        if diff.is_deleted and content:
            return _whole(diff, Verdict.CONFLICT, "the patch deletes an empty file; this one has content")
        return _Outcome((HunkVerdict(diff.path, 0, Verdict.EXACT),), None if diff.is_deleted else content)
    return _judge_hunks(diff, content)


def _judge_new(tree: SourceTree, diff: FileDiff) -> _Outcome:
    content = b"".join(line for hunk in diff.hunks for line in hunk.after)
    existing = tree.files.get(diff.path)
    if existing is None and diff.path not in tree.all_names:
        return _Outcome(tuple(HunkVerdict(diff.path, n, Verdict.EXACT, 1) for n in _numbers(diff)), content)
    # Two signs: the path, which did not exist when the patch was made, and all of its bytes.
    if existing == content and content.strip():
        return _whole(diff, Verdict.MERGED, "the file exists with these bytes")
    return _whole(diff, Verdict.CONFLICT, "the patch adds this file, but it exists already")


def _numbers(diff: FileDiff) -> range:
    return range(1, len(diff.hunks) + 1) if diff.hunks else range(1)


def _whole(diff: FileDiff, verdict: Verdict, detail: str) -> _Outcome:
    """One verdict for every hunk of a file."""
    return _Outcome(tuple(HunkVerdict(diff.path, n, verdict, detail=detail) for n in _numbers(diff)))


def split(content: bytes) -> list[bytes]:
    """Lines with their ends; only \\n ends a line, as for git."""
    lines = content.split(b"\n")
    return [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def _judge_hunks(diff: FileDiff, content: bytes) -> _Outcome:
    lines = split(content)
    verdicts: list[HunkVerdict] = []
    places: list[int | None] = []
    for number, hunk in enumerate(diff.hunks, 1):
        verdict, place = _judge_hunk(diff, number, hunk, content, lines)
        verdicts.append(verdict)
        places.append(place)
    found = [p for p in places if p is not None]
    if len(found) == len(places):
        verdicts = _refuse_disorder(diff, verdicts, found)
    if not all(v.verdict.is_applicable for v in verdicts):
        return _Outcome(tuple(verdicts))
    result = _replaced(lines, diff, found)
    if diff.is_deleted and result:
        detail = "the patch deletes the file, but it has more lines than the patch knows"
        return _Outcome(tuple(replace(v, verdict=Verdict.CONFLICT, detail=detail) for v in verdicts))
    return _Outcome(tuple(verdicts), None if diff.is_deleted else b"".join(result))


def _refuse_disorder(diff: FileDiff, verdicts: list[HunkVerdict], places: list[int]) -> list[HunkVerdict]:
    """Hunks of a file must stay in their order and apart."""
    ends = [place + len(hunk.before) for place, hunk in zip(places, diff.hunks, strict=True)]
    if all(end <= place for end, (_, place) in zip(ends, pairwise(places), strict=False)):
        return verdicts
    detail = "the blocks stand in another order than in the patch"
    return [replace(v, verdict=Verdict.RELOCATED, detail=detail) if v.verdict.is_applicable else v for v in verdicts]


def _replaced(lines: Sequence[bytes], diff: FileDiff, places: Sequence[int]) -> list[bytes]:
    result: list[bytes] = []
    at = 0
    for place, hunk in zip(places, diff.hunks, strict=True):
        result += [*lines[at:place], *hunk.after]
        at = place + len(hunk.before)
    return [*result, *lines[at:]]


def _index(hunk: Hunk) -> int:
    """Where the patch expects the hunk, from 0."""
    return max(hunk.old_start - 1, 0)


def _judge_hunk(
    diff: FileDiff, number: int, hunk: Hunk, content: bytes, lines: Sequence[bytes]
) -> tuple[HunkVerdict, int | None]:
    """The verdict, and the index (from 0) where the pre-image stands."""
    places = find(lines, hunk.before) if hunk.before else ([0] if not lines else [])
    if not places:
        return _without_place(diff, number, hunk, content, lines), None
    found = HunkVerdict(diff.path, number, Verdict.EXACT)
    if len(places) > 1:
        stands = ", ".join(str(place + 1) for place in places[:8])
        detail = f"its lines stand at {len(places)} places: lines {stands}"
        return replace(found, verdict=Verdict.AMBIGUOUS, detail=detail), None
    place = places[0]
    symbol = _symbol(diff.path, content, hunk, place)
    found = replace(found, line=place + 1, offset=place - _index(hunk))
    if symbol is not None:
        found = replace(found, symbol=symbol.name, fingerprint=symbols.fingerprint(content, symbol))
    if hunk.is_at_start and place != 0:
        detail = "the hunk begins at the first line, but other lines stand above it now"
        return replace(found, verdict=Verdict.CONFLICT, detail=detail), place
    if hunk.is_at_end and place + len(hunk.before) != len(lines):
        detail = "the hunk reaches to the last line, but other lines stand below it now"
        return _merged(diff, number, hunk, lines) or replace(found, verdict=Verdict.CONFLICT, detail=detail), place
    if not symbols.same_symbol(diff.path, hunk.heading, lines, place):
        here = symbols.git_heading(lines, place) or "the top of the file"
        detail = f"made for `{hunk.heading}`, but these lines stand below `{here}`"
        return replace(found, verdict=Verdict.RELOCATED, detail=detail), place
    return replace(found, verdict=Verdict.OFFSET if place != _index(hunk) else Verdict.EXACT), place


def find(lines: Sequence[bytes], block: Sequence[bytes]) -> list[int]:
    """Every index at which the block stands."""
    if not block:
        return []
    first, size = block[0], len(block)
    block = list(block)
    return [i for i in range(len(lines) - size + 1) if lines[i] == first and list(lines[i : i + size]) == block]


def _symbol(path: str, content: bytes, hunk: Hunk, place: int) -> symbols.Symbol | None:
    """The symbol that holds the changed lines themselves, without the context around them."""
    first = place + hunk.leading + 1
    last = max(place + len(hunk.before) - hunk.trailing, first - 1)
    if not path.endswith(".py"):
        return None
    return symbols.innermost(symbols.symbols_of(path, content), max(min(first, last), 1), max(first, last))


def _without_place(diff: FileDiff, number: int, hunk: Hunk, content: bytes, lines: Sequence[bytes]) -> HunkVerdict:
    merged = _merged(diff, number, hunk, lines)
    if merged is not None:
        return merged
    if symbols.defines(diff.path, content, hunk.heading) is False:
        return HunkVerdict(diff.path, number, Verdict.GONE, detail=_next_symbol(content, hunk.heading))
    return HunkVerdict(diff.path, number, Verdict.CONFLICT, detail=_nearest(hunk, lines))


def _merged(diff: FileDiff, number: int, hunk: Hunk, lines: Sequence[bytes]) -> HunkVerdict | None:
    """`merged` by two independent signs, or None.

    First: the whole post-image stands once, in the symbol that the patch names. Second: the changed lines for
    themselves say so too, without the context: what the patch adds stands once, what it removes does not stand.
    """
    places = find(lines, hunk.after)
    if len(places) != 1 or not symbols.same_symbol(diff.path, hunk.heading, lines, places[0]):
        return None
    added = [run for run in hunk.added if _says_something(run)]
    removed = [run for run in hunk.removed if _says_something(run)]
    if not added and not removed:
        return None
    if any(len(find(lines, run)) != 1 for run in added) or any(find(lines, run) for run in removed):
        return None
    return HunkVerdict(diff.path, number, Verdict.MERGED, places[0] + 1, detail="upstream has it")


def _says_something(run: Sequence[bytes]) -> bool:
    """More than blank lines, brackets or a lone keyword."""
    return len({c for line in run for c in line if chr(c).isalnum()}) >= 4


def _nearest(hunk: Hunk, lines: Sequence[bytes]) -> str:
    """Which line of the pre-image is the first that does not stand where most of the others do."""
    if len(find([line.rstrip(b"\r\n") for line in lines], [line.rstrip(b"\r\n") for line in hunk.before])) == 1:
        return "only line ends differ: the patch and the file disagree about CRLF, or about a newline at the end"
    wanted, best, score = list(hunk.before), 0, 0
    for place in range(max(len(lines) - 1, 0)):
        same = sum(a == b for a, b in zip(wanted, lines[place : place + len(wanted)], strict=False))
        if same > score:
            best, score = place, same
    if score * 2 < len(wanted):
        return "its lines stand nowhere in the file"
    here = lines[best : best + len(wanted)]
    for i, line in enumerate(wanted):
        found = here[i] if i < len(here) else b""
        if line != found:
            return f"line {best + i + 1} differs: expected {_shown(line)}, found {_shown(found)}"
    return "its lines stand nowhere in the file"


def _shown(line: bytes) -> str:
    return repr(line.decode("utf-8", "replace").rstrip("\r\n")[:60]) if line else "the end of the file"


def _successor(tree: SourceTree, path: str) -> str:
    """Where a file that no longer exists may have gone."""
    name = path.rpartition("/")[2]
    suffix = next((n for n in sorted(tree.all_names) if path.endswith(f"/{n}") or n.endswith(f"/{path}")), None)
    if suffix is not None:
        return f"no such file; is the patch's path level wrong? There is {suffix}"
    same = sorted(n for n in tree.all_names if n.rpartition("/")[2] == name)
    close = difflib.get_close_matches(path, same or list(tree.all_names), n=1, cutoff=0.0 if same else 0.75)
    return f"no such file; its likely successor is {close[0]}" if close else "no such file"


def _next_symbol(content: bytes, heading: str) -> str:
    wanted = symbols.NAMED.match(heading)
    assert wanted is not None
    close = difflib.get_close_matches(wanted[1], sorted(symbols.names(content)), n=1, cutoff=0.6)
    hint = f"; its likely successor is {close[0]}" if close else ""
    return f"{wanted[1]} is no longer defined in the file{hint}"
