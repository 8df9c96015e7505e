"""What a line of code depends on: the blocks around it by indentation, and the preprocessor's conditions.

Two places with equal lines are the same place of a program only when these are equal too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from graft.patching.code import C_FAMILY, INSIDE

DIRECTIVE = re.compile(rb"^\s*#\s*(if|ifdef|ifndef|else|elif|endif)\b")
#: Behind one of these, nothing in the same block runs.
ENDS = re.compile(rb"^\s*(?:return|raise|throw|continue|break|goto)\b")
#: Declarations: which one a line is in is the symbol's business.
DECLARES = re.compile(rb"^(?:async\s+def|def|class|cdef|cpdef|@)\b")
TAB = 8


@dataclass(frozen=True)
class Context:
    """What is around one line.

    headers:    the lines above with less and less indentation, innermost first, without declarations.
    conditions: the preprocessor's, outermost first.
    behind:     a statement stands above in the same block that leaves it: what follows never runs.
    inside:     the line stands in a string that goes over several lines.
    """

    headers: tuple[bytes, ...] = ()
    conditions: tuple[bytes, ...] = ()
    behind: bool = False
    inside: bool = False


def context_at(path: str, lines: Sequence[bytes], code: Sequence[bytes], index: int) -> Context:
    """The context of the line at `index` (from 0). `code`: the lines without comments.

    A line without code has the context of the next one with some.
    """
    while index < len(code) and not code[index]:
        index += 1
    if index >= len(code):
        return Context()
    c_family = path.endswith(C_FAMILY)
    headers, behind = _headers(lines, code, index, c_family)
    return Context(headers, _conditions(code, index) if c_family else (), behind, code[index].startswith(INSIDE))


def _headers(
    lines: Sequence[bytes], code: Sequence[bytes], index: int, c_family: bool
) -> tuple[tuple[bytes, ...], bool]:
    start = depth = _indent(lines[index])
    found: list[bytes] = []
    behind = False
    for at in range(index - 1, -1, -1):
        line = code[at]
        if not line or line.startswith(INSIDE) or (c_family and DIRECTIVE.match(line)):
            continue
        indent = _indent(lines[at])
        if indent < depth:
            depth = indent
            text = line.strip()
            if not DECLARES.match(text) and not (c_family and not indent):
                found.append(text)
            if not indent:
                break
        elif depth == start and indent == depth and ENDS.match(line):
            behind = True
    return tuple(found), behind


def _indent(line: bytes) -> int:
    text = line.expandtabs(TAB)
    return len(text) - len(text.lstrip())


def _conditions(code: Sequence[bytes], index: int) -> tuple[bytes, ...]:
    open_ones: list[bytes] = []
    for line in code[:index]:
        directive = DIRECTIVE.match(line)
        if directive is None:
            continue
        word = directive[1]
        if word.startswith(b"if"):
            open_ones.append(line.strip())
        elif word == b"endif" and open_ones:
            open_ones.pop()
        elif word in (b"else", b"elif") and open_ones:
            open_ones[-1] += b" " + line.strip()
    return tuple(open_ones)
