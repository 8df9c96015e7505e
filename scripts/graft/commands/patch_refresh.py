"""`graft patch refresh`: patch files in their canonical form against the version that the recipe pins."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from graft.commands.patch_pins import Pinned, locked_tree, pinned, pristine, reference
from graft.commands.session import Session
from graft.errors import BadInput, PatchMismatch
from graft.patching import Malformed, PatchVerdict, SourceTree, Verdict, check_safety, judge, lock_entry, parse, table
from graft.patching.canonical import Change, advance, changed, message_of, patch_files, split_patch
from graft.patching.entry import refuse
from graft.patching.swap import Contents, commit_all, editing
from graft.patchset import Patch


def refresh(session: Session, patches: Sequence[str], *, merge: bool = False) -> None:
    """Write patches anew as git writes them against the pinned files. All of them, or none.

    merge: where a patch does not apply as it is, take what a clean three-way merge leaves of it.
    Raises PatchMismatch with every verdict when one of them does not apply, or when another patch of its series would
    no longer.
    """
    wanted: dict[str, list[str]] = {}
    for component, patch_id in map(reference, patches):
        wanted.setdefault(component, []).append(patch_id)
    with editing(session.paths, session.console.say) as edit:
        # Before anything is judged or downloaded: who edits a file meanwhile keeps it.
        old = {component: edit.contents(component) for component in wanted}
        made = {component: refreshed(session, component, ids, merge=merge) for component, ids in wanted.items()}
        new = {component: with_patches(old[component], files) for component, files in made.items() if files}
        commit_all([edit.prepare(component, old[component], contents) for component, contents in new.items()])
    changes = [f"{component}/{name}" for component, files in made.items() for name in files]
    for name in changes:
        session.console.say(f"  {name}: written anew")
    if changes:
        session.console.say(f"next: make lock RECIPE={session.recipe}")
    for name in patches:
        if name not in changes:
            session.console.say(f"  {name}: has its canonical form already")
    session.console.result(", ".join(changes) or "nothing to do", {"changed": changes, "patches": list(patches)})


def with_patches(old: Contents, files: Mapping[str, bytes]) -> Contents:
    """A component's folder with other bytes for some of its patches."""
    names = {f"{patch_id}.patch": data for patch_id, data in files.items()}
    new = {name: (mode, names.get(name, content)) for name, (mode, content) in old.items()}
    return new | {name: (0o644, data) for name, data in names.items() if name not in old}


def refreshed(session: Session, component: str, ids: Sequence[str], *, merge: bool) -> dict[str, bytes]:
    """The patches that change, with their new bytes. Raises PatchMismatch and BadInput."""
    use = pinned(session, component, ids)
    for patch in use.patches:
        check_safety(patch.data, patch.record, where=str(patch.path))
    tree = pristine(session, use)
    bases = locked_tree(session, use) if merge else None
    made: dict[str, bytes] = {}
    failed: dict[str, PatchVerdict] = {}
    for group in use.groups:
        _refresh_group(_Work(use, frozenset(ids), tree, bases, merge), group, made, failed)
    if failed:
        wrong = [patch for patch in use.patches if patch.id in failed]
        refuse(component, use.version, wrong, [failed[patch.id] for patch in wrong])
    check_series(use, tree, made, ids)
    return {name: data for name, data in made.items() if data != _data(use, name)}


def _data(use: Pinned, patch_id: str) -> bytes:
    return next(patch.data for patch in use.patches if patch.id == patch_id)


@dataclass(frozen=True)
class _Work:
    """bases: the files of the locked version, for a three-way merge; None without one."""

    use: Pinned
    ids: Collection[str]
    tree: SourceTree
    bases: SourceTree | None
    merge: bool


def _refresh_group(
    work: _Work, group: Sequence[Patch], made: dict[str, bytes], failed: dict[str, PatchVerdict]
) -> None:
    current, bases = work.tree, work.bases
    changes: list[Change] = []
    for patch in group:
        verdict = _judged(work.use, current, patch, bases)
        bases = _base_after(bases, patch)
        after = advance(current, verdict) if verdict.verdict.is_applicable else None
        if after is None and work.merge and patch.id in work.ids:
            after = merged(current, verdict)
        if patch.id in work.ids and patch.id not in made:
            if after is None:
                failed[patch.id] = verdict
            else:
                changes.append(Change(patch, message_of(split_patch(patch.data)[0]), current, after))
        current = after if after is not None else current
    for change, data in zip(changes, patch_files(changes), strict=True):
        if not data:
            raise _nothing_left(change.patch)
        made[change.patch.id] = data


def _judged(use: Pinned, tree: SourceTree, patch: Patch, bases: SourceTree | None) -> PatchVerdict:
    symbols = {patch.id: use.symbols(patch.id)}
    made = judge(tree, [patch], symbols) if bases is None else judge(tree, [patch], symbols, bases=bases)
    return made[0]


def _base_after(bases: SourceTree | None, patch: Patch) -> SourceTree | None:
    """The locked version's files after a patch, for the merge of the next one."""
    if bases is None:
        return None
    verdict = judge(bases, [patch])[0]
    return advance(bases, verdict) if verdict.verdict.is_applicable else bases


def _nothing_left(patch: Patch) -> PatchMismatch:
    return PatchMismatch(
        "nothing is left of the patch: the pinned version has all of it",
        where=str(patch.path),
        cure=f"graft patch drop {patch.path.parent.name}/{patch.id} --because ...",
    )


def merged(tree: SourceTree, verdict: PatchVerdict) -> SourceTree | None:
    """The tree after what a clean merge leaves of a patch; None when it is not clean."""
    if not verdict.merged or verdict.verdict not in (Verdict.MERGE_CLEAN, Verdict.PARTIAL):
        return None
    return changed(tree, verdict.merged, verdict.executable or tree.executable)


def check_series(use: Pinned, tree: SourceTree, made: Mapping[str, bytes], ids: Collection[str]) -> None:
    """That the series holds with new bytes for some patches: what applied before and what was made anew applies.

    Raises PatchMismatch and BadInput.
    """
    for group in use.groups:
        anew = [replace(patch, data=made.get(patch.id, patch.data)) for patch in group]
        for patch in anew:
            check_safety(patch.data, patch.record, where=str(patch.path))
            if patch.id in made:
                _check_parsed(patch)
        before = {v.id for v in judge(tree, group) if v.verdict.is_applicable}
        verdicts = judge(tree, anew)
        lost = [v for v in verdicts if not v.verdict.is_applicable and (v.id in before or v.id in ids)]
        if lost:
            names = ", ".join(f"{use.component}/{v.id}" for v in lost)
            raise PatchMismatch(
                f"{names} would no longer apply to {use.component} {use.version}; nothing was changed\n"
                + table(use.component, verdicts),
                cure=f"refresh them together: graft patch refresh {' '.join(names.split(', '))} ...",
            )
        sound = [patch for patch, v in zip(anew, verdicts, strict=True) if v.verdict.is_applicable]
        if sound:
            lock_entry(use.component, tree, sound)


def _check_parsed(patch: Patch) -> None:
    try:
        parse(patch.data)
    except Malformed as problem:
        raise BadInput(
            f"the patch that was made cannot be read back: {problem}",
            where=str(patch.path),
            cure="its message may hold something that looks like a diff: indent it",
        ) from None
