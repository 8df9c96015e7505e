"""Verdicts: what becomes of each patch on a source tree, judged in memory without changing anything.

The rules: a hunk is placed only where its whole pre-image stands exactly once and inside the function or class that
it was made for; `merged` needs two signs. git is the engine that applies; this module decides whether it may.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from graft.patching.ends import gone_texts
from graft.patching.hints import merged_line
from graft.patching.model import FileDiff, Hunk, HunkVerdict, Malformed, ParsedPatch, PatchVerdict, SourceTree, Verdict
from graft.patching.parse import parse
from graft.patching.past import Past, PastFile
from graft.patching.place import Outcome, judge_file
from graft.patching.signs import merges_to_nothing, stands_already
from graft.patching.state import State
from graft.patching.symbols import innermost
from graft.patching.three_way import three_way
from graft.patching.view import View
from graft.patchset import Patch

#: Of several hunks, the first of these that occurs is the patch's verdict.
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
    locked: Mapping[str, Mapping[str, str]] | None = None,
    bases: SourceTree | None = None,
) -> list[PatchVerdict]:
    """One verdict per patch, in order; each is judged on what the applicable ones before it leave.

    locked: patch id -> the symbols (`path::name`) that it was in when it was locked, and their fingerprints. git's
            headings name only the outermost symbol; these find a hunk that moved into another function of a class.
    bases:  the files of the version that the patches were made for. With them a three-way merge can say where a
            hunk belongs, and what upstream did to the code around it.
    """
    now = State(tree if isinstance(tree, SourceTree) else SourceTree(dict(tree)))
    then = State(bases) if bases is not None else None
    return [_judge_next(now, then, patch, (locked or {}).get(patch.id, {})) for patch in patches]


def _judge_next(now: State, then: State | None, patch: Patch, symbols: Mapping[str, str]) -> PatchVerdict:
    try:
        parsed = parse(patch.data)
    except Malformed as problem:
        return PatchVerdict(patch.id, Verdict.MALFORMED, (), detail=str(problem))
    past = Past(symbols=symbols, gone=gone_texts(patch.record.ends))
    same = then is None or now.is_equal(then, parsed.paths)
    if then is not None and not same:
        past = replace(past, files=_past_files(then, patch.id, parsed))
    verdict = _marked(_judge_one(now, patch.id, parsed, past), symbols)
    if then is not None and not same:
        if not verdict.verdict.is_applicable:
            verdict = _with_merge(now, parsed, verdict, past)
        then.forget(parsed)
    elif then is not None and verdict.verdict.is_applicable:
        then.take(verdict)
    now.forget(parsed)
    if verdict.verdict.is_applicable:
        now.take(verdict)
    return verdict


def _past_files(then: State, patch_id: str, parsed: ParsedPatch) -> dict[str, PastFile]:
    """What the patch did to the files of its own version; that state goes on with its result."""
    before = {
        diff.path: (then.view(diff.old), judge_file(then.tree, diff, then.view(diff.old))) for diff in parsed.files
    }
    verdict = _judge_one(then, patch_id, parsed, Past())
    hunks = {diff.path: diff.hunks for diff in parsed.files}
    found: dict[str, PastFile] = {}
    for path, (view, outcome) in before.items():
        if view is not None and outcome.content is not None and outcome.places:
            after = _after_places(hunks[path], outcome.places)
            found[path] = PastFile(view, View(view.path, outcome.content), outcome.places, after)
    if verdict.verdict.is_applicable:
        then.take(verdict)
    return found


def _after_places(hunks: Sequence[Hunk], places: Sequence[int]) -> tuple[int, ...]:
    """Where the post-images stand: moved by what the hunks above added and removed."""
    found, moved = [], 0
    for hunk, place in zip(hunks, places, strict=True):
        found.append(place + moved)
        moved += len(hunk.after) - len(hunk.before)
    return tuple(found)


def _judge_one(state: State, patch_id: str, parsed: ParsedPatch, past: Past) -> PatchVerdict:
    tree = state.tree
    outcomes = [judge_file(tree, diff, state.view(diff.old), past) for diff in parsed.files]
    hunks = tuple(hunk for outcome in outcomes for hunk in outcome.hunks)
    verdict = summary(hunks)
    if verdict is Verdict.PARTIAL:
        return PatchVerdict(patch_id, verdict, hunks, merged=_rest(parsed, outcomes))
    if not verdict.is_applicable:
        return PatchVerdict(patch_id, verdict, hunks)
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
    made = PatchVerdict(patch_id, verdict, hunks, result=result, executable=frozenset(executable))
    return _refuse_repeatable(made, parsed)


def _rest(parsed: ParsedPatch, outcomes: Sequence[Outcome]) -> dict[str, bytes | None]:
    """The files with those hunks that upstream does not have; of changed files only."""
    rest: dict[str, bytes | None] = {}
    for diff, outcome in zip(parsed.files, outcomes, strict=True):
        if all(hunk.verdict is Verdict.MERGED for hunk in outcome.hunks):
            continue
        if diff.old is not None:
            rest[diff.old] = None
        if diff.new is not None and outcome.rest is not None:
            rest[diff.new] = outcome.rest
    return rest


def _marked(verdict: PatchVerdict, locked: Mapping[str, str]) -> PatchVerdict:
    """Each hunk with whether the code of its symbol is still the locked one."""
    if not locked:
        return verdict
    hunks = tuple(
        replace(hunk, changed=locked[f"{hunk.path}::{hunk.symbol}"] != hunk.fingerprint)
        if hunk.fingerprint is not None and f"{hunk.path}::{hunk.symbol}" in locked
        else hunk
        for hunk in verdict.hunks
    )
    return replace(verdict, hunks=hunks)


def _refuse_repeatable(made: PatchVerdict, parsed: ParsedPatch) -> PatchVerdict:
    """Repeated lines can let a patch fit its own result once more; then nothing shows whether it is in already."""
    after = _After(made)
    for diff in parsed.files:
        if not summary(judge_file(after.tree, diff, after.view(diff.old)).hunks).is_applicable:
            return made
    detail = "the patch would apply a second time to its own result; give it more context"
    hunks = tuple(replace(hunk, verdict=Verdict.AMBIGUOUS, detail=detail) for hunk in made.hunks)
    return PatchVerdict(made.id, Verdict.AMBIGUOUS, hunks, detail=detail)


@dataclass(frozen=True)
class _After:
    """The few files of a patch after it, in front of the state that it was judged on."""

    made: PatchVerdict

    @property
    def tree(self) -> SourceTree:
        files = {path: content for path, content in self.made.result.items() if content is not None}
        return SourceTree(files, self.made.executable)

    def view(self, path: str | None) -> View | None:
        content = self.made.result.get(path) if path is not None else None
        return None if path is None or content is None else View(path, content)


def _with_merge(state: State, parsed: ParsedPatch, verdict: PatchVerdict, past: Past) -> PatchVerdict:
    """The verdict of a patch that does not apply, with what a three-way merge says of its conflicts."""
    hunks: list[HunkVerdict] = []
    made: dict[str, bytes | None] = dict(verdict.merged)
    everywhere = True
    for diff in parsed.files:
        mine = [hunk for hunk in verdict.hunks if hunk.path == diff.path]
        view, known = state.view(diff.old), past.files.get(diff.path)
        if view is None or known is None or not diff.hunks:
            everywhere = everywhere and all(hunk.verdict.is_applicable for hunk in mine)
            hunks += mine
            continue
        content = three_way(known.before.content, known.after.content, view.content)
        everywhere = everywhere and content is not None
        hunks += [_merged_hunk(view, diff, hunk, content, past) for hunk in mine]
        if content is not None and content != view.content and diff.new is not None:
            made |= {diff.old: None} if diff.is_rename and diff.old is not None else {}
            made[diff.new] = content
    found = summary(hunks)
    keep = made if everywhere or found is Verdict.PARTIAL else {}
    return replace(verdict, verdict=found, hunks=tuple(hunks), merged=keep if found in _REFRESHABLE else {})


_REFRESHABLE = (Verdict.MERGE_CLEAN, Verdict.PARTIAL)


def _merged_hunk(view: View, diff: FileDiff, hunk: HunkVerdict, content: bytes | None, past: Past) -> HunkVerdict:
    if content is None or hunk.verdict is Verdict.MERGED or hunk.verdict.is_applicable or not hunk.number:
        return hunk
    made = diff.hunks[hunk.number - 1]
    if content == view.content:
        there = merges_to_nothing(view, diff, hunk.number, made, past)
        if there is None or hunk.verdict is not Verdict.CONFLICT:
            return replace(hunk, detail=f"{hunk.detail}; a three-way merge changes nothing, which alone proves nothing")
        return replace(hunk, verdict=Verdict.MERGED, line=there.line, detail=there.signs)
    line = merged_line(view.content, content, made)
    after = View(view.path, content)
    here = innermost(after.symbols, line, line)
    known = past.files[diff.path]
    was = known.around(hunk.number, made)
    if (was is None) != (here is None) or (was is not None and here != after.named(was)):
        stands = here.name if here is not None else "no function or class"
        return replace(hunk, detail=f"{hunk.detail}; a three-way merge would put it into {stands}, line {line}")
    if after.context(line - 1).conditions != known.context(hunk.number, made.leading).conditions:
        return replace(
            hunk, detail=f"{hunk.detail}; a three-way merge would put it under other conditions, line {line}"
        )
    twice = stands_already(view, diff, hunk.number, made, past)
    if twice is not None:
        return replace(hunk, detail=f"{hunk.detail}; code that it adds stands in line {twice} already")
    if hunk.verdict is not Verdict.CONFLICT:
        return replace(hunk, detail=f"{hunk.detail}; a three-way merge would change line {line}")
    return replace(hunk, verdict=Verdict.MERGE_CLEAN, line=line)


def summary(hunks: Iterable[HunkVerdict]) -> Verdict:
    """The verdict of a patch from those of its hunks."""
    found = {hunk.verdict for hunk in hunks}
    if found == {Verdict.MERGED}:
        return Verdict.MERGED
    worst = next((v for v in WORST_FIRST if v in found), Verdict.CONFLICT)
    if Verdict.MERGED in found and worst.is_applicable:
        return Verdict.PARTIAL
    return worst
