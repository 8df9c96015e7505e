"""Debian's redis-server for the tests: fetched as the engine's packages are, never installed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import redis
from distribution import SOURCE, free_port, wait_for_port
from filelock import FileLock

from graft import net, proc
from graft.apt import Archive, pockets_of
from graft.paths import Paths

PACKAGES = ("redis-tools", "liblzf1", "libjemalloc2")
#: Of the release that the tests run on: it brings the other libraries.
SUITE = "bookworm"


@dataclass(frozen=True)
class RedisServer:
    """A running server."""

    port: int
    process: subprocess.Popen[bytes]
    password: str | None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port, password=self.password, protocol=2)


@contextlib.contextmanager
def redis_server(folder: Path, *options: str, password: str | None = None) -> Iterator[RedisServer]:
    """A server on the loopback address with nothing on disk, ended at the end. options: words of its configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    root, port, log = _root(), free_port(), folder / "log"
    words = ["--bind", "127.0.0.1", "--port", str(port), "--save", "", "--dir", str(folder), *options]
    words += ["--requirepass", password] if password else []
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [root / "usr/bin/redis-server", *words],
            env={"PATH": os.defpath, "LD_LIBRARY_PATH": str(root / "usr/lib/x86_64-linux-gnu"), "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
        )
    try:
        wait_for_port(port, process, log)
        yield RedisServer(port, process, password)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _root() -> Path:
    """The unpacked packages, below .graft; fetched when they are not there yet."""
    home = SOURCE / ".graft" / "test-programs" / "redis"
    home.mkdir(parents=True, exist_ok=True)
    with FileLock(home / "lock"):
        if not (home / "root").is_dir():
            fresh = home / "root.new"
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir()
            archive = Archive(Paths(home), pockets_of(SUITE))
            for pin in archive.newest(PACKAGES):
                deb = home / "debs" / pin.basename
                expected = net.Expected(pin.sha256, pin.size)
                net.download(net.session(), archive.urls(pin)[0], deb, expected, what=pin.name)
                proc.run(["dpkg-deb", "-x", deb, fresh])
            # What redis-server's package is: another name for the same program.
            (fresh / "usr/bin/redis-server").symlink_to("redis-check-rdb")
            shutil.rmtree(home / "debs")
            fresh.rename(home / "root")
    return home / "root"
