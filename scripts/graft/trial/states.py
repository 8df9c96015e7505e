"""The files without a patch and with it: judged, applied by git on the host, and the bytes that came out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from graft.errors import PatchMismatch
from graft.patching import SourceTree, judge, lock_entry
from graft.patching.entry import blob_id
from graft.patchset import Patch, PatchSet
from graft.trial.containers import Put

Place = Callable[[str], str | None]


def after_closure(found: PatchSet, patch: Patch) -> tuple[Patch, ...]:
    """The patches that a patch comes after, and those that they come after, in the order of the series."""
    by_id = {other.id: other for other in found.patches}
    wanted: set[str] = set()
    waiting = list(patch.record.after)
    while waiting:
        name = waiting.pop()
        if name not in wanted:
            wanted.add(name)
            waiting += by_id[name].record.after
    return tuple(other for other in found.patches if other.id in wanted)


def patched(component: str, tree: SourceTree, patches: Sequence[Patch]) -> dict[str, Put]:
    """The files that patches touch as they leave them, by their path in the source.

    Raises BadInput for a patch that no engine may see, PatchMismatch for one that does not apply.
    """
    if not patches:
        return {}
    entry = lock_entry(component, tree, patches)
    made: dict[str, Put] = {}
    for verdict in judge(tree, patches):
        made |= {path: Put(data, path in verdict.executable) for path, data in verdict.result.items()}
    # The judgement makes the bytes, git's blob ids prove them.
    wanted = {path: touched.after for pin in entry.patches for path, touched in pin.files.items()}
    found = {path: None if put.data is None else blob_id(put.data) for path, put in made.items()}
    if found != wanted:
        odd = sorted(path for path in found.keys() | wanted.keys() if found.get(path) != wanted.get(path))
        raise PatchMismatch(f"git and the judgement disagree about {', '.join(odd)}", where=f"patches/{component}")
    return made


def pristine(tree: SourceTree, paths: Sequence[str]) -> dict[str, Put]:
    """The files as the component brings them; one that it does not bring is none."""
    return {path: Put(tree.files.get(path), path in tree.executable) for path in paths}


def installed(files: Mapping[str, Put], place: Place) -> dict[str, Put]:
    """The same below site-packages, without those that are not installed."""
    return {where: put for path, put in files.items() if (where := place(path)) is not None}


def below(site: str, files: Mapping[str, Put]) -> dict[str, Put]:
    """The same with absolute paths."""
    return {f"{site}/{path}": put for path, put in files.items()}
