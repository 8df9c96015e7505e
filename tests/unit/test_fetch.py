"""The store and the parallel download into it."""

from __future__ import annotations

import hashlib
import os
import random
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
from factories import make_lock, write_project
from web import Answer, Web

from graft import fetch as fetching
from graft.commands import update
from graft.commands.session import open_session
from graft.commands.update import announce
from graft.console import Console
from graft.errors import FetchFailed, GraftError
from graft.fetch import fetch
from graft.store import CHECKED_MTIME, Pin, Store, Wanted, mark_checked, missing

SCRIPTS = Path(__file__).parents[2] / "scripts"


@dataclass(frozen=True)
class APin:
    name: str
    version: str
    file: str
    size: int
    sha256: str


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "uniform", lambda low, high: 0.0)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def body(name: str) -> bytes:
    return (name * 1000).encode()


def pin(name: str, content: bytes | None = None, file: str | None = None) -> APin:
    data = body(name) if content is None else content
    return APin(name, "1.0", file or f"pool/{name}-1.0.whl", len(data), hashlib.sha256(data).hexdigest())


def wanted(server: Web, name: str, *answers: Answer) -> Wanted:
    url = server.serve(f"/{name}", *(answers or [Answer(body(name))]))
    return Wanted(pin(name), lambda: [url])


def keep(store: Store, name: str) -> Path:
    path = store.path(pin(name))
    path.parent.mkdir(parents=True)
    path.write_bytes(body(name))
    mark_checked(path)
    return path


def test_everything_comes_into_the_store(server: Web, store: Store) -> None:
    items = [wanted(server, f"p{i}") for i in range(20)]
    assert fetch(store, items, Console()) == sum(item.pin.size for item in items)
    for item in items:
        path = store.path(item.pin)
        assert path == store.root / item.pin.sha256 / item.file_name
        assert path.read_bytes() == body(item.pin.name)
        assert (path.stat().st_mtime, path.stat().st_mode & 0o777) == (CHECKED_MTIME, 0o644)
    asked = len(server.seen)
    assert fetch(store, items, Console()) == 0
    assert len(server.seen) == asked == 20


def test_a_file_named_twice_is_fetched_once_and_two_names_of_it_both(server: Web, store: Store) -> None:
    item = wanted(server, "a")
    other = Wanted(pin("a", file="pool/b.whl"), item.locate)
    assert fetch(store, [item, item, other], Console()) == 2 * item.pin.size
    assert len(server.seen) == 2
    assert store.has(item.pin)
    assert store.has(other.pin)


def test_the_largest_is_fetched_first(server: Web, store: Store) -> None:
    items = [wanted(server, "a"), wanted(server, "ccc"), wanted(server, "bb")]
    assert [item.pin.name for item in missing(store, items)] == ["ccc", "bb", "a"]


def test_an_address_is_looked_up_only_for_what_is_missing(store: Store) -> None:
    keep(store, "a")

    def never() -> list[str]:
        raise AssertionError

    assert fetch(store, [Wanted(pin("a"), never)], Console()) == 0


@pytest.mark.parametrize("damage", ["truncated", "longer", "changed", "empty"])
def test_a_damaged_file_of_the_store_is_seen_and_fetched_again(server: Web, store: Store, damage: str) -> None:
    path = keep(store, "a")
    data = {
        "truncated": body("a")[:-1],
        "longer": body("a") + b"x",
        "changed": b"X" + body("a")[1:],
        "empty": b"",
    }[damage]
    path.write_bytes(data)
    assert missing(store, [wanted(server, "a")])
    assert not path.exists()
    path.write_bytes(data)
    fetch(store, [wanted(server, "a")], Console())
    assert path.read_bytes() == body("a")


def test_a_truncation_that_hides_its_time_is_seen(store: Store) -> None:
    path = keep(store, "a")
    path.write_bytes(body("a")[:-1])
    os.utime(path, (CHECKED_MTIME, CHECKED_MTIME))
    assert not store.has(pin("a"))


def test_a_touched_file_is_hashed_once_and_kept(store: Store) -> None:
    path = keep(store, "a")
    path.touch()
    assert store.has(pin("a"))
    assert path.stat().st_mtime == CHECKED_MTIME


def test_wrong_bytes_end_the_fetch_and_nothing_of_them_is_kept(server: Web, store: Store) -> None:
    item = wanted(server, "a", Answer(b"X" + body("a")[1:]))
    with pytest.raises(FetchFailed, match="wrong bytes") as caught:
        fetch(store, [item], Console())
    assert caught.value.exit_code == 4
    assert "127.0.0.1" not in str(caught.value.as_dict())
    assert [p.name for p in store.path(item.pin).parent.iterdir() if not p.name.endswith(".lock")] == []


def test_one_failure_ends_the_others_and_what_came_stays(server: Web, store: Store) -> None:
    data = os.urandom(2_000_000)
    slow = Wanted(pin("s", data), lambda: [server.serve("/s", Answer(data, pace=0.2))])
    items = [slow, wanted(server, "b", Answer(status=403))]
    started = time.monotonic()
    with pytest.raises(FetchFailed, match="HTTP 403"):
        fetch(store, items, Console())
    assert time.monotonic() - started < 4
    server.serve("/b", Answer(body("b")))
    slow = Wanted(slow.pin, lambda: [server.serve("/s", Answer(data))])
    fetch(store, [slow, items[1]], Console())
    assert store.has(slow.pin)


def test_the_next_address_is_tried(server: Web, store: Store) -> None:
    good = wanted(server, "a")
    item = Wanted(good.pin, lambda: [server.url + "/gone", *good.locate()])
    fetch(store, [item], Console())
    assert store.has(item.pin)


def test_a_file_that_is_gone_everywhere_may_be_explained(server: Web, store: Store) -> None:
    urls = [server.url + "/gone", server.url + "/away"]
    with pytest.raises(FetchFailed, match="the mirror has another"):
        fetch(store, [Wanted(pin("a"), lambda: urls, lambda: FetchFailed("the mirror has another"))], Console())
    with pytest.raises(FetchFailed, match="HTTP 404"):
        fetch(store, [Wanted(pin("a"), lambda: urls)], Console())
    with pytest.raises(FetchFailed, match="no source serves it"):
        fetch(store, [Wanted(pin("a"), list)], Console())


def test_a_lookup_that_fails_is_the_error(store: Store) -> None:
    def locate() -> list[str]:
        raise FetchFailed("not on the index")

    with pytest.raises(FetchFailed, match="not on the index"):
        fetch(store, [Wanted(pin("a"), locate)], Console())


def test_offline_with_a_full_store_asks_nobody(server: Web, store: Store) -> None:
    keep(store, "a")
    assert fetch(store, [wanted(server, "a")], Console(), offline=True) == 0
    assert server.seen == []


def test_offline_names_what_is_missing(server: Web, store: Store) -> None:
    keep(store, "a")
    items = [wanted(server, name) for name in ("a", "b", "cc", "ddd", "e4", "f5", "g6")]
    with pytest.raises(FetchFailed) as caught:
        fetch(store, items, Console(), offline=True)
    problem = caught.value
    assert problem.what.startswith("offline, and 6 files (12.0 kB) are not in the store: ddd 1.0, ")
    assert problem.what.endswith(" and 1 more")
    assert "a 1.0" not in problem.what
    assert "OFFLINE=1" in str(problem.cure)
    assert server.seen == []


def test_too_little_space_is_said_before_anything_is_fetched(server: Web, store: Store) -> None:
    huge = APin("huge", "1", "huge.whl", 1 << 60, "0" * 64)
    with pytest.raises(FetchFailed) as caught:
        fetch(store, [Wanted(huge, lambda: [server.url])], Console())
    assert caught.value.what.startswith("1152921504.6 GB are to be fetched and ")
    assert "make clean" in str(caught.value.cure)
    assert server.seen == []


def test_downloads_run_side_by_side(server: Web, store: Store) -> None:
    together = threading.Barrier(fetching.PARALLEL, timeout=10)
    items = []
    for i in range(fetching.PARALLEL):
        item = wanted(server, f"p{i}")

        def locate(item: Wanted = item) -> list[str]:
            together.wait()
            return list(item.locate())

        items.append(Wanted(item.pin, locate))
    fetch(store, items, Console())
    assert not missing(store, items)


def test_ctrl_c_ends_the_fetch_and_the_next_one_resumes(server: Web, store: Store) -> None:
    data = os.urandom(2_000_000)
    item = Wanted(pin("a", data), lambda: [server.url + "/a"])
    server.serve("/a", Answer(data, pace=0.1), Answer(data))
    code = f"""
        from dataclasses import dataclass
        from pathlib import Path
        from graft.console import Console
        from graft.errors import GraftError
        from graft.fetch import fetch
        from graft.store import Store, Wanted
        from types import SimpleNamespace
        pin = SimpleNamespace(**{vars(item.pin)!r})
        try:
            fetch(Store(Path({str(store.root)!r})), [Wanted(pin, lambda: [{server.url + "/a"!r}])], Console())
        except GraftError as problem:
            print(problem.exit_code, problem.what, "|", problem.cure)
    """
    env = {**os.environ, "PYTHONPATH": str(SCRIPTS)}
    running = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    part = store.path(item.pin).with_name(item.file_name + ".part")
    deadline = time.monotonic() + 20
    while not (part.is_file() and part.stat().st_size > 200_000):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    running.send_signal(signal.SIGINT)
    out, _ = running.communicate(timeout=20)
    assert out == "130 interrupted while fetching | run the same command: it resumes\n"
    assert not store.path(item.pin).exists()
    fetch(store, [item], Console())
    assert store.path(item.pin).read_bytes() == data
    assert server.ranges("/a")[1] is not None


def test_errors_are_grafts() -> None:
    assert issubclass(FetchFailed, GraftError)


def test_an_update_says_what_it_downloads_before_it_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session = open_session(write_project(tmp_path), Console())
    items = [Wanted(pin("big", b"x" * 3_000_000), lambda: []), Wanted(pin("small", b"x" * 1_000_000), lambda: [])]
    announce(session, items)
    assert "to download: 2 files, 4.0 MB (big-1.0.whl, small-1.0.whl)" in capsys.readouterr().err
    for item in items:
        path = session.store.path(item.pin)
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x" * item.pin.size)
    announce(session, items)
    assert capsys.readouterr().err == ""


@dataclass(frozen=True)
class NoSources:
    def files(self, pins: Iterable[Pin]) -> list[Wanted]:
        return [Wanted(one, lambda: []) for one in pins]


def test_an_update_has_said_it_when_the_download_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    old = make_lock()
    said: list[str] = []
    monkeypatch.setattr(update, "resolve_packages", lambda *_, **__: old)
    monkeypatch.setattr(update, "sources_of", lambda *_: NoSources())
    monkeypatch.setattr(update, "fetch", lambda *_: said.append(capsys.readouterr().err))
    session = open_session(write_project(tmp_path), Console(), recipe="toy")
    update._resolve(session, session.paths.recipe("toy").read_bytes(), old, {})
    assert re.search(r"to download: \d+ files?, .*vllm-0\.32\.0", said[0])
