"""All downloads: from the lock's file names and hashes into the content-addressed store.

A file of the store lies at `<sha256>/<name>`, with a fixed mtime that says "checked": a file that was
written to since is hashed again before it is used. The fixed mtime and mode also keep build contexts
equal from one build to the next.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from graft import net
from graft.console import ByteMeter, Console, size
from graft.errors import FetchFailed, GraftError, Interrupted

#: 2020-01-01: after 1980, where zip's calendar starts, and before everything that is built.
CHECKED_MTIME = 1_577_836_800
PARALLEL = 8


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
    """A locked file, and how to find its address when it has to be downloaded (may raise FetchFailed)."""

    pin: Pin
    locate: Callable[[], Sequence[str]]

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
            if net.file_sha256(path) == pin.sha256:
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
    unique = {item.pin.sha256: item for item in wanted}
    lacking = [item for item in unique.values() if not store.has(item.pin)]
    return sorted(lacking, key=lambda item: (-item.pin.size, item.pin.file))


def fetch(store: Store, wanted: Sequence[Wanted], console: Console, *, offline: bool = False) -> int:
    """Bring everything into the store; returns the number of bytes that were missing.

    Raises FetchFailed for the first file that cannot be had, and with `offline` for any that is missing.
    """
    lacking = missing(store, wanted)
    if not lacking:
        return 0
    total = sum(item.pin.size for item in lacking)
    if offline:
        raise _offline_error(store, lacking, total)
    _check_disk(store, total)
    with console.step(f"fetch {len(lacking)} files, {size(total)}"), console.bytes_progress("fetch", total) as meter:
        _download_all(store, lacking, meter)
    return total


def _download_all(store: Store, lacking: Sequence[Wanted], meter: ByteMeter) -> None:
    stop = threading.Event()
    client = net.session()

    def one(item: Wanted) -> None:
        if stop.is_set():
            return
        _download(store, item, client, meter, stop)

    with ThreadPoolExecutor(PARALLEL) as pool:
        try:
            jobs = [pool.submit(one, item) for item in lacking]
            wait(jobs, return_when=FIRST_EXCEPTION)
        except KeyboardInterrupt as interrupt:
            stop.set()
            raise Interrupted("interrupted while fetching", cure="run the same command: it resumes") from interrupt
        finally:
            stop.set()
    problems = [job.exception() for job in jobs if job.done() and job.exception() is not None]
    real = [problem for problem in problems if not isinstance(problem, net.Stopped)]
    if real and real[0] is not None:
        raise real[0]


def _download(store: Store, item: Wanted, client: net.Session, meter: ByteMeter, stop: threading.Event) -> None:
    pin = item.pin
    target = store.path(pin)
    problem: GraftError | None = None
    for url in item.locate():
        try:
            net.download(
                client,
                url,
                target,
                net.Expected(pin.sha256, pin.size),
                what=item.file_name,
                on_bytes=meter.add,
                stop=stop,
            )
            mark_checked(target)
            return
        except FetchFailed as failed:
            problem = failed
    raise problem or FetchFailed(f"{item.file_name}: no source serves it")


def _check_disk(store: Store, total: int) -> None:
    store.root.mkdir(parents=True, exist_ok=True)
    facts = os.statvfs(store.root)
    free = facts.f_bavail * facts.f_frsize
    if free < total:
        raise FetchFailed(
            f"{size(total)} are to be fetched and {size(free)} are free",
            where=str(store.root),
            cure="free disk space, or run: make clean",
        )


def _offline_error(store: Store, lacking: Sequence[Wanted], total: int) -> FetchFailed:
    shown = ", ".join(f"{item.pin.name} {item.pin.version}" for item in lacking[:5])
    more = f" and {len(lacking) - 5} more" if len(lacking) > 5 else ""
    return FetchFailed(
        f"offline, and {len(lacking)} files ({size(total)}) are not in the store: {shown}{more}",
        where=str(store.root),
        cure="run the same command without OFFLINE=1 once",
    )
