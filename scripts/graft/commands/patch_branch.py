"""`graft patch export` and `import-branch`: a series as a git branch, and back."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from graft.commands.patch_pins import Pinned, check_component, for_arch, pinned, pristine
from graft.commands.patch_refresh import check_series, with_patches
from graft.commands.session import Session
from graft.errors import BadInput
from graft.patching import SourceTree, check_safety, judge
from graft.patching.branch import Branch, BranchPatch, check_branch, read_branch, with_trailer, write_branch
from graft.patching.canonical import advance, chain, files_of, message_of, patch_files, split_patch, tree_of
from graft.patching.entry import refuse
from graft.patching.repository import Files, NewCommit
from graft.patching.series_text import reordered
from graft.patching.swap import editing
from graft.patchset import Patch
from graft.recipe import select_arch

AUTHOR_MAIL = "patch@invalid"


def export_branch(session: Session, component: str, repository: Path, branch: str | None = None) -> None:
    """Make a repository: the pristine files, then one commit for each of the recipe's patches on this architecture.

    Raises PatchMismatch when one does not apply, BadInput when one is not in its canonical form: its bytes would not
    come back.
    """
    name = branch or f"graft/{component}"
    use = pinned(session, component)
    check_branch(name)
    where = session.paths.relative(session.paths.recipe(use.recipe.recipe))
    select_arch(use.recipe, session.project, session.arch, where)
    patches = for_arch(session, use)
    for patch in patches:
        check_safety(patch.data, patch.record, where=str(patch.path))
    tree = pristine(session, use)
    verdicts = judge(tree, patches)
    refuse(component, use.version, patches, verdicts)
    states = [tree]
    for verdict in verdicts:
        states.append(advance(states[-1], verdict))
    _refuse_other_forms(use, patches, states)
    files = [files_of(state) for state in states]
    commits = [_commit(component, patch, state) for patch, state in zip(patches, files[1:], strict=True)]
    made = write_branch(repository.absolute(), name, [_base(session, use, files[0]), *commits])
    session.console.say(f"{name}: the files of {component} {use.version}, and {len(patches)} patches")
    back = ["graft", "patch", "import-branch", component, str(repository), *(["--branch", branch] if branch else [])]
    session.console.say(f"back with: {shlex.join(back)}")
    ids = {patch.id: commit for patch, commit in zip(patches, made[1:], strict=True)}
    data = {"repository": str(repository), "branch": name, "base": made[0], "commits": ids}
    session.console.result(str(repository), data)


def _refuse_other_forms(use: Pinned, patches: Sequence[Patch], states: Sequence[SourceTree]) -> None:
    messages = [message_of(split_patch(patch.data)[0]) for patch in patches]
    made = patch_files(chain(patches, messages, states))
    for patch, message, data in zip(patches, messages, made, strict=True):
        if data != patch.data or b"\0" in message:
            raise BadInput(
                f"{use.component}/{patch.id} is not in its canonical form against {use.component} {use.version}: "
                "its bytes would not come back from a commit",
                where=str(patch.path),
                cure=f"graft patch refresh {use.component}/{patch.id}",
            )


def _base(session: Session, use: Pinned, files: Files) -> NewCommit:
    message = (
        f"{use.component} {use.version}\n\n"
        f"The files that the patches touch, as the recipe's version has them.\n\n"
        f"Graft-Recipe: {use.recipe.recipe}\nGraft-Arch: {session.arch}\n"
    )
    return NewCommit(files, message.encode())


def _commit(component: str, patch: Patch, files: Files) -> NewCommit:
    message = with_trailer(message_of(split_patch(patch.data)[0]), component, patch.id)
    author = "".join(c for c in patch.record.author if c not in "<>").strip() or "unknown"
    return NewCommit(files, message, f"{author} <{AUTHOR_MAIL}>")


def import_branch(session: Session, component: str, repository: Path, branch: str | None = None) -> None:
    """Take the commits of an exported branch back: each patch's file, and the order of the series.

    Records and tests stay as they are. Raises BadInput for commits that are no patch of the series, for patches that
    have no commit, and for a base that is not the pinned version; PatchMismatch when the series would not apply.
    """
    name = branch or f"graft/{component}"
    check_component(component)
    with editing(session.paths, session.console.say) as edit:
        # Before anything is judged or downloaded: who edits a file meanwhile keeps it.
        old = edit.contents(component)
        use = pinned(session, component)
        expected = for_arch(session, use)
        read = read_branch(repository, name)
        where = f"{repository} {name}"
        _check_commits(component, read.patches, [patch.id for patch in expected], where)
        tree = pristine(session, use, {path for state in _states(read) for path in state})
        _check_base(use, read, tree, where)
        made = _made(use, read, tree)
        _refuse_empty(read.patches, made, component, where)
        order = _order([patch.id for patch in use.found.patches], [patch.id for patch in read.patches])
        check_series(_ordered(use, order), tree, made, made)
        changed = {patch.id: made[patch.id] for patch in expected if made[patch.id] != patch.data}
        mode, series = old["series.yaml"]
        text = reordered(series, use.found.folder / "series.yaml", order)
        if changed or text != series:
            edit.replace(component, old, {**with_patches(old, changed), "series.yaml": (mode, text)})
    if changed or text != series:
        session.console.say(f"next: make lock RECIPE={session.recipe}")
    said = ", ".join(f"{component}/{patch_id}" for patch_id in changed)
    data = {"changed": [f"{component}/{patch_id}" for patch_id in changed], "reordered": text != series}
    session.console.result(said or ("the order" if text != series else "nothing to do"), data)


def _made(use: Pinned, read: Branch, tree: SourceTree) -> dict[str, bytes]:
    """The patch files of the commits."""
    known = {patch.id: patch for patch in use.patches}
    states = [replace(tree_of(state), names=tree.names) for state in _states(read)]
    messages = [commit.message for commit in read.patches]
    files = patch_files(chain([known[commit.id] for commit in read.patches], messages, states))
    return {commit.id: data for commit, data in zip(read.patches, files, strict=True)}


def _states(read: Branch) -> list[Files]:
    return [read.base, *(patch.after for patch in read.patches)]


def _check_commits(component: str, commits: Sequence[BranchPatch], expected: Sequence[str], where: str) -> None:
    """One commit for each patch, and none besides."""
    seen: set[str] = set()
    for commit in commits:
        told = f"commit {commit.commit[:12]} ({commit.subject[:60]})"
        if not commit.id:
            raise BadInput(
                f"{told} names no patch",
                where=where,
                cure=f"a patch that is new needs a record: graft patch import URL --head {commit.commit} "
                f"--component {component} --from REPO; one that was split or renamed needs its line Graft-Patch again",
            )
        if commit.component != component or commit.id not in expected:
            raise BadInput(
                f"{told} is {commit.component}/{commit.id}, which the recipe does not apply here",
                where=where,
                cure=f"the patches are: {', '.join(f'{component}/{name}' for name in expected)}",
            )
        if commit.id in seen:
            raise BadInput(f"two commits are {component}/{commit.id}", where=where, cure="squash them into one")
        seen.add(commit.id)
    missing = [name for name in expected if name not in seen]
    if missing:
        raise BadInput(
            f"no commit is {component}/{missing[0]}",
            where=where,
            cure=f"to take it out of the series: graft patch drop {component}/{missing[0]} --because ...; "
            "and export the branch again",
        )


def _check_base(use: Pinned, read: Branch, tree: SourceTree, where: str) -> None:
    """The first commit holds pristine files alone, and what a commit adds is not a file that it lacks."""
    pinned_files = files_of(tree)
    other = [path for path, content in read.base.items() if pinned_files.get(path) != content]
    if other:
        raise BadInput(
            f"the first commit has another {other[0]} than {use.component} {use.version}",
            where=where,
            cure=f"export it again: graft patch export {use.component} REPO",
        )
    lacking = sorted({path for state in _states(read) for path in state if path in tree.files} - read.base.keys())
    if lacking:
        raise BadInput(
            f"{lacking[0]} exists in {use.component} {use.version}, but the first commit does not have it",
            where=where,
            cure="put the pristine file into the first commit as well",
        )


def _refuse_empty(commits: Sequence[BranchPatch], made: Mapping[str, bytes], component: str, where: str) -> None:
    for commit in commits:
        if not made[commit.id]:
            raise BadInput(
                f"commit {commit.commit[:12]} changes nothing",
                where=where,
                cure=f"graft patch drop {component}/{commit.id} --because ...",
            )


def _order(series: Sequence[str], branch: Sequence[str]) -> list[str]:
    """The series in the branch's order; patches that are not in the branch keep their places."""
    coming = iter(branch)
    return [next(coming) if name in branch else name for name in series]


def _ordered(use: Pinned, order: Sequence[str]) -> Pinned:
    def sort(patches: Sequence[Patch]) -> tuple[Patch, ...]:
        return tuple(sorted(patches, key=lambda patch: order.index(patch.id)))

    found = replace(use.found, patches=sort(use.found.patches))
    return replace(use, found=found, groups=tuple(sort(group) for group in use.groups))
