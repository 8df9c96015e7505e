"""Whether a patch has served: what `ends` of its record says, judged against a version and its files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from graft.patching.model import SourceTree
from graft.patching.squeeze import squeezed
from graft.patchset import Ends, Patch

#: Whether a commit is in the history of what is judged; None: there is no history at hand.
InHistory = Callable[[str], bool | None]


@dataclass(frozen=True)
class End:
    """reached: None when it cannot be said. why: in words."""

    reached: bool | None
    why: str


def end_of(
    ends: Ends | None,
    version: str | None,
    tree: SourceTree,
    pinned: SourceTree | None = None,
    in_history: InHistory = lambda commit: None,
) -> End:
    """Whether the end of a patch is reached in a version (None: not known) with the files of `tree`.

    pinned: the files of the version that the lock holds; a text that they lack proves nothing elsewhere.
    What the files say wins over what a version number promises.
    """
    if ends is None:
        return End(None, "the record has no `ends` that could be judged")
    return _by_files(ends, tree, pinned) or _by_commit(ends, in_history) or _by_version(ends, version)


def evidence_files(patches: Iterable[Patch]) -> set[str]:
    """The files that the ends of the patches look into."""
    return {gone.file for patch in patches if patch.record.ends for gone in patch.record.ends.gone}


def gone_texts(ends: Ends | None) -> dict[str, tuple[str, ...]]:
    """path -> the texts that a patch works around."""
    found: dict[str, list[str]] = {}
    for gone in ends.gone if ends else ():
        found.setdefault(gone.file, []).append(gone.text)
    return {path: tuple(texts) for path, texts in found.items()}


def _by_files(ends: Ends, tree: SourceTree, pinned: SourceTree | None) -> End | None:
    still: list[str] = []
    gone: list[str] = []
    unsaid = False
    for item in ends.gone:
        content = tree.files.get(item.file)
        before = pinned.files.get(item.file) if pinned is not None else None
        text = squeezed(item.text)
        if content is None or (before is not None and text not in squeezed(before)):
            # A file that is gone may have moved with its text; a text that never stood there cannot go.
            unsaid |= content is None
            continue
        (still if text in squeezed(content) else gone).append(item.file)
    if still:
        return End(False, f"{still[0]} still holds what it works around")
    if gone and not unsaid:
        return End(True, f"{gone[0]} no longer holds what it works around")
    return None


def _by_commit(ends: Ends, in_history: InHistory) -> End | None:
    there = in_history(ends.commit) if ends.commit is not None else None
    if there is None:
        return None
    return End(there, f"upstream's commit {ends.commit} is {'' if there else 'not '}in its history")


def _by_version(ends: Ends, version: str | None) -> End:
    if ends.version is None:
        return End(None, "its files and history do not say")
    if version is None:
        return End(None, f"it ends with {ends.version}; the version of these files is not known")
    try:
        reached = Version(version) >= Version(ends.version)
    except InvalidVersion:
        return End(None, f"it ends with {ends.version}; {version} is no version that can be compared")
    return End(reached, f"it ends with {ends.version}, this is {version}")
