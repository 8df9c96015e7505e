"""The lines of a patch file with a cursor, and names as git writes them."""

from __future__ import annotations

import re

from graft.patching.model import Malformed

ESCAPES = {b"a": 7, b"b": 8, b"t": 9, b"n": 10, b"v": 11, b"f": 12, b"r": 13, b'"': 34, b"\\": 92}


class Lines:
    """The patch's lines without line ends, and a cursor."""

    def __init__(self, data: bytes) -> None:
        if not data.strip():
            raise Malformed(1, "the file is empty")
        self.lines = data.split(b"\n")
        self.complete = self.lines[-1] == b""
        if self.complete:
            self.lines.pop()
        self.at = 0

    @property
    def at_end(self) -> bool:
        return self.at >= len(self.lines)

    @property
    def current(self) -> bytes:
        return self.lines[self.at]

    @property
    def number(self) -> int:
        return self.at + 1

    def malformed(self, reason: str) -> Malformed:
        return Malformed(self.number, reason)


def decoded(lines: Lines, raw: bytes) -> str:
    try:
        path = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise lines.malformed("a path is not UTF-8") from None
    if not path:
        raise lines.malformed("a path is empty")
    return path


def unquote(lines: Lines, text: bytes) -> bytes:
    """A C-quoted name, as git writes those with special or non-ASCII characters."""
    match = re.fullmatch(rb'"((?:[^"\\]|\\.)*)"', text)
    if match is None:
        raise lines.malformed("a quoted path does not end")

    def value(escape: re.Match[bytes]) -> bytes:
        body = escape[1]
        if len(body) == 3:
            return bytes([int(body, 8) & 0xFF])
        if body not in ESCAPES:
            raise lines.malformed(f"unknown escape \\{body.decode(errors='replace')} in a path")
        return bytes([ESCAPES[body]])

    return re.sub(rb"\\([0-3][0-7]{2}|.)", value, match[1])
