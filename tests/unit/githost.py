"""A git host on the loopback address: git's own http-backend behind a small server, ended with the test."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit


@dataclass
class GitHost:
    """Serves every repository below `root`. seen: method and path of each request.

    protocol: whether it speaks what clients ask for; an old host gives out what its refs name, and nothing by its id.
    """

    root: Path
    server: ThreadingHTTPServer
    seen: list[tuple[str, str]] = field(default_factory=list)
    page: bytes | None = None
    protocol: bool = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    host: GitHost

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        self.host.seen.append((self.command, self.path))
        if self.host.page is not None:
            self._send("200 OK", [("Content-Type", "text/html")], self.host.page)
            return
        body = self._body()
        parts = urlsplit(self.path)
        env = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.host.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", "") if self.host.protocol else "",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": parts.path,
            "QUERY_STRING": parts.query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "REMOTE_ADDR": "127.0.0.1",
        }
        done = subprocess.run(["git", "http-backend"], env=env, input=body, capture_output=True, check=False)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        lines = [line.partition(": ")[::2] for line in head.decode("latin-1").split("\r\n")]
        status = next((value for name, value in lines if name == "Status"), "200 OK")
        self._send(status, [(name, value) for name, value in lines if name != "Status"], content)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", "0")))
        chunks = []
        while size := int(self.rfile.readline(), 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        return b"".join(chunks)

    def _send(self, status: str, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response(int(status.split(" ")[0]))
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: tests look at `seen`."""


@contextlib.contextmanager
def git_host(root: Path) -> Iterator[GitHost]:
    """A running host, ended at the end."""
    handler = type("Handler", (_Handler,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    made = GitHost(root, server)
    handler.host = made  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
