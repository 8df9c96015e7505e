"""How people and tools write GPU architectures, and what Graft writes instead."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from graft.arch import ArchRow

#: Variables by which builds are told architectures; Graft derives every one of them from build.yaml.
VARIABLES = (
    "TORCH_CUDA_ARCH_LIST",
    "FLASHINFER_CUDA_ARCH_LIST",
    "CMAKE_CUDA_ARCHITECTURES",
    "CUDA_ARCHITECTURES",
    "CUDAARCHS",
    "CUTE_DSL_ARCH",
    "NVCC_GENCODE",
    "TORCH_NVCC_FLAGS",
    "NVCC_APPEND_FLAGS",
    "NVCC_PREPEND_FLAGS",
    "VLLM_CUDA_ARCHES",
)
#: Jetson Thor: CUDA 13.0 gave it another number (release notes of CUDA 13.0).
THOR_BEFORE, THOR, THOR_CUDA = "10.1", "11.0", "13.0"

_ONE = r"(?:(?:sm|compute)_?)?(?:[1-9][0-9]?\.[0-9]|[1-9][0-9]{1,2})[af]?(?:-real|-virtual|\+PTX)?"
_FORM = re.compile(
    r"(?:(?:sm|compute)_?)?(?:([1-9][0-9]?)\.([0-9])|([1-9][0-9]?)([0-9]))([af])?(-real|-virtual|\+ptx)?", re.IGNORECASE
)
#: Only forms that nothing but an architecture has: `9.0a`, `sm_90`, `sm90a`; `9.0` alone may be a version.
_SURE = re.compile(
    r"(?<![\w.])(?:(?:sm|compute)_?[1-9][0-9]{1,2}[af]?|(?:8|9|1[0-2])\.[0-9](?:[af]\b|\+PTX))(?![\w.])", re.IGNORECASE
)
_SET = re.compile(rf"(?:\b|-D)({'|'.join(VARIABLES)})\b[\"'\])\s]*[=:,]\s*[\"']?({_ONE})(?![\w.])", re.IGNORECASE)
_GENCODE = re.compile(
    r"-(?:gencode|-generate-code)?[= ]?arch=(?:sm|compute)_[0-9]+[af]?|-arch[= ](?:sm|compute)_[0-9]+[af]?"
)
_SEPARATED = re.compile(r"\s*[;,|]\s*|\s+")


@dataclass(frozen=True)
class Spelling:
    """An architecture as somebody wrote it: `9.0`, `a`, `+PTX`."""

    capability: str
    suffix: str
    extra: str

    @property
    def name(self) -> str:
        """`sm90`."""
        return "sm" + self.capability.replace(".", "")


def spelling(text: str) -> Spelling | None:
    """Any usual form of one architecture; None for something else."""
    found = _FORM.fullmatch(text.strip())
    if found is None:
        return None
    return Spelling(f"{found[1] or found[3]}.{found[2] or found[4]}", (found[5] or "").lower(), found[6] or "")


def spellings(text: str) -> list[Spelling]:
    """The architectures of a list such as `9.0a;10.0+PTX`; empty when any part of the text is something else."""
    parts = [spelling(part) for part in _SEPARATED.split(text.strip()) if part]
    return [part for part in parts if part is not None] if all(parts) else []


def both_forms(found: Iterable[Spelling]) -> list[str]:
    """The capabilities that stand in a list with and without a suffix."""
    suffixes: dict[str, set[bool]] = {}
    for one in found:
        suffixes.setdefault(one.capability, set()).add(bool(one.suffix))
    return [capability for capability, forms in suffixes.items() if len(forms) == 2]


def literal(line: str) -> str | None:
    """An architecture that a line of code gives to a build; None when there is none."""
    given = _SET.search(line) or _GENCODE.search(line)
    if given is not None:
        return given[0].strip()
    sure = list(_SURE.finditer(line))
    for one, other in itertools.pairwise(sure):
        # A comma alone stands in sentences.
        if re.fullmatch(r"\s*;\s*|[\"']\s*[;,]\s*[\"']", line[one.end() : other.start()]):
            return line[one.start() : other.end()]
    return None


def instead(found: Spelling, table: Mapping[str, ArchRow]) -> str:
    """What to write: the name in the table, or what the table knows."""
    name = "sm" + THOR.replace(".", "") if found.capability == THOR_BEFORE else found.name
    return f"write {name}" if name in table else f"build.yaml knows {', '.join(table)}"
