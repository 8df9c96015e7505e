"""Lines and blocks of lines: where a block stands in a file, and whether it says anything."""

from __future__ import annotations

import keyword
import re
from collections.abc import Sequence

WORD = re.compile(rb"\w+")
#: Words of any program; a line of them alone stands in every other one.
KEYWORDS = frozenset(word.encode() for word in keyword.kwlist) | frozenset(
    b"auto bool case char const default do double endif enum float ifdef ifndef inline int long public private "
    b"protected return self short signed sizeof static struct switch template this typedef typename unsigned using "
    b"void volatile".split()
)
#: A block with fewer different letters and digits could stand anywhere by chance.
LEAST = 4
#: A block at so many places is as good as everywhere; blank lines could stand at all of a large file.
MOST = 100


def split(content: bytes) -> list[bytes]:
    """Lines with their ends; only \\n ends a line, as for git."""
    lines = content.split(b"\n")
    return [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def find(content: bytes, block: Sequence[bytes]) -> list[int]:
    """Every index of a line (from 0) at which the block of whole lines stands; at most MOST of them."""
    wanted = b"".join(block)
    found: list[int] = []
    line = counted = 0
    at = content.find(wanted) if wanted else -1
    while at >= 0 and len(found) < MOST:
        end = at + len(wanted)
        begins = at == 0 or content[at - 1 : at] == b"\n"
        if begins and (wanted.endswith(b"\n") or end == len(content)):
            line += content.count(b"\n", counted, at)
            counted = at
            found.append(line)
        # The next line at the earliest: a block begins with a line.
        after = content.find(b"\n", at)
        at = content.find(wanted, after + 1) if after >= 0 else -1
    return found


def says_something(lines: Sequence[bytes]) -> bool:
    """Whether lines hold more than blanks, brackets and keywords: only then their place means anything."""
    words = (word for line in lines for word in WORD.findall(line) if word not in KEYWORDS)
    return len({c for word in words for c in word if chr(c).isalnum()}) >= LEAST
