"""`kill -9` in the middle of a push or a promote: every tag is what it was or what it should be, and the same command
finishes."""

from __future__ import annotations

import dataclasses
import multiprocessing
import multiprocessing.connection
import os
import random
import signal
import sys
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from distribution import Distribution
from faults import Proxy, faulty
from publishing import CHANNEL, HISTORY, STABLE, Shop, child_graft, child_push

from graft.publish.history import read_history
from graft.publish.verify import verify
from graft.registry.reference import Reference

POINTS = 20
#: A child begins with everything imported, which takes longer than what it does.
FORK: Any = multiprocessing.get_context("forkserver")
FORK.set_forkserver_preload(["publishing"])


def killed_at(request: int, proxy: Proxy, start: Callable[[], BaseProcess]) -> bool:
    """Run a child and kill it at the given request: before it reaches the registry (even) or before the child has the
    answer (odd). False when the child ended before."""
    child: list[BaseProcess] = []
    before = len(proxy.seen)

    def watch(number: int) -> None:
        wanted = before + request if request % 2 == 0 else -(before + request)
        if number == wanted:
            os.kill(child[0].pid or 0, signal.SIGKILL)
            # Not by `join`: it reads the exit status, and only one thread can.
            multiprocessing.connection.wait([child[0].sentinel])

    proxy.watch = watch
    child.append(start())
    child[0].start()
    child[0].join(60)
    proxy.watch = lambda number: None
    proxy.settle()
    return child[0].exitcode == -signal.SIGKILL


def hold(shop: Shop, running: Distribution, allowed: dict[str, set[str | None]]) -> None:
    """Each named tag is one of what it may be, and what it points to is whole and verifies."""
    tags = running.tags("graft")
    for tag, digests in allowed.items():
        assert tags.get(tag) in digests, (tag, tags)
        if tag in tags:
            assert verify(shop.registry, Reference(shop.repository, tag=tag), shop.public).digest == tags[tag]


def ran(process: BaseProcess) -> int | None:
    process.start()
    process.join(60)
    return process.exitcode


def test_a_killed_push(shop: Shop, running: Distribution, tmp_path: Path) -> None:
    """At 20 points spread by chance over all requests of a push, each a push of a new image over an earlier one."""
    chance = random.Random(20)
    with faulty(running.host) as proxy:
        # What is signed names the repository, so all of them go through the proxy.
        through = dataclasses.replace(shop, host=proxy.host)
        held = through.push(through.release(1000, padding=200_000)).digest
        total = len(proxy.seen)
        kills = 0
        for number, point in enumerate(sorted(chance.sample(range(2, total), POINTS))):
            release = through.release(number, padding=200_000)
            start = lambda number=number: FORK.Process(  # noqa: E731
                target=child_push, args=(str(shop.root), proxy.host, number)
            )
            kills += killed_at(point, proxy, start)
            due = through.push(release).digest if number % 5 == 4 else None
            tags = running.tags("graft")
            new = tags.get(release.tag)
            hold(through, running, {release.tag: {None, new}, CHANNEL: {held, new}})
            if due is not None:
                # The second push finishes what the first began.
                assert tags[release.tag] == tags[CHANNEL] == due
            held = tags[CHANNEL]
        assert kills > POINTS // 2
        last = through.push(through.release(POINTS - 1, padding=200_000)).digest
        hold(through, running, {CHANNEL: {last}})
        assert read_history(through.registry, HISTORY).of(CHANNEL)[-1].digest == last


def test_a_killed_promote(shop: Shop, running: Distribution) -> None:
    chance = random.Random(21)
    with faulty(running.host) as proxy:
        through = dataclasses.replace(shop, host=proxy.host)
        releases = [through.release(number) for number in (1, 2)]
        digests = [through.push(release).digest for release in releases]
        words = ["promote", "--project", str(shop.root), "--registry", f"{proxy.host}/graft"]
        words += ["--recipe", "glm-dsa", "--arch", "sm90"]

        def promote(which: int) -> BaseProcess:
            made: BaseProcess = FORK.Process(target=child_graft, args=(str(shop.root), [*words, releases[which].tag]))
            return made

        before = len(proxy.seen)
        assert ran(promote(0)) == 0
        total = len(proxy.seen) - before
        stands, kills = digests[0], 0
        for point in sorted(chance.choices(range(2, total + 1), k=POINTS)):
            target = 1 - digests.index(stands)
            kills += killed_at(point, proxy, lambda target=target: promote(target))
            hold(through, running, {STABLE: {stands, digests[target]}})
            stands = running.tags("graft")[STABLE]
        assert kills > POINTS // 2
        assert ran(promote(0)) == 0
        hold(through, running, {STABLE: {digests[0]}})
        assert read_history(through.registry, HISTORY).of(STABLE)[-1].digest == digests[0]
        _check_told(through)


def _check_told(shop: Shop) -> None:
    """No move of the record is of an image that is not there."""
    for entry in read_history(shop.registry, HISTORY).moves:
        assert shop.registry.manifest(entry.digest) is not None


@pytest.fixture(autouse=True)
def _environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    # What is preloaded is looked for before our sys.path is known there.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
