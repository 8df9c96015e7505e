"""Text without its layout: to see whether something is gone, and not only wrapped or quoted anew."""

from __future__ import annotations

import re

LAYOUT = re.compile(rb"[\s\\\"']+")


def squeezed(text: bytes | str) -> bytes:
    """Without blanks, line ends, quotes and backslashes: a string that is broken over two lines reads the same."""
    raw = text.encode() if isinstance(text, str) else text
    return LAYOUT.sub(b"", raw)
