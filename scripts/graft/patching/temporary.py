"""Folders that are gone after use, also when their process is killed: the next one that makes its own removes them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: The file that proves a folder to be one of ours. Its process holds a lock on it, which dies with the process.
MARKER = ".graft-temporary"
TEXT = b"Made by graft for a moment. When no process holds a lock on this file, the folder is removed.\n"


@contextmanager
def temporary(prefix: str, parent: Path) -> Iterator[Path]:
    """An empty folder but for its marker, removed afterwards. Those that killed processes left are removed first."""
    _sweep(prefix, parent)
    # The name alone proves nothing; it keeps apart those that run at the same time.
    place = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    lock = os.open(place / MARKER, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    try:
        # Locked before it is a marker: nobody finds one that is whole and free while its owner lives.
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.write(lock, TEXT)
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        os.close(lock)


def _sweep(prefix: str, parent: Path) -> None:
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(parent)):
            if entry.name.startswith(prefix) and entry.is_dir(follow_symlinks=False):
                _remove_left(Path(entry.path))


def _remove_left(place: Path) -> None:
    """Remove a folder of ours that has lost its owner; whatever else it is stays."""
    try:
        marker = os.open(place / MARKER, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return
    try:
        facts = os.fstat(marker)
        if stat.S_ISREG(facts.st_mode) and facts.st_uid == os.getuid() and os.read(marker, len(TEXT) + 1) == TEXT:
            fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(place, ignore_errors=True)
    except OSError:
        # Its owner lives, or the file system has no locks.
        return
    finally:
        os.close(marker)
