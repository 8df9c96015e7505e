"""Edits of single values in a YAML file that people wrote: comments, quotes and layout stay as they are."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from graft.errors import BadInput
from graft.yamlio import Position, parse


def with_values(raw: bytes, path: Path, changes: Mapping[Position, str]) -> bytes:
    """The file with other strings at some positions; each must hold a string now.

    The result is read again and must say exactly what was meant. Raises BadInput where a value is written in a way
    that cannot be exchanged in its line.
    """
    for position, value in changes.items():
        document = parse(raw, path)
        expected = copy.deepcopy(document.data)
        holder = _holder(expected, position)
        old = holder[position[-1]]
        holder[position[-1]] = value
        if old == value:
            continue
        line = document.lines[position]
        made = next((m for m in _attempts(raw, line, str(old), value) if _says(m, path, expected)), None)
        if made is None:
            at = ".".join(str(step) for step in position)
            raise BadInput(f"{at} cannot be edited in place", where=f"{path}:{line}", cure=f"write {value!r} there")
        raw = made
    return raw


def _holder(data: Any, position: Position) -> Any:
    for step in position[:-1]:
        data = data[step]
    return data


def _attempts(raw: bytes, line: int, old: str, new: str) -> Iterator[bytes]:
    """Each place of the value in its line, or in one of the two below it (a key whose value is on its own line)."""
    lines = raw.decode("utf-8").splitlines(keepends=True)
    for index in range(line - 1, min(line + 2, len(lines))):
        text = lines[index]
        for found in re.finditer(rf"(?<![\w.+-]){re.escape(old)}(?![\w.+-])", text):
            # In quotes too: plain digits are a number to YAML.
            for written in (new, f'"{new}"'):
                made = text[: found.start()] + written + text[found.end() :]
                yield "".join([*lines[:index], made, *lines[index + 1 :]]).encode()


def _says(made: bytes, path: Path, expected: Any) -> bool:
    try:
        return bool(parse(made, path).data == expected)
    except BadInput:
        return False
