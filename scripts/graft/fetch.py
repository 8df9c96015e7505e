"""All downloads: from the lock's file names and hashes into the content-addressed store."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Sequence

from graft import net
from graft.console import ByteMeter, Console, size
from graft.errors import FetchFailed, GraftError, Interrupted
from graft.store import Store, Wanted, mark_checked, missing

PARALLEL = 8
POLL_SECONDS = 0.05
#: How long the other downloads may take to end when one has failed, or on an interrupt.
GRACE_SECONDS = 2.0


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
    waiting: queue.SimpleQueue[Wanted] = queue.SimpleQueue()
    for item in lacking:
        waiting.put(item)
    problems: list[Exception] = []

    def work() -> None:
        while not stop.is_set() and (item := _next(waiting)) is not None:
            try:
                _download(store, item, client, meter, stop)
            except net.Stopped:
                return
            except Exception as problem:
                problems.append(problem)
                stop.set()

    # Not a pool: its end waits for every thread, and one that reads from a stalled server would hold up Ctrl-C for a
    # minute. What such a thread leaves is a part that the next run goes on with.
    workers = [threading.Thread(target=work, daemon=True) for _ in range(min(PARALLEL, len(lacking)))]
    for worker in workers:
        worker.start()
    try:
        while any(worker.is_alive() for worker in workers) and not stop.wait(POLL_SECONDS):
            pass
    except KeyboardInterrupt as interrupt:
        raise Interrupted("interrupted while fetching", cure="run the same command: it resumes") from interrupt
    finally:
        stop.set()
        deadline = time.monotonic() + GRACE_SECONDS
        for worker in workers:
            worker.join(max(0.0, deadline - time.monotonic()))
    if problems:
        raise problems[0]


def _next(waiting: queue.SimpleQueue[Wanted]) -> Wanted | None:
    try:
        return waiting.get_nowait()
    except queue.Empty:
        return None


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
