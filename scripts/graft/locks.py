"""Locks between processes: whoever has to wait says so, once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout


@contextlib.contextmanager
def alone(lock: Path, what: str, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock file, whose folder is there. what: what another process is at, as "another build of x"."""
    held = FileLock(str(lock))
    try:
        held.acquire(timeout=0)
    except Timeout:
        say(f"{what} runs; waiting for its end")
        held.acquire()
    try:
        yield
    finally:
        held.release()
