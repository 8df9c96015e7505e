"""One file, read once: its lines, its symbols and its code, each made when first asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from graft.patching import symbols
from graft.patching.blocks import find, split
from graft.patching.code import code_of
from graft.patching.context import Context, Contexts
from graft.patching.model import Hunk
from graft.patching.squeeze import squeezed
from graft.patching.symbols import Symbol


class Part:
    """Lines of code with the index (from 0) of each in its file; blocks are found without reading all of them."""

    def __init__(self, numbered: Sequence[tuple[int, bytes]], end: int) -> None:
        self.lines = tuple(line for _, line in numbered)
        self._indices = [index for index, _ in numbered]
        self._end = end

    @cached_property
    def _where(self) -> dict[bytes, list[int]]:
        found: dict[bytes, list[int]] = {}
        for place, line in enumerate(self.lines):
            found.setdefault(line, []).append(place)
        return found

    @cached_property
    def flat(self) -> bytes:
        """The text without its layout."""
        return squeezed(b"\n".join(self.lines))

    def places(self, block: Sequence[bytes]) -> list[int]:
        """Every place (from 0, in lines of code) at which the block stands."""
        if not block:
            return []
        # Looked for by the line that stands at the fewest places.
        at, places = min(((i, self._where.get(line, [])) for i, line in enumerate(block)), key=lambda p: len(p[1]))
        wanted = tuple(block)
        return [p - at for p in places if p >= at and self.lines[p - at : p - at + len(wanted)] == wanted]

    def index(self, place: int) -> int:
        """The index in the file of the place-th line of code."""
        return self._indices[place] if place < len(self._indices) else max(self._end - 1, 0)


@dataclass(frozen=True)
class View:
    """The bytes of one file at one moment."""

    path: str
    content: bytes
    _prints: dict[Symbol, str] = field(default_factory=dict, repr=False, compare=False)
    _parts: dict[Symbol | None, Part] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def lines(self) -> list[bytes]:
        return split(self.content)

    @cached_property
    def symbols(self) -> list[Symbol]:
        return symbols.symbols_of(self.path, self.content)

    @cached_property
    def code(self) -> tuple[bytes, ...]:
        """Each line without comments; empty where nothing is left."""
        return code_of(self.path, self.lines).lines

    @cached_property
    def headings(self) -> list[int]:
        """Indices of the lines that git would take for a heading."""
        return [i for i, line in enumerate(self.lines) if symbols.GIT_HEADING.match(line)]

    def places(self, hunk: Hunk) -> list[int]:
        """Every index (from 0) at which the hunk's pre-image stands."""
        return find(self.content, hunk.before) if hunk.before else ([0] if not self.content else [])

    def around(self, hunk: Hunk, place: int) -> Symbol | None:
        """The symbol that holds the changed lines of a hunk whose pre-image stands at `place`."""
        first = place + hunk.leading + 1
        last = max(place + len(hunk.before) - hunk.trailing, first - 1)
        return symbols.innermost(self.symbols, max(min(first, last), 1), max(first, last))

    def named(self, wanted: Symbol) -> Symbol | None:
        """The symbol that goes by the same name and declaration here; None when there is none, or more than one."""
        same = [s for s in self.symbols if (s.name, s.heading) == (wanted.name, wanted.heading)]
        if not same and wanted.heading:
            same = [s for s in self.symbols if s.heading == wanted.heading]
        return same[0] if len(same) == 1 else None

    def fingerprint(self, symbol: Symbol | None) -> str | None:
        """Of a Python symbol; None for others."""
        if symbol is None or symbol.heading:
            return None
        if symbol not in self._prints:
            self._prints[symbol] = symbols.fingerprint(self.content, symbol)
        return self._prints[symbol]

    def text(self, symbol: Symbol | None) -> Sequence[bytes]:
        """The lines of a symbol; of the whole file for None."""
        return self.lines if symbol is None else self.lines[symbol.first - 1 : symbol.last]

    def says(self, symbol: Symbol | None) -> tuple[bytes, ...]:
        """The code lines of a symbol (None: of the file) without the empty ones."""
        return self.part(symbol).lines

    def part(self, symbol: Symbol | None) -> Part:
        """The code of a symbol (None: of the file), read once for all hunks in it."""
        if symbol not in self._parts:
            first, last = (0, len(self.code)) if symbol is None else (symbol.first - 1, symbol.last)
            self._parts[symbol] = Part([(i, self.code[i]) for i in range(first, last) if self.code[i]], last)
        return self._parts[symbol]

    def context(self, index: int) -> Context:
        """What the line at `index` (from 0) depends on: the blocks and preprocessor conditions around it."""
        return self._contexts.at(index)

    @cached_property
    def _contexts(self) -> Contexts:
        return Contexts(self.path, self.lines, self.code)


def replaced(lines: Sequence[bytes], hunks: Sequence[Hunk], places: Sequence[int]) -> bytes:
    """The text with the pre-images at `places` (ascending, apart) exchanged for the post-images."""
    made: list[bytes] = []
    at = 0
    for place, hunk in zip(places, hunks, strict=True):
        made += [*lines[at:place], *hunk.after]
        at = place + len(hunk.before)
    return b"".join([*made, *lines[at:]])
