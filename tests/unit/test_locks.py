"""Locks between processes: the one who waits says for whom."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path

from graft.locks import alone


def _hold(lock: Path, seconds: float, held: multiprocessing.synchronize.Event) -> None:
    with alone(lock, "it", lambda _: None):
        held.set()
        time.sleep(seconds)


def test_who_waits_says_so_once_and_then_has_it(tmp_path: Path) -> None:
    held = multiprocessing.Event()
    other = multiprocessing.Process(target=_hold, args=(tmp_path / "lock", 0.3, held))
    other.start()
    assert held.wait(10)
    said: list[str] = []
    with alone(tmp_path / "lock", "another build of x", said.append):
        assert not other.is_alive() or other.join(5) is None
    assert said == ["another build of x runs; waiting for its end"]


def test_who_does_not_wait_says_nothing_and_gives_it_back_after_an_error(tmp_path: Path) -> None:
    said: list[str] = []
    for _ in range(2):
        try:
            with alone(tmp_path / "lock", "it", said.append):
                raise KeyError
        except KeyError:
            pass
    assert said == []
