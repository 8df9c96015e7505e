"""What steps took on this machine, seconds or memory, kept below .graft: for estimates, never for what is built."""

from __future__ import annotations

import contextlib
import json
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path

#: Of each step the last few are kept; the estimate is their median.
KEPT = 5
#: What reading a kept JSON file can end with when it is damaged; Python gives up on lists nested too deep.
UNREADABLE = (OSError, ValueError, RecursionError)
#: A year, in seconds: above it a number was not measured.
LONGEST = 366 * 86400


class Durations:
    """Seconds by the name of a step: `component flashinfer sm90`, `assemble`, `gate glm-dsa`, `fetch GB`."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def note(self, taken: Mapping[str, float]) -> None:
        """Add what steps took; nothing is said when it cannot be kept."""
        known = self._read()
        for name, seconds in taken.items():
            known[name] = [*known.get(name, []), round(seconds, 2)][-KEPT:]
        part = self._file.with_name(f".{self._file.name}.part")
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            part.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")
            part.replace(self._file)

    def usual(self, name: str) -> float | None:
        """The median of what a step took; None when it never ran here."""
        taken = self._read().get(name)
        return statistics.median(taken) if taken else None

    def most(self, name: str) -> float | None:
        """The largest of the last runs; None when it never ran here."""
        return max(self._read().get(name, ()), default=None)

    def total(self, names: Iterable[str]) -> tuple[float, list[str]]:
        """The sum of what is known, and the steps that never ran here."""
        found = {name: self.usual(name) for name in names}
        return sum(s for s in found.values() if s is not None), [name for name, s in found.items() if s is None]

    def _read(self) -> dict[str, list[float]]:
        try:
            data = json.loads(self._file.read_text(encoding="utf-8"))
        except UNREADABLE:
            return {}
        if not isinstance(data, dict):
            return {}
        return {
            str(name): [float(s) for s in taken if is_measured(s)]
            for name, taken in data.items()
            if isinstance(taken, list)
        }


def is_measured(value: object) -> bool:
    """Whether it is a number that a step can have taken: JSON has infinite ones, and integers larger than any float."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= LONGEST


def shown(seconds: float) -> str:
    """Seconds for people, as rough as they are."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"
