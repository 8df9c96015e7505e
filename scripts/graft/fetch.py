"""All downloads: from the lock's file names and hashes into the content-addressed store."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

from graft import net
from graft.console import ByteMeter, Console, size
from graft.errors import FetchFailed, GraftError, Interrupted
from graft.store import CHECKED_MTIME, Store, Wanted, mark_checked, missing

__all__ = ["CHECKED_MTIME", "Store", "Wanted", "fetch", "mark_checked", "missing"]

PARALLEL = 8


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
    if item.explain is not None and isinstance(problem, net.Gone):
        raise item.explain()
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
