"""The code of a file without its comments, line by line, so that two wordings of a comment do not hide equal code.

A small scanner of its own reads whole files and fragments of them alike. It is used for comparing only, and errs on
one side: what it cannot read stays as it is, and equals nothing but itself.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass

#: Languages with // and /* */ whose strings end with the line.
C_FAMILY = (".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hpp", ".hxx", ".java")
PYTHON = (".py", ".pyi", ".pyx")
STRING = re.compile(rb"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'")
BLANKS = re.compile(rb"[ \t\f\r]+")
SPECIAL = {True: re.compile(rb"#|\"\"\"|'''|[\"']"), False: re.compile(rb"//|/\*|[\"']")}
DIRECTIVE = re.compile(rb"^\s*#\s*(if|ifdef|ifndef|else|elif|endif)\b\s*(.*)")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
#: In front of the code of a line that begins inside of a string: it equals no line outside of one.
INSIDE = b"\0"
#: Which comments a file has: Python's, those of C, or none that are known.
Language = bool | None


@dataclass(frozen=True)
class Code:
    """lines: one for each line of the text, empty where it holds no code.

    certain: false when a string or comment is open at the end: the text may have begun inside of one.
    """

    lines: tuple[bytes, ...]
    certain: bool


def code_of(path: str, lines: Sequence[bytes], *, whole: bool = True) -> Code:
    """The code of a file, or (not whole) of a fragment that begins outside of strings and comments.

    Blanks are made one, the end of a line does not count; indentation counts in Python alone. Code behind `#if 0`,
    and strings of a Python file that are neither a value nor documentation, are comments.
    """
    python: Language = True if path.endswith(PYTHON) else False if path.endswith(C_FAMILY) else None
    if python is None:
        return Code(tuple(line.rstrip() for line in lines), True)
    scanner = _Scanner(python)
    found = [scanner.line(line.rstrip(b"\r\n")) for line in lines]
    if not python:
        found = _without_dead(found)
    elif whole:
        for first, last in _idle_strings(b"".join(lines)):
            found[first - 1 : last] = [b""] * (last - first + 1)
    return Code(tuple(found), scanner.certain and not scanner.inside)


class _Scanner:
    """Reads one line after the other. `inside` is what ends the string or comment that a line is in."""

    def __init__(self, python: bool) -> None:
        self.python = python
        self.inside = b""
        self.certain = True

    def line(self, text: bytes) -> bytes:
        """The code of the next line."""
        kept: list[bytes] = []
        at = 0
        in_string = self.inside not in (b"", b"*/")
        if not self.inside:
            at = len(text) - len(text.lstrip())
            kept.append(text[:at].expandtabs() if self.python else b"")
        while at < len(text):
            at = self._rest_of_string(text, at, kept) if self.inside else self._code(text, at, kept)
        made = b"".join(kept)
        if in_string:
            # Blank lines and blanks at the end count there.
            return INSIDE + made
        return (made.rstrip() if self.python and not self.inside else made.strip()) if made.strip() else b""

    def _rest_of_string(self, text: bytes, at: int, kept: list[bytes]) -> int:
        escapes = self.inside != b"*/"
        end = at
        while end < len(text) and not text.startswith(self.inside, end):
            end += 2 if escapes and text[end : end + 1] == b"\\" else 1
        done = min(end + len(self.inside), len(text))
        if escapes:
            kept.append(text[at:done])
        if end < len(text):
            self.inside = b""
        return done

    def _code(self, text: bytes, at: int, kept: list[bytes]) -> int:
        match = SPECIAL[self.python].search(text, at)
        if match is None:
            _keep(kept, BLANKS.sub(b" ", text[at:]))
            return len(text)
        _keep(kept, BLANKS.sub(b" ", text[at : match.start()]))
        found = match[0]
        if found in (b"#", b"//"):
            return len(text)
        if len(found) > 1:
            self.inside = b"*/" if found == b"/*" else found
            _keep(kept, b" " if found == b"/*" else found)
            return match.end()
        string = STRING.match(text, match.start())
        if string is None:
            self.certain = False
            kept.append(text[match.start() :])
            return len(text)
        kept.append(string[0])
        return string.end()


def _keep(kept: list[bytes], piece: bytes) -> None:
    """Append code. A comment between two blanks leaves one."""
    more = piece[1:] if kept and kept[-1].endswith(b" ") and piece.startswith(b" ") else piece
    if more:
        kept.append(more)


def _without_dead(lines: Sequence[bytes]) -> list[bytes]:
    """The same without what stands between `#if 0` and its end; the directives stay."""
    found: list[bytes] = []
    depth = 0
    for line in lines:
        directive = DIRECTIVE.match(line)
        word = directive[1] if directive else b""
        if depth and word.startswith(b"if"):
            depth += 1
        elif depth and (word == b"endif" or (depth == 1 and word in (b"else", b"elif"))):
            depth = depth - 1 if word == b"endif" else 0
        elif not depth and directive and word == b"if" and directive[2].strip() == b"0":
            depth = 1
            found.append(line)
            continue
        found.append(b"" if depth else line)
    return found


def _idle_strings(content: bytes) -> list[tuple[int, int]]:
    """First and last lines (from 1) of strings that stand for themselves below the first statement of a block."""
    if b'"""' not in content and b"'''" not in content:
        return []
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    found = []
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            for place, statement in enumerate(block if isinstance(block, list) else ()):
                documents = place == 0 and name == "body" and isinstance(node, DOCUMENTED)
                if _is_string(statement) and not documents:
                    found.append((statement.lineno, statement.end_lineno or statement.lineno))
    return found


def _is_string(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)
