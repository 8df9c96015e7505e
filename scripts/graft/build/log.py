"""What the log of a build says: seconds of stages, what compilers took, and why it failed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from graft import proc
from graft.console import Console
from graft.errors import BuildFailed, GraftError, OutOfMemory, PatchMismatch

STEP = re.compile(r"^#(\d+) (.*)$")
ENGINE_GONE = (
    "Cannot connect to the Docker daemon",
    "error reading from server: EOF",
    "connection refused",
    "transport is closing",
    "unexpected EOF",
    "no such file or directory: docker.sock",
)
#: What the scripts of the build stages say of a failure, and which step is whose.
CAUSE = re.compile(r"^#(\d+) [\d.]+ build-(?:python|make|flashinfer-aot): (.*)$", re.MULTILINE)
#: What they say of memory, and what they measured.
KILLED = re.compile(r"it ran out of memory with (\d+) jobs")
KILLED_STEP = re.compile(r"exit code: 137\b")
MEASURED = re.compile(r"^#(\d+) [\d.]+ graft-measured: (\{.*\})$", re.MULTILINE)
BUILD_STAGE = re.compile(r"^#(\d+) \[build-([a-z0-9._-]+) +\d+/\d+\]", re.MULTILINE)
#: Exit status of images/scripts/apply-patches.sh when a tree is not the locked one.
PATCH_STATUS = re.compile(r"exit code: 5\b")


def stage_seconds(log: Path) -> dict[str, float]:
    """Stage -> seconds of its steps that ran, from the log of a build; what came from the cache took none."""
    stages: dict[str, str] = {}
    taken: dict[str, float] = {}
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        match = STEP.match(line)
        if match is None:
            continue
        number, rest = match[1], match[2]
        if name := re.match(r"\[([a-z0-9-]+) +\d+/\d+\]", rest):
            stages[number] = name[1]
        elif (done := re.match(r"DONE (\d+\.\d+)s", rest)) and number in stages:
            stage = stages.pop(number)
            taken[stage] = taken.get(stage, 0.0) + float(done[1])
    return taken


@dataclass(frozen=True)
class Measured:
    """What the build of a component took, as it says itself; a component that came from the cache says nothing.

    started: Unix time. seconds, jobs: of its compilers.
    peak_gb: GiB of the largest process. hits, misses, uncached: objects that ccache
    found, that were compiled, and that it could not look for; None when there was no ccache.
    shared: of the hits, those that machines share.
    """

    seconds: float
    jobs: int
    peak_gb: float
    hits: int | None = None
    misses: int | None = None
    uncached: int | None = None
    shared: int | None = None
    started: float = 0.0

    def __str__(self) -> str:
        said = (
            f"{self.seconds:.0f} s with {self.jobs} job{'s' * (self.jobs != 1)}, largest process {self.peak_gb:.1f} GiB"
        )
        if self.hits is None or self.misses is None:
            return said
        shared = f" ({self.shared} by way of Redis)" if self.shared else ""
        past = f", {self.uncached} past it" if self.uncached else ""
        return f"{said}, {self.hits} of {self.hits + self.misses} objects from the compile cache{shared}{past}"


def measured(log: Path) -> dict[str, Measured]:
    """Component -> what its build says it took, from the log of a build, or of several: each counts its steps anew."""
    stages: dict[str, str] = {}
    found = {}
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        if begun := BUILD_STAGE.match(line):
            stages[begun[1]] = begun[2]
        elif (said := MEASURED.match(line)) and said[1] in stages:
            facts = json.loads(said[2])
            known = {name: facts[name] for name in Measured.__dataclass_fields__ if name in facts}
            found[stages[said[1]]] = Measured(**known)
    return found


class Steps:
    """Shows a line for each step that really runs, when it ends; what comes from the cache is counted only."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._names: dict[str, str] = {}

    def __call__(self, line: str) -> None:
        match = STEP.match(line)
        if match is None:
            return
        number, rest = match[1], match[2]
        if rest.startswith("[") and not rest.startswith(("[internal]", "[context")):
            self._names[number] = _short(rest)
        elif rest == "CACHED":
            self._names.pop(number, None)
        elif rest.startswith("DONE") and number in self._names:
            self._console.say(f"  {self._names.pop(number)} {rest.removeprefix('DONE ')}")


def _short(step: str) -> str:
    """A step without its mounts: `[foundation 2/4] bash .../install-wheels.sh`."""
    words = re.sub(r"--(mount|network|from)=\S+ *", "", step)
    source = re.search(r"from=(wheels-[a-z0-9-]+)", step)
    return " ".join([*words.replace("/run/graft/scripts/", "").split(), *([source[1]] if source else [])])[:110]


def failure(done: proc.Completed, target: str, log: Path, jobs: Mapping[str, int]) -> GraftError:
    tail = "\n".join(done.stderr.splitlines()[-proc.TAIL_LINES :])
    if PATCH_STATUS.search(done.stderr) and re.search(r"(?:apply-patches|unpack-tree)\.sh: ", done.stderr):
        return PatchMismatch(
            "a patched tree is not the one that the lock names",
            where=str(log),
            cure="make lock",
            tail=tail,
        )
    if any(words in done.stderr for words in ENGINE_GONE):
        return BuildFailed(
            "the engine went away during the build",
            where=str(log),
            cure="run the same command: finished steps are kept (make engine shows its log)",
            tail=tail,
        )
    said = CAUSE.findall(done.stderr)
    if said:
        step, cause = said[-1]
        name = next((n for number, n in BUILD_STAGE.findall(done.stderr) if number == step), target)
        if killed := KILLED.search(cause):
            return OutOfMemory(
                f"the build of {name} failed: {cause}",
                name,
                int(killed[1]),
                where=str(log),
                cure=f"JOBS={max(1, int(killed[1]) // 2)}, or more memory; the whole output is in that file",
                tail=tail,
            )
        return BuildFailed(
            f"the build of {name} failed: {cause}", where=str(log), cure="the whole output is in that file", tail=tail
        )
    if (step := _killed_step(done.stderr)) is not None:
        # All of the step was killed, the script that would have said so too.
        return OutOfMemory(
            f"the build of {step} was killed, as for memory",
            step,
            jobs.get(step),
            where=str(log),
            cure="fewer JOBS, or more memory; the whole output is in that file",
            tail=tail,
        )
    return BuildFailed(
        f"the build of {target} failed", where=str(log), cure="the whole output is in that file", tail=tail
    )


def _killed_step(output: str) -> str | None:
    """The component whose step ended with SIGKILL."""
    stages = dict(BUILD_STAGE.findall(output))
    for line in output.splitlines():
        match = STEP.match(line)
        if match is not None and match[2].startswith("ERROR") and KILLED_STEP.search(match[2]):
            return stages.get(match[1])
    return None
