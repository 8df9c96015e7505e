"""A proxy in front of a registry that misbehaves on demand."""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

Kind = Literal["status", "cut-request", "cut-answer", "truncate", "slow", "drop-after", "add-headers"]


@dataclass
class Fault:
    """What happens to the next `times` requests that fit (method, space, path).

    status:      answered with `status`, never forwarded.
    cut-request: `count` bytes of the request's body are forwarded, then both connections end.
    drop-after:  forwarded whole; the client never sees the answer.
    cut-answer:  the client gets `count` bytes of the body, with the length of all.
    truncate:    the client gets `count` bytes of the body, with a length that fits.
    add-headers: the answer has `headers` beside its own.
    slow:        `seconds` of pause before it is forwarded.
    """

    kind: Kind
    fits: str
    times: int = 1
    status: int = 500
    count: int = 0
    seconds: float = 0.0
    headers: dict[str, str] = field(default_factory=dict)


class Proxy:
    """Forwards to `target`; `seen` holds every request as `METHOD path`."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.faults: list[Fault] = []
        self.seen: list[str] = []
        #: The bytes of each request's body, as it announced them.
        self.lengths: list[int] = []
        #: Called with the number of the request before it is forwarded, and (negative) before it is answered.
        self.watch: Callable[[int], None] = lambda number: None
        self._lock = threading.Lock()
        self._under_way = 0
        self._ended = threading.Condition(self._lock)
        handler = type("Handler", (_Handler,), {"proxy": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server.server_address[1]}"

    def count(self, pattern: str) -> int:
        return sum(bool(re.search(pattern, line)) for line in self.seen)

    def take(self, line: str, length: int) -> tuple[int, Fault | None]:
        with self._lock:
            self.seen.append(line)
            self.lengths.append(length)
            for fault in self.faults:
                if fault.times > 0 and re.search(fault.fits, line):
                    fault.times -= 1
                    return len(self.seen), fault
            return len(self.seen), None

    @contextlib.contextmanager
    def under_way(self) -> Iterator[None]:
        with self._lock:
            self._under_way += 1
        try:
            yield
        finally:
            with self._ended:
                self._under_way -= 1
                self._ended.notify_all()

    def settle(self) -> None:
        """Wait for every request that was begun: the registry still does what a dead client has asked for."""
        with self._ended:
            assert self._ended.wait_for(lambda: self._under_way == 0, 60)


class _Handler(BaseHTTPRequestHandler):
    proxy: Proxy
    protocol_version = "HTTP/1.1"

    def _forward(self) -> None:
        with self.proxy.under_way():
            self._forwarded()

    def _forwarded(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        number, fault = self.proxy.take(f"{self.command} {self.path}", length)
        self.proxy.watch(number)
        if fault is not None and fault.kind == "status":
            self._read_body()
            self.send_response(fault.status)
            for name, value in {"Content-Length": "0", **fault.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            return
        if fault is not None and fault.kind == "slow":
            time.sleep(fault.seconds)
        host, _, port = self.proxy.target.partition(":")
        upstream = http.client.HTTPConnection(host, int(port), timeout=60)
        cut = fault.count if fault is not None and fault.kind == "cut-request" else None
        try:
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                upstream.putheader(name, value)
            upstream.endheaders()
            left = length if cut is None else min(cut, length)
            while left > 0 and (piece := self.rfile.read(min(left, 65536))):
                upstream.send(piece)
                left -= len(piece)
            if cut is None and left > 0:
                # The client is gone, and the registry would wait for the rest.
                self.close_connection = True
                return
            if cut is not None:
                # So that the registry has taken what came before the connection ends.
                time.sleep(0.1)
                self._hang_up()
                return
            answer = upstream.getresponse()
            body = answer.read()
        finally:
            upstream.close()
        self.proxy.watch(-number)
        if fault is not None and fault.kind == "drop-after":
            self._hang_up()
            return
        self._answer(answer, body, fault)

    def _answer(self, answer: http.client.HTTPResponse, body: bytes, fault: Fault | None) -> None:
        self.send_response(answer.status)
        cut = fault.count if fault is not None and fault.kind in ("cut-answer", "truncate") else None
        for name, value in answer.getheaders():
            if name.lower() not in ("content-length", "transfer-encoding", "connection", "date"):
                self.send_header(name, value)
        if fault is not None and fault.kind == "add-headers":
            for name, value in fault.headers.items():
                self.send_header(name, value)
        length = len(body) if fault is None or fault.kind != "truncate" else fault.count
        if self.command == "HEAD":
            length = int(answer.getheader("Content-Length") or 0)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body if cut is None else body[:cut])
        if fault is not None and fault.kind == "cut-answer":
            self._hang_up()

    def _read_body(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _hang_up(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)

    do_GET = do_HEAD = do_PUT = do_POST = do_PATCH = do_DELETE = _forward

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: tests look at `seen`."""


@contextlib.contextmanager
def faulty(target: str) -> Iterator[Proxy]:
    """A running proxy, ended at the end."""
    made = Proxy(target)
    # A client that hangs up in the middle is what these tests do.
    made.server.handle_error = lambda request, address: None  # type: ignore[method-assign]
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.server.shutdown()
        made.server.server_close()
        thread.join(5)
