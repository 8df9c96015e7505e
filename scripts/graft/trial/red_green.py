"""Red and green: the test of a patch in two containers, one without the patch and one with it."""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from graft.gate.tests import Ended
from graft.hashes import digest_of
from graft.patching import SourceTree, touched_paths
from graft.patchset import Patch, PatchSet
from graft.trial.bytecode import PARENT, PREFIX, Bytecode
from graft.trial.containers import Job, Put, Trials
from graft.trial.outcome import RunResult, read_run, verdict_of
from graft.trial.result import TrialInputs, TrialResult
from graft.trial.states import Place, after_closure, below, installed, patched, pristine

#: An import of vLLM alone took two minutes on two busy cores without bytecode.
TEST_SECONDS = 600.0
HOME = PARENT


@dataclass(frozen=True)
class Tools:
    """What runs a test in a container: images/scripts/try-patch.py, which becomes images/smoke/lib/patchtest.py."""

    starter: bytes
    runner: bytes

    @property
    def protocol(self) -> str:
        """sha256 of both: with another one of them a result is another one."""
        return digest_of([sha256(self.starter), sha256(self.runner)])


@dataclass(frozen=True)
class Trial:
    """One patch to try. red, green: absolute path -> the file without the patch, and with it."""

    component: str
    id: str
    inputs: TrialInputs
    test: bytes
    red: Mapping[str, Put]
    green: Mapping[str, Put]

    @property
    def name(self) -> str:
        return f"{self.component}/{self.id}"


@dataclass(frozen=True)
class Where:
    """Where trials run: an image by id, its Python, and what names the environment in results."""

    image: str
    python: str
    recipe: str
    arch: str
    env: Mapping[str, str]


def make_trial(
    found: PatchSet,
    patch: Patch,
    tree: SourceTree,
    *,
    place: Place,
    site: str,
    environment: str,
    protocol: str,
) -> Trial:
    """A trial of a patch on the pristine files of its component.

    place: where a file of the source lies below `site`, the folder of what is installed; environment: its key.
    Raises BadInput and PatchMismatch when the patch, or one that it comes after, does not apply; NotInstalled.
    """
    component, before = found.component, after_closure(found, patch)
    paths = touched_paths([*before, patch])
    if not installed(dict.fromkeys(touched_paths([patch]), Put(None)), place):
        raise NotInstalled(f"none of its files is installed: {', '.join(touched_paths([patch]))}")
    clean = pristine(tree, paths)
    without = clean | patched(component, tree, before)
    with_patch = clean | patched(component, tree, [*before, patch])
    test = (found.folder / patch.record.test).read_bytes()
    inputs = TrialInputs(
        environment=environment,
        pristine={path: None if put.data is None else sha256(put.data) for path, put in clean.items()},
        after={other.id: sha256(other.data) for other in before},
        patch=sha256(patch.data),
        test=sha256(test),
        protocol=protocol,
    )
    red, green = (below(site, installed(files, place)) for files in (without, with_patch))
    return Trial(component, patch.id, inputs, test, red, green)


def on_base(trial: Trial, base: Mapping[str, Put]) -> Trial:
    """The trial with what else has to be put: the pristine files of everything that the image holds patched."""
    return replace(trial, red={**base, **trial.red}, green={**base, **trial.green})


class NotInstalled(Exception):
    """Nothing that the patch touches is a file of the image: it is compiled, or only part of the source."""


def run_trials(
    containers: Trials,
    where: Where,
    trials: Sequence[Trial],
    tools: Tools,
    bytecode: Bytecode,
    on_result: Callable[[TrialResult], None],
) -> None:
    """Try every patch; `on_result` gets each result as soon as both of its runs have ended."""
    started = utc_now()
    jobs: list[Job] = []
    runs: dict[str, RunResult] = {}
    for number, trial in enumerate(trials):
        for state, files in (("red", trial.red), ("green", trial.green)):
            test = Test(trial.test, f"{trial.id}.py")
            job = job_of(f"{number}-{state}", where.image, where, test, tools, files)
            jobs.append(replace(job, more=(PARENT, bytecode.file(trial.component))))

    def on_end(job: Job, ended: Ended, container: str) -> None:
        run = runs[job.id] = read_run(ended)
        number = int(job.id.partition("-")[0])
        keep_bytecode(containers, container, run, bytecode, trials[number].component, job.files)
        red, green = runs.get(f"{number}-red"), runs.get(f"{number}-green")
        if red is not None and green is not None:
            on_result(result_of(trials[number], where, red, green, started))

    containers.run_all(jobs, on_end)


def keep_bytecode(
    containers: Trials, container: str, run: RunResult, bytecode: Bytecode, component: str, put: Collection[str]
) -> None:
    """Keep what a test compiled, the first time it ran to its end. put: absolute paths that are not the image's own."""
    if run.state not in ("red", "green") or bytecode.file(component).is_file():
        return
    chunks = containers.tar(container, PREFIX)
    if chunks is not None:
        bytecode.keep(component, chunks, put)


@dataclass(frozen=True)
class Test:
    """The file of one test, and a name to put it under."""

    # Not a class of tests, whatever pytest thinks of its name.
    __test__ = False

    data: bytes
    name: str


def job_of(
    id: str,
    image: str,
    where: Where,
    test: Test,
    tools: Tools,
    files: Mapping[str, Put],
    *,
    is_put: bool = True,
    user: str | None = None,
) -> Job:
    """The container of one run of one test.

    files: absolute path -> what must be there. is_put: they are put there; else they are only compared.
    """
    file = f"{HOME}/test/test_{test.name.replace('-', '_')}"
    job = {
        "files": {path: None if put.data is None else sha256(put.data) for path, put in files.items()},
        "is_put": is_put,
        "runner": f"{HOME}/lib/patchtest.py",
        "test": file,
    }
    own = {
        f"{HOME}/run/try-patch.py": Put(tools.starter),
        f"{HOME}/lib/patchtest.py": Put(tools.runner),
        f"{HOME}/job.json": Put(json.dumps(job).encode()),
        file: Put(test.data),
    }
    argv = (where.python, f"{HOME}/run/try-patch.py", f"{HOME}/job.json")
    put = {**files, **own} if is_put else own
    return Job(id, image, argv, put, TEST_SECONDS, where.env, user)


def result_of(trial: Trial, where: Where, red: RunResult, green: RunResult, started: str) -> TrialResult:
    return TrialResult(
        key=trial.inputs.key,
        component=trial.component,
        patch=trial.id,
        verdict=verdict_of(red, green),
        inputs=trial.inputs,
        red=red,
        green=green,
        recipe=where.recipe,
        arch=where.arch,
        image=where.image,
        started=started,
    )


def read_tools(scripts: Path, smoke: Path) -> Tools:
    """images/scripts and images/smoke of the project."""
    return Tools((scripts / "try-patch.py").read_bytes(), (smoke / "lib" / "patchtest.py").read_bytes())


def utc_now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
