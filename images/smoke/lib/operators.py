"""The operators that files register, as lines of text, and what differs from the recorded ones.

A line is a name and the dispatch keys that have a kernel: `_C::rms_norm CUDA`. An operator that lost its kernel for
CUDA is still there for Python, and fails only when it is called, so the keys are part of the list. What a module of
tvm_ffi gives is a plain name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lib.report import Report

#: Checks whose detail is the list of one file; scripts/graft/gate/operators.py reads them.
CHECK = "registers:"
CURE = "if that is meant, record it with: make lock OPERATORS=1"
SHOWN = 8

#: Where kernels can be registered (c10/core/DispatchKey.h), without those that torch makes for every operator.
KEYS = (
    "CPU",
    "CUDA",
    "SparseCUDA",
    "SparseCsrCUDA",
    "NestedTensorCUDA",
    "QuantizedCPU",
    "QuantizedCUDA",
    "Meta",
    "Autograd",
    "CompositeExplicitAutograd",
    "CompositeImplicitAutograd",
)


def lines(found: Iterable[tuple[str, Sequence[str]]]) -> list[str]:
    """(name, keys) as sorted lines."""
    return sorted(" ".join([name, *keys]) for name, keys in found)


def parsed(text: Iterable[str]) -> dict[str, set[str]]:
    """name -> keys."""
    return {words[0]: set(words[1:]) for words in map(str.split, text)}


def summary(found: Mapping[str, Sequence[str]] | None) -> str:
    counts = {file: len(text) for file, text in (found or {}).items() if text}
    return f"{sum(counts.values())} of {len(counts)} files: " + ", ".join(f"{file} {n}" for file, n in counts.items())


def compare(report: Report, recorded: Mapping[str, Sequence[str]] | None, found: Mapping[str, Sequence[str]]) -> None:
    """One check for what was lost and one for what is new, of all files."""
    if recorded is None:
        report.check("recorded", True, "no list is recorded for this architecture: this run's becomes it")
        return
    lost, new = [], []
    for file in sorted({*recorded, *found}):
        before, now = parsed(recorded.get(file, ())), parsed(found.get(file, ()))
        lost += [f"{file}: {what}" for what in beyond(before, now)]
        new += [f"{file}: {what}" for what in beyond(now, before)]
    report.check("lost", not lost, f"{shortened(lost)}; {CURE}" if lost else "nothing that was recorded is lost")
    report.check("new", not new, f"{shortened(new)}; {CURE}" if new else "nothing is there that was not recorded")


def beyond(one: Mapping[str, set[str]], other: Mapping[str, set[str]]) -> list[str]:
    """What `one` has and `other` has not: operators, and kernels of those that both have."""
    found = []
    for name, keys in one.items():
        if name not in other:
            found.append(name)
        elif more := keys - other[name]:
            found.append(f"{name} for {', '.join(sorted(more))}")
    return found


def shortened(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
    return f"{len(texts)}: {', '.join(texts[:SHOWN])}{more}"
