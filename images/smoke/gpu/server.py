"""A program that serves HTTP on this machine, with everything it starts: asked, and ended for good."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"
POLL_SECONDS = 0.5
GRACE_SECONDS = 30.0
TAIL_LINES = 25
# prctl(2): processes whose parent ends become ours, also those that left the process group.
PR_SET_CHILD_SUBREAPER = 36

# Without Docker there may be proxies in the environment, and none of them leads to this machine.
_open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


class ServerError(Exception):
    """The server ended, did not answer in time, or answered something else than was asked for."""


class Server:
    """A running program. port: where it was told to listen."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self._process = process
        self._log = log
        self._address = f"http://{HOST}:{port}"

    def wait(self, path: str, seconds: float) -> float:
        """Seconds until `path` answered 200. Raises ServerError when the program ends or the time is over."""
        started = time.monotonic()
        while time.monotonic() - started < seconds:
            if self._process.poll() is not None:
                raise ServerError(f"ended with {self._process.returncode}: {self.tail()}")
            with contextlib.suppress(OSError):
                self._request(urllib.request.Request(self._address + path), 10.0)
                return time.monotonic() - started
            time.sleep(POLL_SECONDS)
        raise ServerError(f"{path} did not answer within {seconds:g} s: {self.tail()}")

    def get(self, path: str, seconds: float) -> str:
        """The text of a page. Raises ServerError."""
        return self._said(urllib.request.Request(self._address + path), seconds)

    def post(self, path: str, body: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """JSON for JSON. Raises ServerError."""
        data = json.dumps(body).encode()
        request = urllib.request.Request(self._address + path, data, {"Content-Type": "application/json"})
        text = self._said(request, seconds)
        try:
            answer = json.loads(text)
        except ValueError:
            raise ServerError(f"{path} answered no JSON: {text[:200]}") from None
        if not isinstance(answer, dict):
            raise ServerError(f"{path} answered no object: {text[:200]}")
        return answer

    def tail(self) -> str:
        """The end of what the program printed."""
        return "\n".join(self._log.read_text(errors="replace").rstrip().splitlines()[-TAIL_LINES:])

    def _said(self, request: urllib.request.Request, seconds: float) -> str:
        try:
            return self._request(request, seconds)
        except urllib.error.HTTPError as problem:
            text = problem.read(2000).decode("utf-8", "replace")
            raise ServerError(f"{request.selector} answered {problem.code}: {text}") from None
        except OSError as problem:
            raise ServerError(f"{request.selector}: {problem}; {self.tail()}") from None

    def _request(self, request: urllib.request.Request, seconds: float) -> str:
        with _open(request, timeout=seconds) as answer:
            text: str = answer.read().decode("utf-8", "replace")
            return text


@contextlib.contextmanager
def serving(argv: Sequence[str], port: int, log: Path, env: Mapping[str, str], left: list[str]) -> Iterator[Server]:
    """Run a server. At the end it is asked to stop, and whatever it has left then is killed and named in `left`."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    with log.open("wb") as out:
        process = subprocess.Popen(
            list(argv),
            cwd=log.parent,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield Server(process, port, log)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            left.append(f"the server did not end within {GRACE_SECONDS:g} s of SIGTERM")
        left += end_all(GRACE_SECONDS / 3)


def end_all(seconds: float) -> list[str]:
    """Wait for everything that descends from this process, then kill it; what had to be killed, by name."""
    deadline = time.monotonic() + seconds
    while (there := descendants(os.getpid())) and time.monotonic() < deadline:
        reap()
        time.sleep(0.1)
    for process in there:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    names = [f"{name} ({process})" for process, name in there.items()]
    while there and descendants(os.getpid()):
        reap()
        time.sleep(0.05)
    return names


def reap() -> None:
    """Take the exit status of children that have ended, so that they are gone."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def descendants(root: int) -> dict[int, str]:
    """All processes below `root`: id -> name."""
    parents: dict[int, tuple[int, str]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            # proc(5): pid (name) state ppid ...; the name may hold anything.
            name, _, fields = (folder / "stat").read_text().partition("(")[2].rpartition(")")
            parents[int(folder.name)] = (int(fields.split()[1]), name)
    found: dict[int, str] = {}
    below = [root]
    while below:
        parent = below.pop()
        children = {process: name for process, (above, name) in parents.items() if above == parent}
        found |= children
        below += children
    return found


def free_port() -> int:
    """A port of this machine that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def metric(text: str, name: str) -> float:
    """The sum of a counter over its labels, in Prometheus' text format; 0 where it is not there."""
    values = re.findall(rf"^{re.escape(name)}(?:\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE)
    return sum(map(float, values))
