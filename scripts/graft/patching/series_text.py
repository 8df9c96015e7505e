"""Edits of series.yaml and of a recipe's list of patches as text: comments and layout stay as they are.

Each edit is read again and must say exactly what was meant; where it does not, the file is written in a way that
cannot be edited line by line, and a person has to do it (BadInput).
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from graft.errors import BadInput
from graft.yamlio import Document, dump, parse

DASH = re.compile(r"^( *)-(?: |$)")
WIDTH = 120
HEAD = "# Order is the order of application.\ncomponent: {component}\npatches:\n"


def new_series(component: str, record: Mapping[str, Any]) -> bytes:
    """A series of one patch."""
    return (HEAD.format(component=component) + _record_text(record, "  ")).encode()


def with_record(raw: bytes, path: Path, record: Mapping[str, Any]) -> bytes:
    """The series with a record behind the last. Raises BadInput."""
    document, text = _Text.of(raw, path)
    gap = text.gaps[-2] if len(text.gaps) > 1 else []
    body = [*text.lines[: text.ends[-1]], *gap, *_record_text(record, text.indent).splitlines(keepends=True)]
    made = "".join([*body, *text.lines[text.ends[-1] :]])
    return _proven(raw, path, made, _with_patches(document, [*document.data["patches"], dict(record)]))


def without_record(raw: bytes, path: Path, patch_id: str) -> bytes:
    """The series without one record and the comments right above it. Raises BadInput."""
    document, text = _Text.of(raw, path)
    ids = [record["id"] for record in document.data["patches"]]
    gone = ids.index(patch_id)
    first = text.starts[gone]
    last = text.starts[gone + 1] if gone + 1 < len(ids) else text.ends[gone]
    if gone and gone + 1 == len(ids):
        first = text.ends[gone - 1]
    made = "".join([*text.lines[:first], *text.lines[last:]])
    left = [record for record in document.data["patches"] if record["id"] != patch_id]
    return _proven(raw, path, made, _with_patches(document, left))


def reordered(raw: bytes, path: Path, ids: Sequence[str]) -> bytes:
    """The series with its records in the order of `ids`, which names each once. Raises BadInput."""
    document, text = _Text.of(raw, path)
    records = {record["id"]: record for record in document.data["patches"]}
    if list(records) == list(ids):
        return raw
    blocks = {name: text.lines[start:end] for name, start, end in zip(records, text.starts, text.ends, strict=True)}
    made = [*text.lines[: text.starts[0]]]
    for name, gap in zip(ids, text.gaps, strict=True):
        made += [*blocks[name], *gap]
    made += text.lines[text.ends[-1] + len(text.gaps[-1]) :]
    return _proven(raw, path, "".join(made), _with_patches(document, [records[name] for name in ids]))


def without_ref(raw: bytes, path: Path, ref: str) -> bytes:
    """A recipe that no longer lists a patch. Raises BadInput."""
    document = parse(raw, path)
    left = [name for name in document.data["patches"] if name != ref]
    expected = {**document.data, "patches": left}
    text, ending = _unified(raw)
    for made in _ref_edits(document, text, ref, empty=not left):
        if _says(made, path, expected):
            return made.replace("\n", ending).encode()
    raise _by_hand(path, f"take {ref} out of its `patches`")


def _ref_edits(document: Document, text: str, ref: str, *, empty: bool) -> Iterator[str]:
    """Ways to take a name out of a list; the right one is the one that reads as meant."""
    lines = text.splitlines(keepends=True)
    key = document.lines[("patches",)] - 1
    for index in range(key, len(lines)):
        line = lines[index]
        if re.match(rf"^ *- +(['\"]?){re.escape(ref)}\1 *(?:#.*)?$", line.rstrip("\n")):
            head = [re.sub(r"^(patches:)", r"\1 []", lines[key])] if empty else [lines[key]]
            yield "".join([*lines[:key], *head, *lines[key + 1 : index], *lines[index + 1 :]])
        for found in re.finditer(rf"(['\"]?)(?<![\w/.-]){re.escape(ref)}(?![\w/.-])\1", line):
            before, after = line[: found.start()], line[found.end() :]
            # Its comma goes with it: the one behind it, or the one before the last.
            follows = re.match(r"\s*,[ \t]*", after)
            kept = before + after[follows.end() :] if follows else re.sub(r",\s*$", "", before) + after
            yield "".join([*lines[:index], kept, *lines[index + 1 :]])


class _Text:
    """Where the records of a series stand: lines from `starts` to `ends`, then a gap of blank lines."""

    def __init__(self, lines: list[str], starts: list[int], ends: list[int], indent: str) -> None:
        self.lines, self.starts, self.ends, self.indent = lines, starts, ends, indent
        following = [*starts[1:], len(lines)]
        self.gaps = [_blank(lines[end:start]) for end, start in zip(ends, following, strict=True)]

    @classmethod
    def of(cls, raw: bytes, path: Path) -> tuple[Document, _Text]:
        document = parse(raw, path)
        lines = _unified(raw)[0].splitlines(keepends=True)
        dashes = [_dash(lines, document.lines[("patches", i)] - 1) for i in range(len(document.data["patches"]))]
        indents = {DASH.match(lines[dash])[1] for dash in dashes if dash >= 0}  # type: ignore[index]
        if -1 in dashes or len(indents) != 1 or sorted(set(dashes)) != dashes:
            raise _by_hand(path, "edit its `patches`")
        if lines and not lines[-1].endswith("\n"):
            lines[-1] += "\n"
        keys = [line - 1 for at, line in document.lines.items() if len(at) == 1 and line - 1 > dashes[-1]]
        end = min([*keys, len(lines)])
        indent = indents.pop()
        starts = [dashes[0], *(_comments_above(lines, dash, indent) for dash in dashes[1:])]
        ends = [_last(lines, dash, end, indent) for dash, end in zip(dashes, [*starts[1:], end], strict=True)]
        return document, cls(lines, starts, ends, indent)


def _dash(lines: Sequence[str], index: int) -> int:
    """The line of the dash of an item whose first key stands at `index`; -1 when there is none."""
    while index > 0 and not DASH.match(lines[index]) and not lines[index - 1].split("#")[0].strip().endswith(":"):
        index -= 1
    return index if DASH.match(lines[index]) else -1


def _comments_above(lines: Sequence[str], dash: int, indent: str) -> int:
    while _is_comment(lines[dash - 1], indent):
        dash -= 1
    return dash


def _last(lines: Sequence[str], dash: int, end: int, indent: str) -> int:
    """Behind the last line of an item, without blank lines and comments that belong to what follows."""
    while end > dash + 1 and (not lines[end - 1].strip() or _is_comment(lines[end - 1], indent)):
        end -= 1
    return end


def _is_comment(line: str, indent: str) -> bool:
    return line.lstrip().startswith("#") and len(line) - len(line.lstrip()) <= len(indent)


def _blank(lines: Sequence[str]) -> list[str]:
    count = next((i for i, line in enumerate(lines) if line.strip()), len(lines))
    return list(lines[:count])


def _with_patches(document: Document, patches: list[Any]) -> dict[str, Any]:
    return {**document.data, "patches": patches}


def _unified(raw: bytes) -> tuple[str, str]:
    """The text with \\n line ends, and the line end that it has."""
    text = raw.decode("utf-8")
    if "\r\n" in text and text.count("\r\n") == text.count("\n"):
        return text.replace("\r\n", "\n"), "\r\n"
    return text, "\n"


def _proven(raw: bytes, path: Path, made: str, expected: dict[str, Any]) -> bytes:
    if not _says(made, path, expected):
        raise _by_hand(path, "edit its `patches`")
    return made.replace("\n", _unified(raw)[1]).encode()


def _says(text: str, path: Path, expected: dict[str, Any]) -> bool:
    try:
        return bool(parse(text.encode(), path).data == expected)
    except BadInput:
        return False


def _by_hand(path: Path, what: str) -> BadInput:
    return BadInput(
        "written in a way that cannot be edited line by line; nothing was changed",
        where=str(path),
        cure=f"{what} by hand, or write one record below the other with a dash in front of each",
    )


def _record_text(record: Mapping[str, Any], indent: str) -> str:
    lines = [line for key, value in record.items() for line in _field(key, value, f"{indent}  ")]
    return "".join([f"{indent}- {lines[0][len(indent) + 2 :]}", *lines[1:]])


def _field(key: str, value: Any, indent: str) -> list[str]:
    if not isinstance(value, str):
        # Lists of plain names.
        return [f"{indent}{key}: [{', '.join(value)}]\n"]
    line = f"{indent}{dump({key: value})}"
    if len(line) <= WIDTH or "  " in value or value != value.strip():
        return [line]
    wrapped = textwrap.wrap(value, WIDTH - len(indent) - 2, break_long_words=False, break_on_hyphens=False)
    return [f"{indent}{key}: >-\n", *(f"{indent}  {part}\n" for part in wrapped)]
