"""Which function or class a line belongs to, and the fingerprint of that symbol.

Python: by its syntax tree, and by indentation where a file cannot be parsed. Languages with declarations at the left
margin: from one declaration to the next, and inside of a class by the indented declarations.
"""

from __future__ import annotations

import ast
import hashlib
import io
import re
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from graft.patching.blocks import split

#: git's own rule for the text behind @@ in files without a language driver, and its length.
GIT_HEADING = re.compile(rb"^[A-Za-z_$]")
HEADING_LENGTH = 80
NAMED = re.compile(r"^\s*(?:async\s+def|def|class|cdef|cpdef)\s+(?:class\s+)?(?:[\w\[\]*, ]*\s)?(\w+)(?=\s*[(:\[])")
PYTHON = (".py", ".pyi", ".pyx")
#: Languages in which an unindented line is a declaration, so that git's heading names a symbol.
DECLARED = (".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hpp", ".hxx", ".go", ".java", ".js", ".rs", ".ts")
DECLARED_NAME = re.compile(r"\b(?:class|struct|union|enum|namespace)\s+(\w+)|(\w+)\s*\(")
#: `public:` and goto labels stand at the margin, but declare nothing.
LABEL = re.compile(rb"^\w+\s*:(?!:)")
NAMESPACE = re.compile(rb"^(?:inline\s+)?namespace\b\s*([\w:]*)|^extern\s+\"C\"\s*\{")
#: An indented declaration of a function: a name, brackets, and an opening brace at the end; no statement.
METHOD = re.compile(rb"^[ \t]+(?:[\w:<>,&*~ \t]+[ \t&*])?([\w~]+)[ \t]*\([^;]*\{[ \t]*$")
STATEMENTS = frozenset(b"if for while switch catch return else do try match loop using synchronized function".split())
FINGERPRINT_LENGTH = 16
#: Where a statement holds others: `def` and `class` stand nowhere else.
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
SKIPPED = frozenset({tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER})
UNREADABLE = (tokenize.TokenError, SyntaxError, ValueError)
#: What a syntax tree may fail on: wrong syntax, bytes that are no text, nesting that is too deep.
NO_TREE = (SyntaxError, ValueError, RecursionError, MemoryError)


@dataclass(frozen=True)
class Symbol:
    """A function or class: dotted name, and its lines (from 1, both included).

    name:    the second one of a name is `name#2`: a property and its setter, or two definitions under an `if`.
    heading: the whole declaration, blanks made one; empty in Python, whose names are unique enough.
    """

    name: str
    first: int
    last: int
    heading: str = ""


def has_symbols(path: str) -> bool:
    """Whether a hunk's heading says something about the code's structure."""
    return path.endswith((*PYTHON, *DECLARED))


def symbols_of(path: str, content: bytes) -> list[Symbol]:
    """Every function and class of a file; none when its language is unknown."""
    if path.endswith(PYTHON):
        return _numbered(_python_symbols(path, content))
    return _numbered(_sections(split(content))) if path.endswith(DECLARED) else []


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
    except UNREADABLE:
        digest.update(text)
    return digest.hexdigest()[:FINGERPRINT_LENGTH]


def words_of(content: bytes, symbol: Symbol) -> list[str]:
    """The tokens of a Python symbol, to see how alike two are."""
    try:
        return [token for _, token in _tokens(symbol_text(content, symbol)) if token]
    except UNREADABLE:
        return []


def symbol_text(content: bytes, symbol: Symbol) -> bytes:
    """The symbol's lines, without the indentation of its first; a blank line stays one, it may stand in a string."""
    lines = split(content)[symbol.first - 1 : symbol.last]
    indent = len(lines[0]) - len(lines[0].lstrip())
    return b"".join(
        line.lstrip(b" \t") if not line.strip() else line[indent:] if line[:indent].isspace() or not indent else line
        for line in lines
    )


def _tokens(text: bytes) -> Iterable[tuple[int, str]]:
    for token in tokenize.tokenize(io.BytesIO(text).readline):
        if token.type not in SKIPPED:
            yield token.type, token.string if token.type not in (tokenize.INDENT, tokenize.NEWLINE) else ""


def git_heading(lines: Sequence[bytes], at: int) -> str:
    """What git would write behind @@ for a hunk that begins at index `at`."""
    for index in range(min(at, len(lines)) - 1, -1, -1):
        if GIT_HEADING.match(lines[index]):
            return heading_text(lines[index])
    return ""


def heading_text(line: bytes) -> str:
    """A line as git shortens it for a hunk's header."""
    return line[:HEADING_LENGTH].rstrip().decode("utf-8", "replace")


def named(heading: str) -> str | None:
    """The name that a heading of a Python file defines; None when it defines none."""
    match = NAMED.match(heading)
    return match[1] if match else None


def _numbered(symbols: Iterable[Symbol]) -> list[Symbol]:
    seen: dict[str, int] = {}
    found = []
    for symbol in sorted(symbols, key=lambda s: (s.first, -s.last)):
        count = seen[symbol.name] = seen.get(symbol.name, 0) + 1
        found.append(symbol if count == 1 else replace(symbol, name=f"{symbol.name}#{count}"))
    return found


def _sections(lines: Sequence[bytes]) -> Iterator[Symbol]:
    heads = [i for i, line in enumerate(lines) if GIT_HEADING.match(line) and not LABEL.match(line)]
    spaces = _namespaces(lines)
    for head, end in zip(heads, [*heads[1:], len(lines)], strict=False):
        name = spaces[head] + _declared_name(heading_text(lines[head]))
        yield Symbol(name, head + 1, end, _declaration(lines, head))
        yield from _methods(lines, head, end, name)


def _namespaces(lines: Sequence[bytes]) -> list[str]:
    """For each line the namespaces around it, `a::b::`; what stands in them is mostly not indented."""
    open_ones: list[str | None] = []
    found: list[str] = []
    for index, line in enumerate(lines):
        found.append("".join(f"{name}::" for name in open_ones if name is not None))
        if line.startswith(b"}"):
            del open_ones[-1:]
        elif GIT_HEADING.match(line) and not LABEL.match(line):
            space = NAMESPACE.match(line)
            if space is not None and b"}" not in line:
                open_ones.append((space[1] or b"").decode("utf-8", "replace"))
            elif line.count(b"{") > line.count(b"}") or (b";" not in line and _opens_below(lines, index)):
                open_ones.append(None)
    return found


def _opens_below(lines: Sequence[bytes], head: int) -> bool:
    """Whether a declaration over several lines opens its brace before anything else stands at the margin."""
    for line in lines[head + 1 : head + 20]:
        if line.startswith(b"{") or (b"{" in line and not GIT_HEADING.match(line)):
            return True
        if GIT_HEADING.match(line) or line.startswith(b"}") or b";" in line:
            return False
    return False


def _methods(lines: Sequence[bytes], head: int, end: int, outer: str) -> Iterator[Symbol]:
    """Functions that are declared inside of a section, each up to the brace at its own indentation."""
    index = head + 1
    while index < end:
        match = METHOD.match(lines[index].rstrip(b"\r\n"))
        if match is None or match[1] in STATEMENTS:
            index += 1
            continue
        indent = lines[index][: len(lines[index]) - len(lines[index].lstrip())]
        closing = re.compile(b"^" + re.escape(indent) + rb"\}")
        last = next((i for i in range(index + 1, end) if closing.match(lines[i])), index)
        name = f"{outer}.{match[1].decode('utf-8', 'replace')}"
        yield Symbol(name, index + 1, last + 1, _declaration(lines, index))
        index = last + 1


def _declaration(lines: Sequence[bytes], head: int) -> str:
    """The text of a declaration up to its brace or semicolon, at most five lines of it."""
    text = b" ".join(lines[head : head + 5])
    end = min([i for i in (text.find(b"{"), text.find(b";")) if i >= 0] or [len(lines[head])])
    return " ".join(text[:end].decode("utf-8", "replace").split())


def _declared_name(heading: str) -> str:
    found = [match[1] or match[2] for match in DECLARED_NAME.finditer(heading)]
    return found[0] if found else heading.rstrip(" {;")


def _python_symbols(path: str, content: bytes) -> Iterable[Symbol]:
    # The parser ends lines at \r too, we and git do not: then its numbers are not ours.
    if path.endswith(".pyx") or b"\r" in content.replace(b"\r\n", b""):
        return _indented_symbols(content)
    try:
        tree = ast.parse(content)
    except NO_TREE:
        return _indented_symbols(content)
    return _tree_symbols(tree)


def _tree_symbols(tree: ast.Module) -> list[Symbol]:
    found: list[Symbol] = []
    # Not by recursion: a chain of elif is nested as deep as it is long.
    open_nodes: list[tuple[ast.AST, str]] = [(tree, "")]
    while open_nodes:
        node, prefix = open_nodes.pop()
        for child in (child for block in BLOCKS for child in getattr(node, block, ())):
            inner = prefix
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                first = min([child.lineno, *(d.lineno for d in child.decorator_list)])
                found.append(Symbol(f"{prefix}{child.name}", first, child.end_lineno or child.lineno))
                inner = f"{prefix}{child.name}."
            open_nodes.append((child, inner))
    return found


def _indented_symbols(content: bytes) -> list[Symbol]:
    """By indentation alone, for what this Python cannot parse."""
    found: list[Symbol] = []
    around: list[tuple[int, str, int]] = []
    last = 0

    def close(indent: int) -> None:
        while around and around[-1][0] >= indent:
            _, name, first = around.pop()
            found.append(Symbol(name, first, last))

    for number, line in enumerate(split(content), 1):
        text = line.decode("utf-8", "replace")
        if not text.strip() or text.lstrip().startswith("#"):
            continue
        indent = len(text.expandtabs()) - len(text.expandtabs().lstrip())
        close(indent)
        if (name := named(text)) is not None:
            prefix = f"{around[-1][1]}." if around else ""
            around.append((indent, f"{prefix}{name}", number))
        last = number
    close(0)
    return found
