"""What is known of a patch at the version that it was made for: where its changes stood, and what they made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from graft.patching import symbols
from graft.patching.model import FileDiff, Hunk
from graft.patching.symbols import Symbol
from graft.patching.view import View


@dataclass(frozen=True)
class PastFile:
    """One file of that version, before the patch and after it, and the line index at which each hunk stood."""

    before: View
    after: View
    places: tuple[int, ...]

    def around(self, number: int, hunk: Hunk) -> Symbol | None:
        """The symbol that the hunk changed; None when it stood outside of any."""
        return self.before.around(hunk, self.places[number - 1])


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

        Empty when the symbol that it was in does not exist any more.
        """
        if diff.path in self.files:
            known = self.files[diff.path].around(number, hunk)
            if known is not None:
                return _some(view.named(known))
        locked = [name for name in self._locked(diff.path) if _fits(name, hunk.heading)]
        if locked and diff.path not in self.files:
            return [s for s in view.symbols if s.name in locked]
        if not hunk.heading or not symbols.has_symbols(diff.path):
            return [None]
        if not diff.path.endswith(".py"):
            return [s for s in view.symbols if s.heading == hunk.heading]
        named = symbols.NAMED.match(hunk.heading)
        if named is None or not view.symbols:
            return [None]
        return [s for s in view.symbols if s.name == named[1]]

    def wanted(self, diff: FileDiff, number: int, hunk: Hunk) -> str:
        """The name of the symbol that `scopes` looks for; empty when it looks for none."""
        if diff.path in self.files and (known := self.files[diff.path].around(number, hunk)) is not None:
            return known.name
        locked = [name for name in self._locked(diff.path) if _fits(name, hunk.heading)]
        named = symbols.NAMED.match(hunk.heading)
        return " or ".join(locked) or (named[1] if named else hunk.heading)

    def _locked(self, path: str) -> list[str]:
        return sorted(name.partition("::")[2] for name in self.symbols if name.partition("::")[0] == path)


def _fits(name: str, heading: str) -> bool:
    """git's heading names the outermost symbol."""
    named = symbols.NAMED.match(heading)
    return named is None or name.partition(".")[0] == named[1]


def _some(found: Symbol | None) -> list[Symbol | None]:
    return [] if found is None else [found]


NOTHING_KNOWN = Past()
