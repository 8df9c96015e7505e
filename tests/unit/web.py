"""A web server on 127.0.0.1 that can misbehave, for one test."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Answer:
    """How one request is answered.

    cut:    the connection is closed after so many bytes of the body.
    pace:   seconds of pause between blocks of 64 kB.
    stall:  nothing is sent after `cut` bytes, until the server ends.
    ranges: whether Range is honoured. sized: whether Content-Length is sent.
    """

    body: bytes = b""
    status: int = 200
    kind: str = "application/octet-stream"
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None
    pace: float = 0.0
    stall: bool = False
    ranges: bool = True
    sized: bool = True


class Web:
    """Answers by path: a list is used up in order and its last entry stays."""

    def __init__(self) -> None:
        self.answers: dict[str, list[Answer]] = {}
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.ending = threading.Event()
        handler = type("Handler", (_Handler,), {"web": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def serve(self, path: str, *answers: Answer) -> str:
        """Set the answers of a path; returns its address."""
        self.answers[path] = list(answers)
        return self.url + path

    def ranges(self, path: str) -> list[str | None]:
        """The Range header of each request for a path."""
        return [headers.get("Range") for seen, headers in self.seen if seen == path]

    def take(self, path: str, headers: dict[str, str]) -> Answer:
        with self._lock:
            self.seen.append((path, headers))
            waiting = self.answers.get(path, [Answer(status=404)])
            return waiting.pop(0) if len(waiting) > 1 else waiting[0]


class _Handler(BaseHTTPRequestHandler):
    web: Web
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        answer = self.web.take(self.path, dict(self.headers.items()))
        body, status = answer.body, answer.status
        extra = dict(answer.headers)
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if asked and answer.ranges and status == 200:
            start = int(asked[1])
            if start >= len(body):
                body, status = b"", 416
            else:
                extra["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
                body, status = body[start:], 206
        self.send_response(status)
        self.send_header("Content-Type", answer.kind)
        if answer.sized:
            self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.close_connection = True
        for name, value in extra.items():
            self.send_header(name, value)
        self.end_headers()
        sent = body if answer.cut is None else body[: answer.cut]
        with contextlib.suppress(OSError):
            for start in range(0, len(sent), 65536):
                self.wfile.write(sent[start : start + 65536])
                if answer.pace and self.web.ending.wait(answer.pace):
                    return
            if answer.stall:
                self.web.ending.wait(60)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: tests look at `seen`."""


@contextlib.contextmanager
def web() -> Iterator[Web]:
    """A running server, ended at the end."""
    made = Web()
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.ending.set()
        made.server.shutdown()
        made.server.server_close()
        thread.join(5)
