"""The files as the patches so far leave them, each read once: one mutable state for a series, nothing is copied."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from graft.patching.model import ParsedPatch, PatchVerdict, SourceTree
from graft.patching.view import View


class State:
    """A tree that patches are applied to in memory; the tree that it began with is not changed."""

    def __init__(self, tree: SourceTree) -> None:
        self._files = dict(tree.files)
        self._executable = set(tree.executable)
        self._names = _Names(tree.all_names)
        self._views: dict[str, View] = {}

    @property
    def tree(self) -> SourceTree:
        """The state as a tree; a window, not a copy."""
        return SourceTree(self._files, frozenset(self._executable) if self._executable else frozenset(), self._names)

    def view(self, path: str | None) -> View | None:
        """One file, read; None when there is none."""
        content = self._files.get(path) if path is not None else None
        if path is None or content is None:
            return None
        known = self._views.get(path)
        if known is None or known.content is not content:
            known = self._views[path] = View(path, content)
        return known

    def take(self, verdict: PatchVerdict) -> None:
        """Make a patch's result the new state."""
        for path, content in verdict.result.items():
            self._views.pop(path, None)
            if content is None:
                self._files.pop(path, None)
                self._names.discard(path)
            else:
                self._files[path] = content
                self._names.add(path)
            self._executable.discard(path)
        self._executable |= verdict.executable & verdict.result.keys()

    def forget(self, parsed: ParsedPatch) -> None:
        """Drop what was read of the patch's files: with many patches, few of them touch the same ones."""
        for path in parsed.paths:
            self._views.pop(path, None)

    def is_equal(self, other: State, paths: Collection[str]) -> bool:
        """Whether both hold the same files under `paths`."""
        return all(
            self._files.get(p) == other._files.get(p)
            and (p in self._executable) == (p in other._executable)
            and (p in self._names) == (p in other._names)
            for p in paths
        )


class _Names(Collection[str]):
    """All paths of a component: those of the tree, without what patches deleted and with what they added."""

    def __init__(self, names: Collection[str]) -> None:
        self._given = frozenset(names)
        self._added: set[str] = set()
        self._gone: set[str] = set()

    def __contains__(self, name: object) -> bool:
        return name in self._added or (name in self._given and name not in self._gone)

    def __iter__(self) -> Iterator[str]:
        yield from (name for name in self._given if name not in self._gone and name not in self._added)
        yield from self._added

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def add(self, name: str) -> None:
        self._added.add(name)
        self._gone.discard(name)

    def discard(self, name: str) -> None:
        self._added.discard(name)
        self._gone.add(name)
