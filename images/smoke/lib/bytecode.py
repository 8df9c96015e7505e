"""Whether cached bytecode is that of its source: Python runs it instead of the source when time and size fit.

A layer gives all files the same time, so an edit that keeps the size leaves bytecode in use that is stale. That is
why nothing but the bytecode itself is believed.
"""

from __future__ import annotations

import importlib.util
import marshal
import re
import sys
from pathlib import Path

HEADER_BYTES = 16
_NAME = re.compile(r"(?P<stem>.+)\.(?P<tag>[^.]+)(?:\.opt-(?P<level>[^.]+))?\.pyc")


def source_of(path: Path) -> Path | None:
    """The source that a file in a __pycache__ folder was compiled from, by its name (PEP 3147)."""
    match = _NAME.fullmatch(path.name) if path.parent.name == "__pycache__" else None
    return path.parent.parent / f"{match['stem']}.py" if match else None


def why_stale(path: Path, *, compare: bool = False) -> str | None:
    """What is wrong with one .pyc of a __pycache__ folder; None when it is its source's bytecode.

    A hash of the source in it (PEP 552) is believed, unless `compare` asks for the code itself.
    """
    match, source = _NAME.fullmatch(path.name), source_of(path)
    if match is None or source is None:
        return "its name is none that Python gives"
    if match["tag"] != sys.implementation.cache_tag:
        return f"bytecode of another Python, {match['tag']}"
    if not source.exists():
        # Python does not look at it; whose file it is, others ask.
        return None
    try:
        text, cached = source.read_bytes(), path.read_bytes()
    except OSError as problem:
        return f"cannot be read: {problem.strerror}"
    if cached[:4] != importlib.util.MAGIC_NUMBER or len(cached) < HEADER_BYTES:
        return "bytecode of another Python"
    if cached[4] & 1:
        if cached[8:HEADER_BYTES] != importlib.util.source_hash(text):
            return "compiled from another source: the hash in it is not that of the file"
        if not compare:
            return None
    level = int(match["level"]) if match["level"] else 0
    try:
        same = marshal.loads(cached[HEADER_BYTES:]) == compile(
            text, str(source), "exec", dont_inherit=True, optimize=level
        )
    except (ValueError, EOFError, TypeError, SyntaxError) as problem:
        return f"cannot be compared with its source: {problem}"
    return None if same else "its code is not what the source compiles to"
