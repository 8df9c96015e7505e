"""What the plan says the image must hold: /graft/smoke/facts.json as frozen data."""

from __future__ import annotations

import fnmatch
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FACTS = "/graft/smoke/facts.json"


@dataclass(frozen=True)
class Component:
    """One upstream project; `overrides` names the component whose own copy it replaces."""

    distribution: str
    version: str
    commit: str | None
    overrides: str | None
    modules: tuple[str, ...]


@dataclass(frozen=True)
class Patch:
    """One patch: its test (relative to the facts file), and path (relative to site-packages) -> sha256 once patched."""

    component: str
    id: str
    test: str
    files: Mapping[str, str]


@dataclass(frozen=True)
class Profile:
    """One way to launch the image: the arguments of `vllm serve` and what is set for it. model None: any."""

    name: str
    model: str | None
    args: tuple[str, ...]
    env: Mapping[str, str]


@dataclass(frozen=True)
class Waiver:
    """One finding that the recipe excuses. `file` is a glob; `arch` None holds for every architecture."""

    check: str
    file: str | None
    package: str | None
    arch: str | None
    reason: str
    until: str

    def covers(self, file: str, packages: Sequence[str]) -> bool:
        return (self.file is None or fnmatch.fnmatchcase(file, self.file)) and (
            self.package is None or normalise(self.package) in {normalise(name) for name in packages}
        )

    def __str__(self) -> str:
        return " ".join(f"{k}={v}" for k, v in (("file", self.file), ("package", self.package)) if v is not None)


@dataclass(frozen=True)
class Budget:
    """Bytes that the image may have (None: any), and (bytes, distributions) by component."""

    total: int | None
    components: Mapping[str, tuple[int, tuple[str, ...]]]


#: What a test of the size cannot pass with.
NO_BUDGET = Budget(None, {})


@dataclass(frozen=True)
class Facts:
    """The facts of one recipe and architecture. `root` is the folder that holds the smoke tests."""

    root: Path
    recipe: str
    arch: str
    compute_capability: str
    cuda: str
    torch_arch_list: str
    nvcc_arch: str
    python: str
    site_packages: Path
    packages: Mapping[str, str]
    components: Mapping[str, Component]
    patches: tuple[Patch, ...]
    waivers: tuple[Waiver, ...]
    env: Mapping[str, str]
    size_budget: Budget = NO_BUDGET
    #: file below site-packages -> lines of lib/operators.py; None where nothing is recorded yet.
    operators: Mapping[str, Sequence[str]] | None = None
    debs: Mapping[str, str] = field(default_factory=dict)
    profiles: tuple[Profile, ...] = ()

    def waivers_of(self, check: str) -> WaiverBook:
        """The waivers that smoke test `check` has to use up on this architecture."""
        return WaiverBook([w for w in self.waivers if w.check == check and w.arch in (None, self.arch)])


class WaiverBook:
    """Hands out waivers and remembers which were needed: one that nothing needs is a failure."""

    def __init__(self, waivers: Sequence[Waiver]) -> None:
        self.waivers = tuple(waivers)
        self._used: set[Waiver] = set()

    def find(self, file: str, packages: Sequence[str] = ()) -> Waiver | None:
        """The waiver for a finding in `file` of these distributions; it counts as needed from now on."""
        for waiver in self.waivers:
            if waiver.covers(file, packages):
                self._used.add(waiver)
                return waiver
        return None

    def unused(self) -> list[Waiver]:
        return [waiver for waiver in self.waivers if waiver not in self._used]


def normalise(name: str) -> str:
    """A distribution's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def load() -> Facts:
    """The facts of this image; GRAFT_FACTS names another file. Raises when anything is missing or unknown."""
    path = Path(os.environ.get("GRAFT_FACTS", FACTS))
    data: dict[str, Any] = json.loads(path.read_bytes())
    return Facts(
        **{
            **data,
            "root": path.parent,
            "site_packages": Path(data["site_packages"]),
            "components": {
                name: Component(**{**fields, "modules": tuple(fields["modules"])})
                for name, fields in data["components"].items()
            },
            "patches": tuple(Patch(**fields) for fields in data["patches"]),
            "profiles": tuple(
                Profile(**{**fields, "args": tuple(fields["args"])}) for fields in data.get("profiles", ())
            ),
            "waivers": tuple(Waiver(**fields) for fields in data["waivers"]),
            "size_budget": _budget(data.get("size_budget")),
        }
    )


def _budget(data: dict[str, Any] | None) -> Budget:
    if data is None:
        return NO_BUDGET
    limits = data["components"].items()
    return Budget(data["total"], {name: (entry["bytes"], tuple(entry["distributions"])) for name, entry in limits})
