"""Build kinds: which stage builds a component, what it is told, and what it would download if it could.

build.yaml says what each kind requires; this says how it is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from graft.errors import BadInput


@dataclass(frozen=True)
class Kind:
    """One build kind.

    stage:   the file of images/stages/ that builds it, without `build-`.
    told:    environment of every build of the kind; what the recipe says wins.
    sources: variable -> what its build downloads when the variable does not name a source tree.
    refused: lines (regular expressions) of its configure log that mean a part of it would be missing.
    """

    stage: str
    is_python: bool = True
    told: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    refused: tuple[str, ...] = ()


KINDS: Mapping[str, Kind] = {
    "flashinfer-aot": Kind("flashinfer-aot"),
    "python": Kind("python"),
    "make": Kind("make", is_python=False),
}


def kind_of(name: str) -> Kind:
    """Raises BadInput for a kind that nothing knows how to build."""
    if name not in KINDS:
        raise BadInput(
            f"build kind {name!r} is in build.yaml, and Graft does not know how to build it",
            where="build.yaml: builds",
            cure=f"it knows: {', '.join(KINDS)}",
        )
    return KINDS[name]
