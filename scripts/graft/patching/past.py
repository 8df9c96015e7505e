"""What is known of a patch at the version that it was made for: where its changes stood, and what they made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from graft.patching import symbols
from graft.patching.context import Context
from graft.patching.model import FileDiff, Hunk
from graft.patching.symbols import Symbol
from graft.patching.view import View


@dataclass(frozen=True)
class PastFile:
    """One file of that version, before the patch and after it.

    places, after_places: the line index (from 0) of each hunk's pre-image before, and of its post-image after.
    """

    before: View
    after: View
    places: tuple[int, ...]
    after_places: tuple[int, ...]

    def around(self, number: int, hunk: Hunk) -> Symbol | None:
        """The symbol that the hunk changed; None when it stood outside of any."""
        return self.before.around(hunk, self.places[number - 1])

    def context(self, number: int, line: int) -> Context:
        """What a line of the hunk's post-image (from 0) depends on, in the patched file."""
        return self.after.context(self.after_places[number - 1] + line)

    def code(self, number: int, hunk: Hunk) -> tuple[bytes, ...]:
        """The code of the hunk's pre-image, read where it stands."""
        place = self.places[number - 1]
        return self.before.code[place : place + len(hunk.before)]

    def made(self, number: int, hunk: Hunk) -> tuple[bytes, ...]:
        """The code of its post-image, read where it stands."""
        place = self.after_places[number - 1]
        return self.after.code[place : place + len(hunk.after)]


@dataclass(frozen=True)
class Past:
    """files:   what the patch did to the files of that version; only those in which every hunk could be placed.

    symbols: `path::name` of each Python symbol that it changed -> fingerprint, as the lock holds them.
    gone:    path -> texts of upstream that the patch works around, from its record.
    """

    files: Mapping[str, PastFile] = field(default_factory=dict)
    symbols: Mapping[str, str] = field(default_factory=dict)
    gone: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def scopes(self, view: View, diff: FileDiff, number: int, hunk: Hunk) -> list[Symbol | None]:
        """Where in `view` the changed code should be found: symbols, or [None] for the whole file.

        Empty when the symbol that it was in does not exist any more, or when it cannot be told which one it is.
        """
        known = self.files.get(diff.path)
        if known is not None:
            was = known.around(number, hunk)
            return [None] if was is None else _some(view.named(was))
        if not symbols.has_symbols(diff.path) or at_margin(hunk) or not view.symbols:
            return [None]
        locked = self.locked(diff.path, hunk)
        if locked:
            return [s for s in view.symbols if s.name in locked]
        if not hunk.heading or symbols.LABEL.match(hunk.heading.encode()):
            return [None]
        if diff.path.endswith(symbols.PYTHON):
            name = symbols.named(hunk.heading)
            return [None] if name is None else _only([s for s in view.symbols if s.name == name])
        headed = [s for s in view.symbols if _heading(view, s) == hunk.heading]
        return _only(headed)

    def wanted(self, diff: FileDiff, number: int, hunk: Hunk) -> str:
        """The name of the symbol that `scopes` looks for; empty when it looks for none."""
        known = self.files.get(diff.path)
        if known is not None and (was := known.around(number, hunk)) is not None:
            return was.name
        return " or ".join(self.locked(diff.path, hunk)) or symbols.named(hunk.heading) or hunk.heading

    def locked(self, path: str, hunk: Hunk) -> list[str]:
        """The locked symbols of a file that the hunk can have been in: git's heading names the outermost."""
        name = symbols.named(hunk.heading)
        found = sorted(n.partition("::")[2] for n in self.symbols if n.partition("::")[0] == path)
        return [n for n in found if name is None or n.partition(".")[0].partition("#")[0] == name]


def defined_again(known: PastFile, view: View, number: int, hunk: Hunk) -> str:
    """The name of the hunk's symbol when it is defined more, or less, often than it was: which one counts is open."""
    was = known.around(number, hunk)
    if was is None:
        return ""
    name = was.name.partition("#")[0]
    before, now = (sum(s.name.partition("#")[0] == name for s in v.symbols) for v in (known.before, view))
    return name if now != before and now else ""


def at_margin(hunk: Hunk) -> bool:
    """Whether the hunk changes lines at the left margin: then git's heading names what stands above them."""
    changed = [line for run in (*hunk.added, *hunk.removed) for line in run if line.strip()]
    return any(not line[:1].isspace() for line in changed)


def _heading(view: View, symbol: Symbol) -> str:
    return symbols.heading_text(view.lines[symbol.first - 1])


def _some(found: Symbol | None) -> list[Symbol | None]:
    return [] if found is None else [found]


def _only(found: list[Symbol]) -> list[Symbol | None]:
    return [found[0]] if len(found) == 1 else []


NOTHING_KNOWN = Past()
