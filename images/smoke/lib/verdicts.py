"""What the GPU code of one file means on a device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lib import fatbin

if TYPE_CHECKING:
    from lib.census import Holding
    from lib.fatbin import Entry, Rule

# covered: a cubin runs. ptx-only: the driver may compile it. link: input of a linker, nothing runs as it is.
Verdict = Literal["covered", "ptx-only", "missing", "link", "no-kernel"]
RED = ("ptx-only", "missing")
LINKED_FORMS = ("object", "archive")


@dataclass(frozen=True)
class Judgement:
    """A file on one architecture: the verdict, the rules that cover it, and what its fatbins hold, by their number."""

    verdict: Verdict
    rules: tuple[Rule, ...]
    fatbins: dict[str, int]

    @property
    def red(self) -> bool:
        return self.verdict in RED


def judge(holding: Holding, arch: str) -> Judgement:
    """The verdict of a file for `arch` (sm90, ...). Raises ValueError for an arch of another form."""
    fatbins: Counter[str] = Counter()
    rules: set[Rule] = set()
    for held, count in holding.fatbins.items():
        fatbins[fatbin.verdict(held, arch) if any(map(_runs_somewhere, held)) else "link"] += count
        rules.update(rule for entry in held if (rule := fatbin.rule(entry, arch)) is not None)
    verdict = _verdict(holding, arch)
    of_use = rules - {"PTX"} if verdict == "covered" else rules if verdict == "ptx-only" else ()
    return Judgement(verdict, tuple(sorted(of_use)), dict(sorted(fatbins.items())))


def _verdict(holding: Holding, arch: str) -> Verdict:
    if holding.form in LINKED_FORMS:
        return "link"
    if not holding.fatbins:
        return "no-kernel"
    held = {entry for group in holding.fatbins for entry in group}
    # What a library keeps in its data as input of a linker, it links at run time. In nvcc's own sections, nobody does.
    if not any(map(_runs_somewhere, held)) and not any(where in _SECTIONS for where, _ in holding.code):
        return "link"
    return fatbin.verdict(held, arch)


def _runs_somewhere(entry: Entry) -> bool:
    return entry.kind in ("cubin", "ptx") and not entry.relocatable


def text(judged: Judgement, arch: str) -> str:
    """A judgement for people: `covered (a, exact) in 5 of 7 fatbins, PTX only in 2`."""
    if judged.verdict == "link":
        return "input of a linker, not judged"
    if judged.verdict == "no-kernel":
        return "no kernel in it, not judged"
    total = sum(judged.fatbins.values())
    said = (
        f"covered for {arch} ({', '.join(judged.rules)})"
        if judged.verdict == "covered"
        else f"{judged.verdict} for {arch}"
    )
    parts = [f"{number} {name}" for name, number in judged.fatbins.items()]
    return f"{said}; {total} fatbin{'s' if total > 1 else ''}: {', '.join(parts)}"


def held_in(holding: Holding) -> str:
    """What a file holds, with the places in which cuobjdump would not look."""
    places: dict[str, list[Entry]] = {}
    for where, entry in holding.code:
        places.setdefault("" if where in _SECTIONS else where, []).append(entry)
    return "; ".join(
        f"{'in ' + where + ' ' if where else ''}{held_text(held)}" for where, held in sorted(places.items())
    )


def held_text(entries: Iterable[Entry]) -> str:
    """The architectures of some code, for people: `sm_80, sm_90a, compute_120`; `(r)` marks relocatable code."""
    names = {entry: f"{entry.arch}{' (r)' if entry.relocatable else ''}" for entry in entries}
    ordered = sorted(names, key=lambda entry: (entry.kind, entry.relocatable, capability(entry), entry.arch))
    return ", ".join(names[entry] for entry in ordered)


def capability(entry: Entry) -> int:
    """90 for sm_90a."""
    return int("".join(filter(str.isdigit, entry.arch)))


_SECTIONS = {name.decode() for name in fatbin.SECTIONS}
