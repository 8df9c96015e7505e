"""Which function or class a line belongs to, and the fingerprint of that symbol."""

from __future__ import annotations

import ast
import hashlib
import io
import re
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass

#: git's own rule for the text behind @@ in files without a language driver, and its length.
GIT_HEADING = re.compile(rb"^[A-Za-z_$]")
HEADING_LENGTH = 80
NAMED = re.compile(r"^\s*(?:async\s+def|def|class)\s+(\w+)")
#: Languages in which an unindented line is a declaration, so that git's heading names a symbol.
DECLARED = (".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hpp", ".hxx", ".go", ".java", ".js", ".rs", ".ts")
FINGERPRINT_LENGTH = 16
SKIPPED = frozenset({tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER})


@dataclass(frozen=True)
class Symbol:
    """A function or class: dotted name, and its lines (from 1, both included)."""

    name: str
    first: int
    last: int


def has_symbols(path: str) -> bool:
    """Whether a hunk's heading says something about the code's structure."""
    return path.endswith((".py", *DECLARED))


def enclosing(path: str, content: bytes, first: int, last: int) -> Symbol | None:
    """The innermost function or class of a Python file that holds all of the lines; None outside of any."""
    if not path.endswith(".py"):
        return None
    found = [s for s in _symbols(content) if s.first <= first and last <= s.last]
    return min(found, key=lambda s: s.last - s.first) if found else None


def fingerprint(content: bytes, symbol: Symbol) -> str:
    """Hash of the symbol's tokens without comments and layout: equal while its code is equal."""
    lines = content.splitlines(keepends=True)[symbol.first - 1 : symbol.last]
    indent = len(lines[0]) - len(lines[0].lstrip())
    text = b"".join(line[indent:] if line[:indent].isspace() or not indent else line for line in lines)
    digest = hashlib.sha256()
    try:
        for token in tokenize.tokenize(io.BytesIO(text).readline):
            if token.type not in SKIPPED:
                kind = token.string if token.type not in (tokenize.INDENT, tokenize.NEWLINE) else ""
                digest.update(f"{token.type}:{len(kind)}:{kind}\n".encode())
    except (tokenize.TokenError, IndentationError, SyntaxError):
        digest.update(text)
    return digest.hexdigest()[:FINGERPRINT_LENGTH]


def same_symbol(path: str, heading: str, lines: Sequence[bytes], at: int) -> bool:
    """Whether a hunk found before line `at` (index from 0) has the heading that the patch says.

    Without a heading, or in a file without symbols, there is nothing to compare: True.
    """
    if not heading or not has_symbols(path):
        return True
    here = git_heading(lines, at)
    if here == heading:
        return True
    if not path.endswith(".py"):
        return False
    wanted = NAMED.match(heading)
    if wanted is None:
        return NAMED.match(here) is None
    return wanted[1] in _names_above(lines, at)


def git_heading(lines: Sequence[bytes], at: int) -> str:
    """What git would write behind @@ for a hunk that begins at index `at`."""
    for line in reversed(lines[:at]):
        if GIT_HEADING.match(line):
            return line[:HEADING_LENGTH].rstrip().decode("utf-8", "replace")
    return ""


def defines(path: str, content: bytes, heading: str) -> bool | None:
    """Whether a Python file still has the function or class of a heading; None when that cannot be said."""
    wanted = NAMED.match(heading)
    if not path.endswith(".py") or wanted is None:
        return None
    return wanted[1] in names(content)


def names(content: bytes) -> set[str]:
    """Names of all functions and classes."""
    lines = content.decode("utf-8", "replace").splitlines()
    return {match[1] for line in lines if (match := NAMED.match(line))}


def _names_above(lines: Sequence[bytes], at: int) -> set[str]:
    """Names of the classes and functions around index `at`: the chain of shrinking indentation above it."""
    found: set[str] = set()
    depth: int | None = None
    for line in reversed(lines[:at]):
        text = line.decode("utf-8", "replace")
        match = NAMED.match(text)
        if match is None:
            continue
        indent = len(text) - len(text.lstrip())
        if depth is None or indent < depth:
            found.add(match[1])
            depth = indent
    return found


def _symbols(content: bytes) -> list[Symbol]:
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):
        return []
    found: list[Symbol] = []

    def walk(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                first = min([child.lineno, *(d.lineno for d in child.decorator_list)])
                name = f"{prefix}{child.name}"
                found.append(Symbol(name, first, child.end_lineno or child.lineno))
                walk(child, f"{name}.")
            else:
                walk(child, prefix)

    walk(tree, "")
    return found
