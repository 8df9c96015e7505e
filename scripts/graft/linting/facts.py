"""What rules look at: everything that was read, as it was read, with what was refused on the way."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graft.errors import GraftError
from graft.linting.closure import Closure
from graft.lock import Lock
from graft.patchset import PatchSet
from graft.paths import Paths
from graft.project import Project
from graft.recipe import Recipe
from graft.yamlio import Document, Position


@dataclass(frozen=True)
class ProjectFacts:
    """What all recipes share.

    texts:    path below the root -> text, of everything that makes images.
    series:   component -> its patches; refused: what the loader said of series that it did not take.
    tools_refused: what the loader said of the lock of the host's programs.
    recipes:  those that load; of them the rules of what two recipes share.
    linted:   the names of those that are asked for; None where all are.
    doubles:  what is wrong with the names of recipes.
    used:     `component/id` of every patch that some recipe lists; None when not all recipes were read.
    """

    paths: Paths
    project: Project
    build: Document
    texts: Mapping[str, str] = field(default_factory=dict)
    series: Mapping[str, PatchSet] = field(default_factory=dict)
    refused: tuple[GraftError, ...] = ()
    tools_refused: GraftError | None = None
    recipes: tuple[Recipe, ...] = ()
    linted: frozenset[str] | None = None
    doubles: tuple[GraftError, ...] = ()
    used: frozenset[str] | None = None

    def base_of(self, name: object) -> Mapping[str, Any]:
        """A base of build.yaml as it is written."""
        bases = self.build.data.get("bases")
        found = bases.get(name) if isinstance(bases, dict) and isinstance(name, str) else None
        return found if isinstance(found, dict) else {}


@dataclass(frozen=True)
class RemoteRef:
    """What a git host said of one name that stands beside a pinned commit.

    position: where it stands in the recipe. now: the commit that it names today; None when it is gone.
    problem:  why nobody knows; empty when the host answered.
    """

    position: Position
    component: str
    name: str
    pinned: str
    now: str | None = None
    problem: str = ""


@dataclass(frozen=True)
class RecipeFacts:
    """One recipe.

    data:     its YAML as it is written, with positions; None when it is no YAML that Graft takes.
    recipe:   None when the loader refused it; then there is no lock, closure or plan either.
    refused:  what the loader said of the recipe; of its patches; of its lock; of its plans.
    closure:  what the wheels of the lock say of themselves; None when there is no lock.
    unrecorded: architectures whose operators the gate would compare, and nobody has recorded.
    remote:   what git hosts say of the names beside commits; empty when they were not asked.
    """

    around: ProjectFacts
    name: str
    data: Document | None = None
    recipe: Recipe | None = None
    lock: Lock | None = None
    closure: Closure | None = None
    refused: GraftError | None = None
    patches_refused: tuple[GraftError, ...] = ()
    lock_refused: GraftError | None = None
    plans_refused: tuple[GraftError, ...] = ()
    unrecorded: tuple[str, ...] = ()
    remote: tuple[RemoteRef, ...] = ()

    @property
    def file(self) -> Path:
        return self.around.paths.recipe(self.name)

    @property
    def raw(self) -> Mapping[str, Any]:
        """The recipe as it is written; empty when it is no mapping."""
        return self.data.data if self.data is not None and isinstance(self.data.data, dict) else {}

    def where(self, *position: str | int) -> str:
        """`file:line` of a value of the recipe."""
        return self.data.where(position) if self.data is not None else str(self.file)

    def where_of(self, distribution: str) -> str:
        """Where a locked distribution is named: as a component of the recipe, else in the lock."""
        for name, component in self.recipe.components.items() if self.recipe is not None else ():
            if component.distribution == distribution:
                return self.where("components", name, "version")
        lines = self._lock_lines
        return f"{self.around.paths.lock(self.name)}:{lines.get(distribution, 1)}"

    @functools.cached_property
    def _lock_lines(self) -> dict[str, int]:
        """distribution -> its line in the lock; read again, because a finding there is rare."""
        path = self.around.paths.lock(self.name)
        if not path.is_file():
            return {}
        found: dict[str, int] = {}
        is_package = False
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if not line.startswith((" ", "-")):
                is_package = line.startswith("packages:")
            elif is_package and line.startswith("- name: "):
                found.setdefault(line.removeprefix("- name: ").strip("'\""), number)
        return found


def listed(value: object) -> Sequence[Any]:
    """A list of plain data; empty when it is none."""
    return value if isinstance(value, list) else ()


def mapped(value: object) -> Mapping[str, Any]:
    """A mapping of plain data; empty when it is none."""
    return value if isinstance(value, dict) else {}


def written(value: object) -> str:
    """A scalar as the user wrote it, also where YAML made a number of it."""
    return str(getattr(value, "text", value))
