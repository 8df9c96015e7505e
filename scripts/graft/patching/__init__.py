"""The patch engine: safety, judgement, git, and the lock's entry."""

from __future__ import annotations

from graft.patching.entry import (
    check_files,
    context_files,
    lock_component,
    lock_entry,
    locked_symbols,
    one_target,
    table,
)
from graft.patching.judge import judge
from graft.patching.model import HunkVerdict, Malformed, ParsedPatch, PatchVerdict, SourceTree, Verdict
from graft.patching.parse import parse
from graft.patching.safety import check_safety
from graft.patching.sources import (
    folder_tree,
    read_files,
    read_sdist_members,
    read_wheel_members,
    touched_paths,
    unpack_sdist,
    wheel_names,
    wheel_tree,
)

__all__ = [
    "HunkVerdict",
    "Malformed",
    "ParsedPatch",
    "PatchVerdict",
    "SourceTree",
    "Verdict",
    "check_files",
    "check_safety",
    "context_files",
    "folder_tree",
    "judge",
    "lock_component",
    "lock_entry",
    "locked_symbols",
    "one_target",
    "parse",
    "read_files",
    "read_sdist_members",
    "read_wheel_members",
    "table",
    "touched_paths",
    "unpack_sdist",
    "wheel_names",
    "wheel_tree",
]
