"""Which function or class a line belongs to, and the fingerprint of that symbol.

Python: by its syntax tree. Languages with declarations at the left margin: from one of git's headings to the next.
"""

from __future__ import annotations

import ast
import hashlib
import io
import re
import tokenize
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from graft.patching.blocks import split

#: git's own rule for the text behind @@ in files without a language driver, and its length.
GIT_HEADING = re.compile(rb"^[A-Za-z_$]")
HEADING_LENGTH = 80
NAMED = re.compile(r"^\s*(?:async\s+def|def|class)\s+(\w+)")
#: Languages in which an unindented line is a declaration, so that git's heading names a symbol.
DECLARED = (".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hpp", ".hxx", ".go", ".java", ".js", ".rs", ".ts")
DECLARED_NAME = re.compile(r"\b(?:class|struct|union|enum|namespace)\s+(\w+)|(\w+)\s*\(")
FINGERPRINT_LENGTH = 16
#: Where a statement holds others: `def` and `class` stand nowhere else.
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
SKIPPED = frozenset({tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER})


@dataclass(frozen=True)
class Symbol:
    """A function or class: dotted name, and its lines (from 1, both included).

    heading: the line that git would write behind @@ for it; empty in Python, whose names are unique enough.
    """

    name: str
    first: int
    last: int
    heading: str = ""


def has_symbols(path: str) -> bool:
    """Whether a hunk's heading says something about the code's structure."""
    return path.endswith((".py", *DECLARED))


def symbols_of(path: str, content: bytes) -> list[Symbol]:
    """Every function and class of a file; none when its language is unknown or it cannot be parsed."""
    if path.endswith(".py"):
        return _python_symbols(content)
    return _sections(split(content)) if path.endswith(DECLARED) else []


def innermost(symbols: Iterable[Symbol], first: int, last: int) -> Symbol | None:
    """The smallest that holds all of the lines; None outside of any."""
    found = [s for s in symbols if s.first <= first and last <= s.last]
    return min(found, key=lambda s: s.last - s.first) if found else None


def fingerprint(content: bytes, symbol: Symbol) -> str:
    """Hash of a Python symbol's tokens without comments and layout: equal while its code is equal."""
    digest = hashlib.sha256()
    text = symbol_text(content, symbol)
    try:
        for kind, token in _tokens(text):
            digest.update(f"{kind}:{len(token)}:{token}\n".encode())
    except (tokenize.TokenError, IndentationError, SyntaxError):
        digest.update(text)
    return digest.hexdigest()[:FINGERPRINT_LENGTH]


def words_of(content: bytes, symbol: Symbol) -> list[str]:
    """The tokens of a Python symbol, to see how alike two are."""
    try:
        return [token for _, token in _tokens(symbol_text(content, symbol)) if token]
    except (tokenize.TokenError, IndentationError, SyntaxError):
        return []


def symbol_text(content: bytes, symbol: Symbol) -> bytes:
    """The symbol's lines, without the indentation of its first."""
    lines = content.splitlines(keepends=True)[symbol.first - 1 : symbol.last]
    indent = len(lines[0]) - len(lines[0].lstrip())
    return b"".join(line[indent:] if line[:indent].isspace() or not indent else line for line in lines)


def _tokens(text: bytes) -> Iterable[tuple[int, str]]:
    for token in tokenize.tokenize(io.BytesIO(text).readline):
        if token.type not in SKIPPED:
            yield token.type, token.string if token.type not in (tokenize.INDENT, tokenize.NEWLINE) else ""


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
    for index in range(min(at, len(lines)) - 1, -1, -1):
        if GIT_HEADING.match(lines[index]):
            return heading_text(lines[index])
    return ""


def heading_text(line: bytes) -> str:
    """A line as git shortens it for a hunk's header."""
    return line[:HEADING_LENGTH].rstrip().decode("utf-8", "replace")


def defines(path: str, content: bytes, heading: str) -> bool | None:
    """Whether a Python file still has the function or class of a heading; None when that cannot be said."""
    wanted = NAMED.match(heading)
    if not path.endswith(".py") or wanted is None:
        return None
    return wanted[1] in names(content)


def names(content: bytes) -> set[str]:
    """Names of all functions and classes; of a file that cannot be parsed, what looks like one."""
    found = {symbol.name.rpartition(".")[2] for symbol in _python_symbols(content)}
    if found:
        return found
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


def _sections(lines: Sequence[bytes]) -> list[Symbol]:
    heads = [index for index, line in enumerate(lines) if GIT_HEADING.match(line)]
    ends = [*heads[1:], len(lines)] if heads else []
    texts = [heading_text(lines[head]) for head in heads]
    return [
        Symbol(_declared_name(text), head + 1, end, text) for text, head, end in zip(texts, heads, ends, strict=True)
    ]


def _declared_name(heading: str) -> str:
    found = [match[1] or match[2] for match in DECLARED_NAME.finditer(heading)]
    return found[0] if found else heading.rstrip(" {;")


def _python_symbols(content: bytes) -> list[Symbol]:
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError):
        return []
    found: list[Symbol] = []

    def walk(node: ast.AST, prefix: str) -> None:
        for child in (child for block in BLOCKS for child in getattr(node, block, ())):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                first = min([child.lineno, *(d.lineno for d in child.decorator_list)])
                name = f"{prefix}{child.name}"
                found.append(Symbol(name, first, child.end_lineno or child.lineno))
                walk(child, f"{name}.")
            else:
                walk(child, prefix)

    walk(tree, "")
    return found
