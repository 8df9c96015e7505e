"""Vocabulary of the patch engine: parsed patches, verdicts, and the tree that patches are judged against."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Verdict(StrEnum):
    """What can be said about a hunk or a patch. Closed: nothing else exists."""

    EXACT = "exact"
    OFFSET = "offset"
    AMBIGUOUS = "ambiguous"
    RELOCATED = "relocated"
    MERGE_CLEAN = "merge-clean"
    CONFLICT = "conflict"
    MERGED = "merged"
    PARTIAL = "partial"
    GONE = "gone"
    UNUSED = "unused"
    MALFORMED = "malformed"

    @property
    def is_applicable(self) -> bool:
        """Whether a patch may be locked with it."""
        return self in (Verdict.EXACT, Verdict.OFFSET)


class Malformed(ValueError):
    """The bytes are no patch that Graft accepts; `line` counts from 1."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line
        self.reason = reason


@dataclass(frozen=True)
class Hunk:
    """One hunk. Lines keep their line ends; a last line without one has none.

    old_start: line of the pre-image, from 1 (0: the file is empty or new).
    heading:   what stands after the second @@.
    at_line:   line of the hunk's header in the patch file, from 1.
    leading, trailing: number of context lines before the first and after the last change.
    """

    old_start: int
    before: tuple[bytes, ...]
    after: tuple[bytes, ...]
    added: tuple[tuple[bytes, ...], ...]
    removed: tuple[tuple[bytes, ...], ...]
    heading: str
    at_line: int
    leading: int
    trailing: int

    @property
    def is_at_start(self) -> bool:
        """git applies it only at the first line."""
        return self.old_start <= 1

    @property
    def is_at_end(self) -> bool:
        """git applies it only at the last line."""
        return self.trailing == 0


@dataclass(frozen=True)
class FileDiff:
    """What a patch does to one file. `old` is None for a new file, `new` for a deleted one.

    old_blob, new_blob: ids of the `index` line, abbreviated or full; empty when there is none.
    """

    old: str | None
    new: str | None
    hunks: tuple[Hunk, ...]
    at_line: int
    old_mode: str | None = None
    new_mode: str | None = None
    old_blob: str = ""
    new_blob: str = ""
    binary: bool = False

    @property
    def path(self) -> str:
        path = self.new if self.new is not None else self.old
        assert path is not None
        return path

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path it touches: one, or two for a rename."""
        return tuple(dict.fromkeys(p for p in (self.old, self.new) if p is not None))

    @property
    def is_new(self) -> bool:
        return self.old is None

    @property
    def is_deleted(self) -> bool:
        return self.new is None

    @property
    def is_rename(self) -> bool:
        return self.old is not None and self.new is not None and self.old != self.new

    @property
    def changes_mode(self) -> bool:
        return self.old_mode is not None and self.new_mode is not None and self.old_mode != self.new_mode


@dataclass(frozen=True)
class ParsedPatch:
    """A whole patch file."""

    files: tuple[FileDiff, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path it touches, in the order of the patch."""
        return tuple(dict.fromkeys(path for diff in self.files for path in diff.paths))


@dataclass(frozen=True)
class SourceTree:
    """The files that patches are judged against.

    files:      path -> bytes; at least every file that a patch touches and that exists.
    executable: paths with mode 755.
    names:      every path of the component, for hints at a file's successor; empty means: those of `files`.
    """

    files: Mapping[str, bytes]
    executable: frozenset[str] = frozenset()
    names: Collection[str] = field(default=())

    @property
    def all_names(self) -> Collection[str]:
        return self.names or self.files.keys()


@dataclass(frozen=True)
class HunkVerdict:
    """What became of one hunk; for a file without hunks (new mode, rename) `number` is 0.

    number: from 1 within its file.
    line:   where its pre-image (or, for merged, its post-image) stands, from 1; None when it was not placed.
    offset: lines it was moved by, measured against the place that the hunks before it in the file lead to expect.
    symbol: enclosing function or class there; fingerprint: of its tokens (Python only).
    detail: why, or a hint.
    upstream: what upstream did to the place, in words; cure: what most likely resolves it.
    changed: whether the code of the enclosing symbol is another one than when the patch was locked; None: not known.
    """

    path: str
    number: int
    verdict: Verdict
    line: int | None = None
    offset: int = 0
    symbol: str | None = None
    fingerprint: str | None = None
    detail: str = ""
    upstream: str = ""
    cure: str = ""
    changed: bool | None = None


@dataclass(frozen=True)
class PatchVerdict:
    """What became of one patch, hunk by hunk.

    result: the touched files after it, None where one is deleted; empty unless it applies.
    merged: the touched files as a three-way merge makes them; empty unless it is clean.
    """

    id: str
    verdict: Verdict
    hunks: tuple[HunkVerdict, ...]
    detail: str = ""
    result: Mapping[str, bytes | None] = field(default_factory=dict, repr=False)
    executable: frozenset[str] = frozenset()
    merged: Mapping[str, bytes | None] = field(default_factory=dict, repr=False)
