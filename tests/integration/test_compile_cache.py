"""The compile cache in a real Redis: what comes back is what was put there, and no fault of it is an error."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from distribution import free_port
from redisserver import RedisServer, redis_server

from graft.compilecache import Brought, Remote, Unusable, connect, entries_in

SPACE = "graft:ccache:1:kernels:sm90:0123456789ab"
FIRST, SECOND = "ab/" + "c" * 30, "0z/" + "d" * 30


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path / "redis") as running:
        yield running


@pytest.fixture
def remote(server: RedisServer) -> Remote:
    return connect(server.url, None, None)


def folder(where: Path, **files: bytes) -> Path:
    """A folder as ccache writes it."""
    for name, content in {"CACHEDIR.TAG": b"Signature", FIRST: b"one", SECOND: b"two", **files}.items():
        (where / name).parent.mkdir(parents=True, exist_ok=True)
        (where / name).write_bytes(content)
    return where


def brought(remote: Remote, where: Path, limit: int = 1_000_000) -> tuple[dict[str, bytes], set[str]]:
    found = Brought()
    remote.bring(SPACE, where, limit, found)
    files = {name: path.read_bytes() for name, path in entries_in(where)}
    assert (found.count, found.size) == (len(files), sum(map(len, files.values())))
    return files, found.damaged


def test_what_one_machine_gives_another_one_finds(server: RedisServer, remote: Remote, tmp_path: Path) -> None:
    given = remote.give(SPACE, folder(tmp_path / "a"), 2)
    assert (given.count, given.size) == (2, 6)
    assert brought(remote, tmp_path / "b") == ({FIRST: b"one", SECOND: b"two"}, set())
    assert (tmp_path / "b" / FIRST).stat().st_mode & 0o777 == 0o644
    times = [server.client().ttl(key) for key in server.client().scan_iter()]  # type: ignore[union-attr]
    assert len(times) == 3
    assert all(0 < seconds <= 2 * 86400 for seconds in times)
    # Again it costs nothing, and keeps them; what has changed is replaced.
    server.client().expire(f"{SPACE}:{FIRST}", 5)
    assert remote.give(SPACE, folder(tmp_path / "a"), 2).count == 0
    assert server.client().ttl(f"{SPACE}:{FIRST}") > 5  # type: ignore[operator]
    assert remote.give(SPACE, folder(tmp_path / "a", **{SECOND: b"2.1"}), 2).count == 1
    assert brought(remote, tmp_path / "c")[0][SECOND] == b"2.1"


def test_the_newest_are_brought_as_far_as_there_is_room(remote: Remote, tmp_path: Path) -> None:
    remote.give(SPACE, folder(tmp_path / "a"), 2)
    time.sleep(0.01)
    later = {"zz/" + "e" * 30: b"later"}
    remote.give(SPACE, folder(tmp_path / "b", **later), 2)
    (tmp_path / "b" / FIRST).unlink()
    time.sleep(0.01)
    (tmp_path / "b" / SECOND).unlink()
    remote.give(SPACE, tmp_path / "b", 2)
    assert brought(remote, tmp_path / "c", limit=40)[0] == later


@pytest.mark.parametrize("kind", ["cut", "changed", "of another name", "empty"])
def test_a_damaged_entry_never_reaches_a_build(server: RedisServer, remote: Remote, tmp_path: Path, kind: str) -> None:
    remote.give(SPACE, folder(tmp_path / "a"), 2)
    client, key = server.client(), f"{SPACE}:{FIRST}"
    value = client.get(key)
    other = client.get(f"{SPACE}:{SECOND}")
    assert isinstance(value, bytes)
    assert isinstance(other, bytes)
    client.set(
        key,
        {
            "cut": value[:-1],
            "changed": value[:-1] + b"!",
            "of another name": other,
            "empty": b"x",
        }[kind],
    )
    files, damaged = brought(remote, tmp_path / "b")
    assert files == {SECOND: b"two"}
    assert damaged == {FIRST}
    # Whoever compiles it puts it right.
    assert remote.give(SPACE, tmp_path / "a", 2, damaged).count == 1
    assert brought(remote, tmp_path / "c")[0][FIRST] == b"one"


def test_a_name_that_leaves_the_folder_is_no_entry(server: RedisServer, remote: Remote, tmp_path: Path) -> None:
    remote.give(SPACE, folder(tmp_path / "a"), 2)
    for name in ("../../../escaped", "/tmp/escaped", "ab/../../x", "ab/" + "C" * 30):
        server.client().zadd(f"{SPACE}:index", {name: time.time()})
        server.client().set(f"{SPACE}:{name}", b"x" * 40)
    assert brought(remote, tmp_path / "b") == ({FIRST: b"one", SECOND: b"two"}, set())


def test_what_redis_has_dropped_is_only_not_there(server: RedisServer, remote: Remote, tmp_path: Path) -> None:
    remote.give(SPACE, folder(tmp_path / "a"), 2)
    server.client().delete(f"{SPACE}:{FIRST}")
    assert brought(remote, tmp_path / "b") == ({SECOND: b"two"}, set())
    server.client().flushall()
    assert brought(remote, tmp_path / "c") == ({}, set())


def says(remote: Remote, where: Path, *, giving: bool = False) -> str:
    with pytest.raises(Unusable) as failed:
        remote.give(SPACE, folder(where), 1) if giving else remote.bring(SPACE, where, 1000, Brought())
    assert failed.value.cure
    assert "127.0.0.1" not in failed.value.what + failed.value.cure
    assert "secret" not in failed.value.what + failed.value.cure
    return failed.value.what


def test_no_redis_a_wrong_password_and_a_full_one(tmp_path: Path) -> None:
    assert says(connect(f"redis://127.0.0.1:{free_port()}/0", None, None), tmp_path / "x") == "it cannot be reached"
    with redis_server(tmp_path / "redis", "--maxmemory", "100kb", password="a-secret-word") as server:
        assert says(connect(server.url, None, None), tmp_path / "x") == "it refuses the login"
        assert says(connect(server.url, None, "another-secret"), tmp_path / "x") == "it refuses the login"
        right = connect(server.url, None, "a-secret-word")
        assert brought(right, tmp_path / "x") == ({}, set())
        assert says(right, tmp_path / "y", giving=True) == "it is full"
        assert says(connect(server.url.removesuffix("0") + "99", None, "a-secret-word"), tmp_path / "x").startswith(
            "it "
        )


def test_a_user_who_may_only_read(server: RedisServer, remote: Remote, tmp_path: Path) -> None:
    remote.give(SPACE, folder(tmp_path / "a"), 2)
    server.client().acl_setuser(
        "reader", enabled=True, passwords=["+a-secret-word"], keys=["graft:*"], categories=["+@read", "+@connection"]
    )
    reader = connect(server.url, "reader", "a-secret-word")
    assert len(brought(reader, tmp_path / "b")[0]) == 2
    assert says(reader, tmp_path / "a", giving=True) == "its user may not do that"


def test_one_that_never_answers_is_not_waited_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graft.compilecache.remote.ANSWER_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert says(connect(f"redis://127.0.0.1:{port}/0", None, None), tmp_path) == "it does not answer in time"


def test_a_slow_one_is_left_after_a_while(server: RedisServer, tmp_path: Path) -> None:
    ticks = iter(range(0, 1000, 100))
    slow = Remote(server.client(), longest=120.0, clock=lambda: float(next(ticks)))
    slow.give(SPACE, folder(tmp_path / "a"), 2)
    ticks = iter(range(0, 1000, 200))
    found = Brought()
    with pytest.raises(Unusable, match="it is slow"):
        slow.bring(SPACE, tmp_path / "b", 1000, found)
    assert found.count == 2, "what came is kept"
