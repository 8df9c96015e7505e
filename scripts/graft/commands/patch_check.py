"""`graft patch check`: a whole series against another version. Nothing is written."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.version import InvalidVersion, Version

from graft.commands.patch_pins import series_of
from graft.commands.patch_sources import fetched_tree, known_tree
from graft.commands.session import Session, component_file
from graft.console import printable
from graft.errors import BadInput, FetchFailed, GraftError, LockStale, PatchMismatch
from graft.lock import Lock, load_lock
from graft.patching import (
    SourceTree,
    Verdict,
    check_safety,
    folder_tree,
    judge,
    lock_entry,
    locked_symbols,
    one_target,
    parse,
)
from graft.patching.clone import at_commit
from graft.patching.commute import closure, overlaps
from graft.patching.commute import commute as judge_order
from graft.patching.ends import End, InHistory, end_of, evidence_files
from graft.patching.hints import cure
from graft.patching.model import HunkVerdict, Malformed, PatchVerdict
from graft.patching.sources import touched_paths
from graft.patchset import Patch, PatchSet
from graft.recipe import Recipe, load_recipe
from graft.report import HunkReport, PatchReport, SeriesReport, markdown, sarif, text

COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class Against:
    """What a series is judged against. name: for people; version: None when it is not known."""

    name: str
    version: str | None
    tree: SourceTree
    in_history: InHistory = lambda commit: None


def check(
    session: Session,
    component: str,
    *,
    against: str,
    clone: Path | None = None,
    commute: bool = False,
    report: str = "table",
) -> None:
    """One verdict per patch and hunk. Raises PatchMismatch unless every patch can be built; BadInput, FetchFailed.

    against: a version of the index, a commit of `clone` (40 hex digits), or a folder with the source.
    report:  table, md or sarif: what is printed on stdout.
    """
    for name, value in (("COMPONENT", component), ("AGAINST", against)):
        if not value:
            raise BadInput("it is empty", where=name, cure="make patch-check COMPONENT=vllm AGAINST=0.33.0")
    recipe = load_recipe(session.paths, session.project, session.recipe)
    found = series_of(session, component)
    if component not in recipe.components:
        where = session.paths.relative(session.paths.recipe(recipe.recipe))
        raise BadInput(f"recipe {recipe.recipe} has no component {component}", where=where, cure="choose: --recipe")
    patches = found.select(recipe.patches_of(component)) or found.patches
    for patch in patches:
        check_safety(patch.data, patch.record, where=session.paths.relative(patch.path))
    locked = _lock(session)
    target = _against(session, recipe, found, patches, against, clone)
    pinned = _pinned(session, recipe, locked, component, patches)
    made = judge_series(session, recipe, component, patches, locked, target, pinned)
    if commute:
        made = replace(made, notes=(*made.notes, *judge_order(target.tree, patches).undeclared))
    _print(session, made, report)
    refused = [patch for patch in made.patches if not patch.buildable]
    if refused:
        raise PatchMismatch(
            f"{len(refused)} of {len(made.patches)} patches cannot be built with {component} {target.name}",
            where=refused[0].file,
            cure="\n".join(dict.fromkeys(patch.cure for patch in refused if patch.cure)) or None,
        )


def judge_series(
    session: Session,
    recipe: Recipe,
    component: str,
    patches: Sequence[Patch],
    locked: Lock | None,
    target: Against,
    pinned: SourceTree | None,
) -> SeriesReport:
    """The report of a series against something. pinned: the files of the version that the patches were made for."""
    entries = locked.patches.get(component, ()) if locked is not None else ()
    symbols = locked_symbols(patches, entries)
    judged = _judged(recipe, component, patches, symbols, target, pinned)
    reports = []
    for patch in patches:
        verdict, refusal = judged.verdicts[patch.id], judged.refusals.get(patch.id, "")
        end = end_of(patch.record.ends, target.version, target.tree, pinned, target.in_history)
        when = "" if patch.id in judged.meant else _range(patch, judged.version, recipe)
        file = session.paths.relative(patch.path)
        good = verdict.verdict.is_applicable and not when and not refusal
        reports.append(
            PatchReport(
                f"{component}/{patch.id}",
                file,
                patch.record.title,
                verdict.verdict.value,
                good,
                end.reached,
                end.why,
                patch.record.until,
                when,
                "" if good else _cure(f"{component}/{patch.id}", file, verdict, end, refusal),
                refusal or verdict.detail,
                hunk_reports(patch, verdict),
            )
        )
    notes = [
        f"{' and '.join(overlap.ids)} both change {overlap.where}: the order of the series decides"
        for overlap in overlaps(list(judged.verdicts.values()))
    ]
    version = recipe.components[component].version
    return SeriesReport(component, version, target.name, tuple(reports), tuple(notes))


@dataclass(frozen=True)
class _Judged:
    """version: the one that `when` was asked about. meant: ids of patches that some architecture applies."""

    version: str
    meant: frozenset[str]
    verdicts: Mapping[str, PatchVerdict]
    refusals: Mapping[str, str]


def _judged(
    recipe: Recipe,
    component: str,
    patches: Sequence[Patch],
    symbols: Mapping[str, Mapping[str, str]],
    target: Against,
    pinned: SourceTree | None,
) -> _Judged:
    """Those that go together on an architecture as a series; those that are meant for none, each for itself."""
    pin = recipe.components[component]
    # Of a folder or a commit the version is not known: what is meant for the pin is what would be applied.
    version = target.version or pin.version
    groups: dict[tuple[str, ...], list[Patch]] = {}
    for arch in filter(pin.on, recipe.arches):
        here = [patch for patch in patches if patch.record.when.holds(version, arch)]
        groups.setdefault(tuple(patch.id for patch in here), here)
    verdicts: dict[str, PatchVerdict] = {}
    refusals: dict[str, str] = {}
    for here in groups.values():
        found = judge(target.tree, here, symbols, pinned)
        refusals |= _confirm(component, target.tree, here, found)
        for verdict in found:
            # The worst of its architectures.
            if verdict.id not in verdicts or not verdict.verdict.is_applicable:
                verdicts[verdict.id] = verdict
    meant = frozenset(verdicts)
    for index, patch in enumerate(patches):
        if patch.id not in meant:
            alone = [*closure(patch, patches[:index]), patch]
            verdicts[patch.id] = judge(target.tree, alone, symbols, pinned)[-1]
    return _Judged(version, meant, {patch.id: verdicts[patch.id] for patch in patches}, refusals)


def _range(patch: Patch, version: str, recipe: Recipe) -> str:
    when = patch.record.when
    meant = ", ".join([when.version or "any version", *(when.arches or ())])
    return f"its `when` is {meant}; it is applied neither with {version} nor on any of {', '.join(recipe.arches)}"


def _cure(name: str, file: str, verdict: PatchVerdict, end: End, refusal: str) -> str:
    if end.reached and not refusal:
        because = "upstream has it" if verdict.verdict is Verdict.MERGED else end.why
        return f'it has served: graft patch drop {name} --because "{because}", then make lock'
    return refusal or cure(verdict.verdict, name, file) or "widen its `when`, then make lock"


def hunk_reports(patch: Patch, verdict: PatchVerdict) -> tuple[HunkReport, ...]:
    """The hunks of a verdict, with the lines of the patch file that they stand at."""
    lines: dict[tuple[str, int], int] = {}
    try:
        for diff in parse(patch.data).files:
            lines[diff.path, 0] = diff.at_line
            lines |= {(diff.path, number): hunk.at_line for number, hunk in enumerate(diff.hunks, 1)}
    except Malformed:
        # Then there are no hunks either.
        pass
    return tuple(_hunk_report(hunk, lines.get((hunk.path, hunk.number), 1)) for hunk in verdict.hunks)


def _hunk_report(hunk: HunkVerdict, at_line: int) -> HunkReport:
    return HunkReport(
        hunk.path,
        hunk.number,
        hunk.verdict.value,
        hunk.line,
        hunk.offset,
        printable(hunk.symbol) if hunk.symbol is not None else None,
        hunk.changed,
        printable(hunk.detail),
        printable(hunk.upstream),
        at_line,
    )


def _confirm(
    component: str, tree: SourceTree, patches: Sequence[Patch], verdicts: Sequence[PatchVerdict]
) -> dict[str, str]:
    """git applies those that were judged applicable; patch id -> what it refused. Nothing is believed without it."""
    sound = [p for p, v in zip(patches, verdicts, strict=True) if v.verdict.is_applicable]
    if not sound:
        return {}
    one_target(component, sound)
    try:
        lock_entry(component, tree, sound)
    except PatchMismatch as problem:
        culprit = next((patch for patch in sound if str(patch.path) == problem.where), sound[0])
        return {culprit.id: f"git refuses it: {problem.what}; make {culprit.path.name} again with `git diff`"}
    return {}


def _against(
    session: Session, recipe: Recipe, found: PatchSet, patches: Sequence[Patch], against: str, clone: Path | None
) -> Against:
    paths = {*touched_paths(patches), *evidence_files(patches)}
    if clone is not None:
        if not COMMIT.fullmatch(against):
            raise BadInput(
                f"{against!r} is no commit id", where="--against", cure=f"git -C {clone} rev-parse {against}"
            )
        asked = {p.record.ends.commit for p in patches if p.record.ends and p.record.ends.commit}
        read = at_commit(clone, against, paths, asked)
        return Against(against[:12], None, read.tree, lambda commit: read.history.get(commit))
    if COMMIT.fullmatch(against):
        raise BadInput("a commit needs the clone that has it", where="--against", cure="add --from CLONE")
    version = _version(against)
    if version is None or "/" in against:
        folder = _folder(against)
        if folder is None:
            raise BadInput(
                f"{against!r} is no version and no folder",
                where="--against",
                cure="a version of the index, a 40-digit commit with --from CLONE, or a folder with the source",
            )
        return Against(folder.name, None, folder_tree(folder, paths))
    return _of_index(session, recipe, found, patches, version)


def _folder(text: str) -> Path | None:
    try:
        folder = Path(text).resolve()
        return folder if folder.is_dir() else None
    except (OSError, ValueError, RuntimeError):
        # A NUL, a loop of links, a name that is too long.
        return None


def _version(text: str) -> str | None:
    try:
        return str(Version(text))
    except InvalidVersion:
        return None


def _of_index(session: Session, recipe: Recipe, found: PatchSet, patches: Sequence[Patch], version: str) -> Against:
    from graft import index
    from graft.resolve import file_of_version

    component = found.component
    target = one_target(component, patches)
    paths = {*touched_paths(patches), *evidence_files(patches)}
    locked = _lock(session)
    pinned = recipe.components[component].version
    if locked is not None and Version(version) == Version(pinned):
        tree = known_tree(session, locked, recipe, component, target, paths)
        if tree is not None:
            return Against(version, version, tree)
    if session.offline:
        raise FetchFailed(f"offline, and {component} {version} is not at hand", cure="run it without OFFLINE=1")
    with session.console.step(f"find {component} {version} on the index"):
        pin = file_of_version(
            session.project, recipe, component, version, index.discover(session.project.index), os.environ
        )
    return Against(version, version, fetched_tree(session, recipe, pin, target, paths))


def _pinned(
    session: Session, recipe: Recipe, locked: Lock | None, component: str, patches: Sequence[Patch]
) -> SourceTree | None:
    """The files that the patches were made for: with them more can be said. None, with a word, when it cannot be."""
    if locked is None:
        session.console.warn("there is no lock: verdicts come without three-way merges and without what changed")
        return None
    paths = {*touched_paths(patches), *evidence_files(patches)}
    target = one_target(component, patches)
    try:
        found = known_tree(session, locked, recipe, component, target, paths)
        if found is not None or session.offline:
            return found
        return fetched_tree(session, recipe, component_file(locked, recipe, component), target, paths)
    except (FetchFailed, StopIteration) as problem:
        said = problem.what if isinstance(problem, GraftError) else f"the lock has no {component}"
        session.console.warn(f"the pinned version is not at hand ({said}): less can be said")
        return None


def _lock(session: Session) -> Lock | None:
    try:
        return load_lock(session.paths, session.recipe)
    except LockStale:
        return None


def _print(session: Session, made: SeriesReport, report: str) -> None:
    if report == "sarif":
        found = sarif([made])
        session.console.result(json.dumps(found, indent=1), found)
    elif report == "md":
        session.console.result(markdown(made), made.as_dict())
    else:
        session.console.result(text(made), made.as_dict())
