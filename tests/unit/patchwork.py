"""Small patches and records for the tests of the patch engine."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graft.patchset import Patch, PatchRecord


def record(patch_id: str = "fix", **changes: Any) -> PatchRecord:
    data = {
        "id": patch_id,
        "title": "A fix",
        "target": "source",
        "reason": "It is broken.",
        "origin": "https://example.org/issue/1",
        "upstream": "pending",
        "until": "the next release",
        "author": "Somebody",
        "license": "Apache-2.0",
        "tests": ["tests/test_fix.py"],
    }
    return PatchRecord.model_validate({**data, **changes})


def patch(data: bytes | str, patch_id: str = "fix", **changes: Any) -> Patch:
    raw = data.encode() if isinstance(data, str) else data
    return Patch(record(patch_id, **changes), raw, Path(f"patches/demo/{patch_id}.patch"))


def numbered(first: int, last: int) -> list[str]:
    return [f"line {i}\n" for i in range(first, last + 1)]


def text(*parts: Sequence[str] | str) -> bytes:
    return "".join(part if isinstance(part, str) else "".join(part) for part in parts).encode()


def lines_of(content: bytes) -> list[str]:
    return content.decode().splitlines(keepends=True)


def diff(old: bytes | None, new: bytes | None, path: str = "demo/a.txt", context: int = 3) -> bytes:
    """A git-style diff between two contents of one file; None: there is no file. Made by difflib, not by git."""
    head = [f"diff --git a/{path} b/{path}\n"]
    if old is None:
        head.append("new file mode 100644\n")
    if new is None:
        head.append("deleted file mode 100644\n")
    sides = [f"a/{path}" if old is not None else "/dev/null", f"b/{path}" if new is not None else "/dev/null"]
    made = difflib.unified_diff(_split(old or b""), _split(new or b""), *sides, n=context)
    body = [line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in made]
    return "".join([*head, *body]).encode()


def _split(content: bytes) -> list[str]:
    """As git does: only \\n ends a line."""
    lines = content.decode().split("\n")
    return [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
