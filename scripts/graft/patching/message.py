"""What may stand around the diffs of a patch file: a message above them, a signature below, and nothing else."""

from __future__ import annotations

import re

from graft.patching.lines import Lines
from graft.patching.model import Malformed

HUNK = re.compile(rb"^@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@(?: (.*)|)$")
MAIL = re.compile(rb"^From [0-9a-f]{40} ")


def count(text: bytes | None) -> int:
    return 1 if text is None else int(text)


def skip_message(lines: Lines) -> None:
    """Up to the first `diff --git`. What looks like a diff before the message's end is one that it quotes."""
    first = next((i for i, line in enumerate(lines.lines) if line.startswith(b"diff --git ")), None)
    if first is None:
        raise Malformed(1, "there is no `diff --git` line in it; make the patch with `git diff`")
    for i, line in enumerate(lines.lines[:first]):
        if line.startswith((b"--- ", b"+++ ", b"@@ ", b"Index: ")):
            raise Malformed(i + 1, "a diff stands in the message above the first `diff --git`; indent it")
    _refuse_second_mail(lines)
    _refuse_quoted_diff(lines, first)
    lines.at = first


def _refuse_quoted_diff(lines: Lines, first: int) -> None:
    """A message ends at a line `---`. One that stands below a diff shows that the diff belongs to the message."""
    counting = _HunkCounter()
    for i, line in enumerate(lines.lines[first:], first):
        if not counting.is_inside(line) and line == b"---":
            raise Malformed(first + 1, f"a diff stands in the message, which ends in line {i + 1}; indent it")


def _refuse_second_mail(lines: Lines) -> None:
    counting = _HunkCounter()
    mails = [i for i, line in enumerate(lines.lines) if not counting.is_inside(line) and MAIL.match(line)]
    if len(mails) > 1:
        raise Malformed(mails[1] + 1, "several mails in one file; make one patch of each")


class _HunkCounter:
    """Tells whether a line belongs to a hunk, by the counts of the hunk's header."""

    def __init__(self) -> None:
        self.old = self.new = 0

    def is_inside(self, line: bytes) -> bool:
        if self.old > 0 or self.new > 0:
            kind = line[:1]
            self.old -= kind in (b" ", b"-", b"")
            self.new -= kind in (b" ", b"+", b"")
            return True
        if header := HUNK.match(line):
            self.old, self.new = count(header[2]), count(header[4])
            return True
        return False


def skip_signature(lines: Lines) -> None:
    """`-- ` and one line (git's version) at the very end of the file; blank lines anywhere between sections."""
    if not lines.current.strip():
        lines.at += 1
        return
    rest = [line for line in lines.lines[lines.at + 1 :] if line.strip()]
    if lines.current == b"-- " and len(rest) <= 1:
        lines.at = len(lines.lines)
        return
    raise lines.malformed("text after a hunk: its line counts are wrong, or something was added below it")
