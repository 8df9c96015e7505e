"""Three-way merges by git: what a patch made of the version it was made for, carried over to another one.

Nothing is ever applied because of one: it says where a hunk belongs, and `graft patch refresh --merge` writes a patch
that people read.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from graft.errors import PatchMismatch
from graft.patching.git import isolated
from graft.patching.temporary import temporary
from graft.proc import run

TIMEOUT_SECONDS = 60.0


def three_way(base: bytes, ours: bytes, theirs: bytes) -> bytes | None:
    """`theirs` with the changes from `base` to `ours`; None when they touch the same lines, or for binary files."""
    if theirs == base:
        return ours
    with temporary("graft-merge-", Path(tempfile.gettempdir())) as place:
        folder = place.resolve()
        for file, content in (("ours", ours), ("base", base), ("theirs", theirs)):
            (folder / file).write_bytes(content)
        # Into the file, not to stdout: the bytes must come back as they are.
        done = run(
            ["git", "merge-file", "--quiet", "ours", "base", "theirs"],
            cwd=folder,
            env=isolated(folder),
            timeout=TIMEOUT_SECONDS,
            error=PatchMismatch,
            cure="git 2.30 or newer is needed",
            check=False,
        )
        return (folder / "ours").read_bytes() if done.rc == 0 else None
