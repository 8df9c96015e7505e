"""Reads git-style unified diffs, strictly: what git would skip, guess or repair is malformed here."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from graft.patching.lines import Lines, decoded, unquote
from graft.patching.message import HUNK, count, skip_message, skip_signature
from graft.patching.model import FileDiff, Hunk, Malformed, ParsedPatch

INDEX = re.compile(rb"^index ([0-9a-f]{4,64})\.\.([0-9a-f]{4,64})(?: ([0-7]{6}))?$")
MODES = {
    b"old mode ": ("old_mode",),
    b"new mode ": ("new_mode",),
    b"new file mode ": ("new_mode", "is_new"),
    b"deleted file mode ": ("old_mode", "is_deleted"),
}


def parse(data: bytes) -> ParsedPatch:
    """The patch as data. Raises Malformed with the line and the reason."""
    lines = Lines(data)
    skip_message(lines)
    files: list[FileDiff] = []
    while not lines.at_end:
        if lines.current.startswith(b"diff --git "):
            files.append(_file(lines))
            continue
        skip_signature(lines)
    seen: set[str] = set()
    for diff in files:
        for path in diff.paths:
            if path in seen:
                raise Malformed(diff.at_line, f"{path} is changed twice in one patch; make one section of the two")
            seen.add(path)
    return ParsedPatch(tuple(files))


@dataclass
class _Header:
    old_mode: str | None = None
    new_mode: str | None = None
    index_mode: str | None = None
    is_new: bool = False
    is_deleted: bool = False
    rename_from: str | None = None
    rename_to: str | None = None
    blobs: tuple[str, str] = ("", "")
    minus: str | None = None
    plus: str | None = None
    has_names: bool = False
    binary: bool = False
    hunks: list[Hunk] = field(default_factory=list)


def _file(lines: Lines) -> FileDiff:
    start, title = lines.number, lines.current
    if title.endswith(b"\r"):
        raise lines.malformed("the patch file has CRLF line ends in its headers; it was converted on its way")
    lines.at += 1
    header = _Header()
    while not lines.at_end and _header_line(lines, header):
        lines.at += 1
    while not lines.at_end and lines.current.startswith(b"@@"):
        if not header.has_names:
            raise lines.malformed("a hunk without `---` and `+++` lines above it")
        header.hunks.append(_hunk(lines, header))
    return _checked(header, title, start)


def _header_line(lines: Lines, header: _Header) -> bool:
    """Reads one line of a file's header; False when it is not one."""
    line = lines.current
    for prefix, (attribute, *flags) in MODES.items():
        if line.startswith(prefix):
            setattr(header, attribute, _mode(lines, line.removeprefix(prefix)))
            for flag in flags:
                setattr(header, flag, True)
            return True
    if match := INDEX.match(line):
        header.blobs = (match[1].decode(), match[2].decode())
        header.index_mode = match[3].decode() if match[3] else None
    elif line.startswith(b"rename from "):
        header.rename_from = _text(lines, line.removeprefix(b"rename from "))
    elif line.startswith(b"rename to "):
        header.rename_to = _text(lines, line.removeprefix(b"rename to "))
    elif line.startswith((b"copy from ", b"copy to ")):
        raise lines.malformed("copies are not supported; make the patch with `git diff --no-renames`")
    elif line.startswith((b"similarity index ", b"dissimilarity index ")):
        pass
    elif line.startswith((b"GIT binary patch", b"Binary files ")):
        header.binary = True
        _skip_binary(lines)
    elif line.startswith(b"--- "):
        _names(lines, header)
    else:
        return False
    return True


def _mode(lines: Lines, text: bytes) -> str:
    if not re.fullmatch(rb"[0-7]{6}", text):
        raise lines.malformed(f"{text.decode(errors='replace')!r} is not a file mode")
    return text.decode()


def _skip_binary(lines: Lines) -> None:
    while lines.at + 1 < len(lines.lines) and not lines.lines[lines.at + 1].startswith((b"diff --git ", b"-- ")):
        lines.at += 1


def _names(lines: Lines, header: _Header) -> None:
    if lines.at + 1 >= len(lines.lines) or not lines.lines[lines.at + 1].startswith(b"+++ "):
        raise lines.malformed("`---` without `+++` in the next line")
    header.minus = _name(lines, lines.current.removeprefix(b"--- "), b"a/")
    lines.at += 1
    header.plus = _name(lines, lines.current.removeprefix(b"+++ "), b"b/")
    header.has_names = True


def _name(lines: Lines, text: bytes, prefix: bytes) -> str | None:
    """The path of a `---` or `+++` line; None for /dev/null. git puts a tab behind a name with a space."""
    if text.endswith(b"\r"):
        raise lines.malformed("the patch file has CRLF line ends in its headers; it was converted on its way")
    raw = unquote(lines, text.removesuffix(b"\t")) if text.startswith(b'"') else text.partition(b"\t")[0]
    if raw == b"/dev/null":
        return None
    if not raw.startswith(prefix):
        raise lines.malformed(
            f"paths must begin with {prefix.decode()} (-p1); make the patch with `git diff` and its default prefixes"
        )
    return decoded(lines, raw.removeprefix(prefix))


def _text(lines: Lines, text: bytes) -> str:
    return decoded(lines, unquote(lines, text) if text.startswith(b'"') else text)


def _hunk(lines: Lines, header: _Header) -> Hunk:
    at, match = lines.number, HUNK.match(lines.current)
    if match is None:
        raise lines.malformed("not a hunk header such as `@@ -1,3 +1,4 @@`")
    old_start, old_left, new_left = int(match[1]), count(match[2]), count(match[4])
    body: list[tuple[bytes, bytes]] = []
    lines.at += 1
    while old_left > 0 or new_left > 0:
        kind, text = _body_line(lines)
        old_left -= kind in b" -"
        new_left -= kind in b" +"
        if old_left < 0 or new_left < 0:
            raise Malformed(at, "the hunk's line counts do not fit its lines")
        body.append((kind, text))
        if not lines.at_end and lines.current.startswith(b"\\"):
            body[-1] = (kind, text.removesuffix(b"\n"))
            lines.at += 1
    made = _made_hunk(old_start, body, (match[5] or b"").decode("utf-8", "replace").rstrip("\r"), at)
    _check_hunk(made, header)
    return made


def _body_line(lines: Lines) -> tuple[bytes, bytes]:
    if lines.at_end:
        raise lines.malformed("the patch ends in the middle of a hunk")
    line = lines.current
    # Editors and mailers strip the blank of an empty context line; git reads it so too.
    kind, text = (line[:1], line[1:]) if line else (b" ", b"")
    if kind not in (b" ", b"+", b"-"):
        raise lines.malformed("neither context nor a change: the hunk's line counts are wrong, or it is truncated")
    if lines.at + 1 == len(lines.lines) and not lines.complete:
        raise lines.malformed("the patch file ends without a newline: it is truncated")
    lines.at += 1
    return kind, text + b"\n"


def _made_hunk(old_start: int, body: list[tuple[bytes, bytes]], heading: str, at: int) -> Hunk:
    changed = [i for i, (kind, _) in enumerate(body) if kind != b" "]
    if not changed:
        raise Malformed(at, "the hunk changes nothing")
    return Hunk(
        old_start=old_start,
        before=tuple(text for kind, text in body if kind != b"+"),
        after=tuple(text for kind, text in body if kind != b"-"),
        added=_runs(body, b"+"),
        removed=_runs(body, b"-"),
        heading=heading,
        at_line=at,
        leading=changed[0],
        trailing=len(body) - 1 - changed[-1],
    )


def _runs(body: Iterable[tuple[bytes, bytes]], wanted: bytes) -> tuple[tuple[bytes, ...], ...]:
    runs: list[list[bytes]] = []
    previous = b""
    for kind, text in body:
        if kind == wanted:
            if previous != wanted:
                runs.append([])
            runs[-1].append(text)
        previous = kind
    return tuple(tuple(run) for run in runs)


def _check_hunk(hunk: Hunk, header: _Header) -> None:
    for side in (hunk.before, hunk.after):
        if any(not line.endswith(b"\n") for line in side[:-1]):
            raise Malformed(hunk.at_line, "a line without newline stands before another line")
    if header.minus is None and (hunk.before or hunk.old_start != 0):
        raise Malformed(hunk.at_line, "a new file cannot have old lines")
    if header.plus is None and hunk.after:
        raise Malformed(hunk.at_line, "a deleted file cannot have new lines")
    if header.minus is not None and hunk.leading == 0 and hunk.old_start > 1:
        raise Malformed(hunk.at_line, "no context before the change: it could be placed anywhere; use `git diff -U3`")
    if header.minus is not None and not hunk.before and hunk.old_start != 0:
        raise Malformed(hunk.at_line, "no context around the change: it could be placed anywhere; use `git diff -U3`")


def _checked(header: _Header, title: bytes, start: int) -> FileDiff:
    """The file's section, after its parts were compared with each other."""
    old, new = _title_paths(header, title, start)
    if header.has_names:
        if header.minus is None and header.plus is None:
            raise Malformed(start, "both sides are /dev/null")
        expected = (None if header.is_new else old, None if header.is_deleted else new)
        if (header.minus, header.plus) != expected:
            raise Malformed(start, "the paths of `diff --git`, `---` and `+++` do not agree")
        if not header.hunks:
            raise Malformed(start, "`---` and `+++` without a hunk")
    has_change = header.hunks or header.binary or header.is_new or header.is_deleted or header.rename_to
    if not has_change and not (header.old_mode and header.new_mode):
        raise Malformed(start, "the section changes nothing")
    ordered = all(
        a.old_start + len(a.before) <= b.old_start for a, b in zip(header.hunks, header.hunks[1:], strict=False)
    )
    if not ordered:
        raise Malformed(start, "the hunks overlap or are not in the order of the file")
    return FileDiff(
        old=None if header.is_new else old,
        new=None if header.is_deleted else new,
        hunks=tuple(header.hunks),
        at_line=start,
        old_mode=header.old_mode or header.index_mode,
        new_mode=header.new_mode or header.index_mode,
        old_blob=header.blobs[0],
        new_blob=header.blobs[1],
        binary=header.binary,
    )


def _title_paths(header: _Header, title: bytes, start: int) -> tuple[str, str]:
    """Both paths of a section; `diff --git` alone is ambiguous when a name holds a space."""
    if header.is_new and header.is_deleted:
        raise Malformed(start, "a file cannot be new and deleted at once")
    if (header.rename_from is None) != (header.rename_to is None):
        raise Malformed(start, "a rename needs both `rename from` and `rename to`")
    if header.rename_from is not None and (header.is_new or header.is_deleted):
        raise Malformed(start, "a renamed file cannot be new or deleted")
    pairs = _title_pairs(title, start)
    if header.rename_from is not None and header.rename_to is not None:
        if (header.rename_from, header.rename_to) not in pairs:
            raise Malformed(start, "the paths of `diff --git` and of the rename do not agree")
        return header.rename_from, header.rename_to
    same = [old for old, new in pairs if old == new]
    if len(same) != 1:
        raise Malformed(start, "`diff --git` must name one path twice, as a/PATH b/PATH (-p1)")
    return same[0], same[0]


def _title_pairs(title: bytes, start: int) -> list[tuple[str, str]]:
    """Every way to read `diff --git a/X b/Y`."""
    at = Lines(title + b"\n")
    at.at = start - 1
    rest = title.removeprefix(b"diff --git ")
    pairs: list[tuple[bytes, bytes]] = []
    for split in (i for i in range(len(rest)) if rest[i : i + 1] == b" "):
        left, right = rest[:split], rest[split + 1 :]
        sides = []
        for side, prefix in ((left, b"a/"), (right, b"b/")):
            if side.startswith(b'"'):
                if not re.fullmatch(rb'"(?:[^"\\]|\\.)*"', side):
                    break
                side = unquote(at, side)
            if not side.startswith(prefix):
                break
            sides.append(side.removeprefix(prefix))
        if len(sides) == 2:
            pairs.append((sides[0], sides[1]))
    return [(decoded(at, old), decoded(at, new)) for old, new in pairs]
