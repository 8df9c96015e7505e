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


class Contexts:
    """The contexts of a file's lines. `code`: the lines without comments. One pass over the file serves all hunks."""

    def __init__(self, path: str, lines: Sequence[bytes], code: Sequence[bytes]) -> None:
        self._code = code
        self._c_family = path.endswith(C_FAMILY)
        self._parents, self._behind = self._nesting(lines)
        self._conditions = self._conditions_of() if self._c_family else None

    def at(self, index: int) -> Context:
        """The context of the line at `index` (from 0); without code it is that of the next line with some."""
        while index < len(self._code) and not self._code[index]:
            index += 1
        if index >= len(self._code):
            return Context()
        conditions = self._conditions[index] if self._conditions is not None else ()
        inside = self._code[index].startswith(INSIDE)
        return Context(self._headers(index), conditions, self._behind[index], inside)

    def _headers(self, index: int) -> tuple[bytes, ...]:
        found: list[bytes] = []
        at = self._parents[index]
        while at >= 0:
            text = self._code[at].strip()
            if not DECLARES.match(text) and not (self._c_family and self._parents[at] < 0):
                found.append(text)
            at = self._parents[at]
        return tuple(found)

    def _nesting(self, lines: Sequence[bytes]) -> tuple[list[int], list[bool]]:
        """For each line the nearest one above with less indentation (-1: none), and whether it is behind a return."""
        parents, behind = [-1] * len(self._code), [False] * len(self._code)
        # (indentation, index of the block's last line, whether its block was left, index of its parent)
        around: list[tuple[int, int, bool, int]] = []
        for index, line in enumerate(self._code):
            if not line or line.startswith(INSIDE) or (self._c_family and DIRECTIVE.match(line)):
                parents[index] = around[-1][1] if around and line else -1
                continue
            indent = _indent(lines[index])
            while around and around[-1][0] > indent:
                around.pop()
            left = False
            if around and around[-1][0] == indent:
                _, _, left, parent = around.pop()
            else:
                parent = around[-1][1] if around else -1
            parents[index], behind[index] = parent, left
            around.append((indent, index, left or ENDS.match(line) is not None, parent))
        return parents, behind

    def _conditions_of(self) -> list[tuple[bytes, ...]]:
        found: list[tuple[bytes, ...]] = []
        open_ones: list[bytes] = []
        for line in self._code:
            found.append(tuple(open_ones) if not found or list(found[-1]) != open_ones else found[-1])
            directive = DIRECTIVE.match(line)
            word = directive[1] if directive else b""
            if word.startswith(b"if"):
                open_ones.append(line.strip())
            elif word == b"endif" and open_ones:
                open_ones.pop()
            elif word in (b"else", b"elif") and open_ones:
                open_ones[-1] += b" " + line.strip()
        return found


def _indent(line: bytes) -> int:
    text = line.expandtabs(TAB)
    return len(text) - len(text.lstrip())
