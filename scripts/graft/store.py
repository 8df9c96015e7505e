"""The content-addressed store below .graft, and what a build wants from it.

A file lies at `<sha256>/<name>`, with a fixed mtime that says "checked": a file that was written to since is
hashed again before it is used. The fixed mtime and mode also keep build contexts equal from one build to the next.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from graft.errors import GraftError
from graft.hashes import file_sha256

#: 2020-01-01: after 1980, where zip's calendar starts, and before everything that is built.
CHECKED_MTIME = 1_577_836_800


class Pin(Protocol):
    """What a lock says of a file: `file` may be a path below a mirror; size in bytes."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def file(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def sha256(self) -> str: ...


@dataclass(frozen=True)
class Wanted:
    """A locked file, and how to find its addresses when it has to be downloaded (may raise FetchFailed).

    explain: makes the error for a file that no address serves any more; None says what the last server said.
    """

    pin: Pin
    locate: Callable[[], Sequence[str]]
    explain: Callable[[], GraftError] | None = None

    @property
    def file_name(self) -> str:
        return self.pin.file.rsplit("/", 1)[-1]


class Store:
    """Content-addressed files below one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, pin: Pin) -> Path:
        """Where a file lies, or would lie."""
        return self.root / pin.sha256 / pin.file.rsplit("/", 1)[-1]

    def has(self, pin: Pin) -> bool:
        """Whether the store holds the file, whole and unchanged; a damaged one is removed."""
        path = self.path(pin)
        try:
            facts = path.stat()
        except FileNotFoundError:
            return False
        if facts.st_size == pin.size:
            if facts.st_mtime == CHECKED_MTIME:
                return True
            if file_sha256(path) == pin.sha256:
                mark_checked(path)
                return True
        path.unlink()
        return False


def mark_checked(path: Path) -> None:
    """Give a file of the store its fixed mode and mtime."""
    path.chmod(0o644)
    os.utime(path, (CHECKED_MTIME, CHECKED_MTIME))


def missing(store: Store, wanted: Iterable[Wanted]) -> list[Wanted]:
    """The files that the store lacks, each once, largest first."""
    unique = {store.path(item.pin): item for item in wanted}
    lacking = [item for item in unique.values() if not store.has(item.pin)]
    return sorted(lacking, key=lambda item: (-item.pin.size, item.pin.file))
