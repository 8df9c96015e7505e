"""What the store of built components and the compile cache save, with the locked FlashInfer, against no cache at all.

Every build here is of the same plan in the same engine. What is emptied before it says what it may use: the engine's
steps, the store of built components, the compilers' cache.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graft.commands.compiling import compiled_facts
from graft.commands.components import build_components, find
from graft.commands.programs import ready_engine
from graft.commands.session import Session, make_plan
from graft.render import render

#: BuildKit's name for the folders that `--mount=type=cache` keeps, the compilers' cache among them.
CACHES = "exec.cachemount"
#: What a step that was not in the engine's cache says when it begins to run.
RAN = re.compile(r"^#(\d+) \[build-(?P<name>[a-z0-9._-]+) +\d+/\d+\] RUN", re.MULTILINE)
CACHED = re.compile(r"^#(\d+) CACHED$", re.MULTILINE)


@dataclass(frozen=True)
class Component:
    """One build of a component. seconds: of its compilers; call: of finding or building it, all told.

    compiled, cached: objects that were compiled, and found by ccache. peak_gb: GiB of the largest process.
    """

    seconds: float
    call: float
    compiled: int
    cached: int
    peak_gb: float

    @property
    def objects(self) -> str:
        return f"{self.compiled} of {self.compiled + self.cached} objects compiled"


def build(session: Session) -> Component:
    """Have the components of the plan, with what store and caches have.

    Raises RuntimeError when it is not known what each compiler took.
    """
    planned = make_plan(session)
    engine = ready_engine(session)
    (session.paths.state / "compiled.json").unlink(missing_ok=True)
    log = session.paths.logs / f"{planned.recipe.recipe}-{planned.arch.name}-components.log"
    log.unlink(missing_ok=True)
    folder = session.paths.contexts / f"{planned.recipe.recipe}-{planned.arch.name}"
    started = time.monotonic()
    found = find(session, planned)
    build_components(session, planned, engine, render(session.paths, planned), folder, found)
    call = time.monotonic() - started
    ran = compilers(log.read_text(encoding="utf-8", errors="replace")) if log.exists() else []
    took = measured(session)
    if sorted(took) != ran:
        raise RuntimeError(f"the compilers of {ran} ran, and {sorted(took)} say what they took")
    return of(list(took.values()), call)


def newest(session: Session) -> Component:
    """What the newest build of each of the plan's components took."""
    return of(list(measured(session).values()), 0.0)


def of(took: Sequence[Mapping[str, Any]], call: float) -> Component:
    """Components that were built at once as one: the slowest and the largest of them, and all objects."""
    return Component(
        max((fact["seconds"] for fact in took), default=0.0),
        call,
        sum(fact["misses"] for fact in took),
        sum(fact["hits"] for fact in took),
        max((fact["peak_gb"] for fact in took), default=0.0),
    )


def measured(session: Session) -> dict[str, dict[str, Any]]:
    """Component of the plan -> what its compilers took when they last ran."""
    return {fact["component"]: fact for fact in compiled_facts(session, make_plan(session))}


def compilers(log: str) -> list[str]:
    """The components whose build steps ran, from the log of a build; a step from the engine's cache did not."""
    cached = set(CACHED.findall(log))
    return sorted({match["name"] for match in RAN.finditer(log) if match[1] not in cached})


def forget_steps(session: Session, *, compile_cache: bool) -> None:
    """Empty the engine's cache of steps; the compilers' cache as well when that is asked for."""
    engine = ready_engine(session)
    kinds = ["regular", "source.local", "internal", "frontend", *([CACHES] if compile_cache else [])]
    for kind in kinds:
        words = [str(engine.docker), "buildx", "prune", "--all", "--force", "--filter", f"type={kind}"]
        subprocess.run(words, env=engine.env(), check=True, stdout=subprocess.DEVNULL)


def forget_built(session: Session) -> None:
    """Empty the store of built components."""
    shutil.rmtree(session.paths.store / "built", ignore_errors=True)
