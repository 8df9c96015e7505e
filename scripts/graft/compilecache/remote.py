"""Entries in Redis: the only module that speaks to it.

`<namespace>:index` is a sorted set of names by the time when a build last put them there; `<namespace>:<name>` is an
entry, with a time to live. Redis may drop any of it at any time (its own maxmemory policy): what is gone is compiled.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from graft.compilecache.entries import NAME, SEAL, entries_in, seal, unsealed, write_entry

CONNECT_SECONDS, ANSWER_SECONDS = 3.0, 10.0
#: The longest that a build waits for all of it, each way: compiling may be faster than a slow network.
LONGEST_SECONDS = 120.0
#: Entries of one component that are looked at, the newest first; an object has two.
MOST_ENTRIES = 100_000
#: Bytes of the largest entry, and of those that are in memory at once.
LARGEST_ENTRY, AT_ONCE = 256_000_000, 32_000_000
NAMES_AT_ONCE = 1000
DAY = 86400
T = TypeVar("T")


class Unusable(Exception):
    """Redis cannot be used; nothing of it ends a build. what: a sentence without any address; cure: what helps."""

    def __init__(self, what: str, cure: str) -> None:
        super().__init__(what)
        self.what = what
        self.cure = cure


@dataclass
class Brought:
    """Entries that were brought for a component. damaged: names whose values are not what was put there."""

    count: int = 0
    size: int = 0
    damaged: set[str] = field(default_factory=set)


@dataclass
class Given:
    """Entries that a build gave, and that Redis did not have."""

    count: int = 0
    size: int = 0


class Remote:
    """The cache in Redis. Every method raises Unusable."""

    def __init__(
        self, client: redis.Redis, *, longest: float = LONGEST_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._longest = longest
        self._clock = clock

    def bring(self, namespace: str, folder: Path, limit: int, brought: Brought) -> None:
        """Lay out the entries of a namespace for ccache, the newest first, until `limit` bytes are there.

        brought: counts up as they come, so that it is true when it ends early.
        """
        end = self._clock() + self._longest
        with _faults():
            for names in _by_size(self._sizes(namespace), limit):
                for name, value in zip(names, self._all(f"{namespace}:{name}" for name in names), strict=True):
                    content = unsealed(name, value or b"")
                    if content is not None:
                        write_entry(folder, name, content)
                        brought.count += 1
                        brought.size += len(content)
                    elif value is not None:
                        brought.damaged.add(name)
                self._in_time(end, f"{brought.count} entries")

    def give(self, namespace: str, folder: Path, days: int, anew: Collection[str] = ()) -> Given:
        """Have the entries of a folder in Redis for `days`; those that are there are kept for as long from now on.

        anew: names that are known to be damaged there.
        """
        given, end = Given(), self._clock() + self._longest
        index, now = f"{namespace}:index", time.time()
        with _faults():
            for entries in _batches(entries_in(folder)):
                contents = {name: path.read_bytes() for name, path in entries}
                there = self._seals(namespace, list(contents))
                pipe = self._client.pipeline(transaction=False)
                for name, content in contents.items():
                    key, sealed = f"{namespace}:{name}", seal(name, content)
                    if name not in anew and there[name] == (SEAL + len(content), sealed):
                        pipe.expire(key, days * DAY)
                    else:
                        pipe.set(key, sealed + content, ex=days * DAY)
                        given.count += 1
                        given.size += len(content)
                pipe.zadd(index, dict.fromkeys(contents, now))
                pipe.execute()
                self._in_time(end, f"{given.count} entries")
            pipe = self._client.pipeline(transaction=False)
            pipe.zremrangebyscore(index, "-inf", now - days * DAY)
            pipe.expire(index, days * DAY)
            pipe.execute()
        return given

    def _sizes(self, namespace: str) -> Iterator[tuple[str, int]]:
        """Name and bytes of each entry that is there, the newest first."""
        found: Any = self._client.zrevrange(f"{namespace}:index", 0, MOST_ENTRIES - 1)
        names = [name for raw in found if NAME.fullmatch(name := raw.decode("utf-8", "replace"))]
        for start in range(0, len(names), NAMES_AT_ONCE):
            part = names[start : start + NAMES_AT_ONCE]
            pipe = self._client.pipeline(transaction=False)
            for name in part:
                pipe.strlen(f"{namespace}:{name}")
            yield from ((name, size) for name, size in zip(part, pipe.execute(), strict=True) if size)

    def _all(self, keys: Iterable[str]) -> list[bytes | None]:
        pipe = self._client.pipeline(transaction=False)
        for key in keys:
            pipe.get(key)
        return list(pipe.execute())

    def _seals(self, namespace: str, names: Sequence[str]) -> dict[str, tuple[int, bytes]]:
        """Bytes of each value, and what it begins with."""
        pipe = self._client.pipeline(transaction=False)
        for name in names:
            pipe.strlen(f"{namespace}:{name}")
            pipe.getrange(f"{namespace}:{name}", 0, SEAL - 1)
        answers = pipe.execute()
        return {name: (answers[2 * i], answers[2 * i + 1]) for i, name in enumerate(names)}

    def _in_time(self, end: float, done: str) -> None:
        if self._clock() > end:
            raise Unusable(f"it is slow ({done} in {self._longest:.0f} s)", "use one that is nearer, or none")


def connect(url: str, username: str | None, password: str | None) -> Remote:
    """The cache at an address; nothing is asked yet. url: as build.yaml has it, without credentials."""
    client = redis.Redis.from_url(
        url,
        username=username,
        password=password,
        socket_connect_timeout=CONNECT_SECONDS,
        socket_timeout=ANSWER_SECONDS,
        # Redis before 6 knows no other.
        protocol=2,
        retry=Retry(NoBackoff(), 0),
    )
    return Remote(client)


@contextlib.contextmanager
def _faults() -> Iterator[None]:
    """Turns what the library raises into Unusable; what it says of a connection holds addresses, and is not said."""
    try:
        yield
    except redis.RedisError as problem:
        raise _unusable(problem) from problem


def _unusable(problem: redis.RedisError) -> Unusable:
    # AuthenticationError is a ConnectionError for the library.
    if isinstance(problem, redis.AuthenticationError):
        return Unusable("it refuses the login", "GRAFT_REDIS_USERNAME and GRAFT_REDIS_PASSWORD in the environment")
    if isinstance(problem, redis.exceptions.NoPermissionError):
        return Unusable(
            "its user may not do that", "allow GET, STRLEN, ZREVRANGE, SET, GETRANGE, EXPIRE, ZADD and ZREMRANGEBYSCORE"
        )
    if isinstance(problem, redis.TimeoutError):
        return Unusable("it does not answer in time", "see that it runs, or set compile_cache.redis to null")
    if isinstance(problem, redis.ConnectionError):
        return Unusable("it cannot be reached", "see that it runs, or set compile_cache.redis to null")
    if isinstance(problem, redis.ReadOnlyError):
        return Unusable("it is a replica, which nobody writes to", "name the primary")
    text = str(problem)
    if "OOM" in text or isinstance(problem, redis.exceptions.OutOfMemoryError):
        return Unusable("it is full", "more maxmemory, or a maxmemory-policy that makes room, such as allkeys-lru")
    if text.startswith(("MOVED", "ASK")):
        return Unusable("it is a cluster", "name a Redis that holds all keys itself")
    if isinstance(problem, redis.exceptions.InvalidResponse) or not isinstance(problem, redis.ResponseError):
        return Unusable("what answers there is no Redis", "see the address in build.yaml: compile_cache.redis")
    return Unusable(f"it says {text[:100]!r}", "see its log, or set compile_cache.redis to null")


def _by_size(sizes: Iterable[tuple[str, int]], limit: int) -> Iterator[list[str]]:
    """Names in parts that fit into memory, until `limit` bytes are reached."""
    part: list[str] = []
    held = total = 0
    for name, size in sizes:
        if size > LARGEST_ENTRY:
            continue
        total += size
        if total > limit:
            break
        if part and held + size > AT_ONCE:
            yield part
            part, held = [], 0
        part.append(name)
        held += size
    if part:
        yield part


def _batches(entries: Iterable[tuple[str, Path]]) -> Iterator[list[tuple[str, Path]]]:
    """Entries in parts that fit into memory; one that is too large stays here."""
    part: list[tuple[str, Path]] = []
    held = 0
    for name, path in entries:
        size = path.stat().st_size
        if size > LARGEST_ENTRY:
            continue
        if part and (held + size > AT_ONCE or len(part) == NAMES_AT_ONCE):
            yield part
            part, held = [], 0
        part.append((name, path))
        held += size
    if part:
        yield part
