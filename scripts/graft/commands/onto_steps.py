"""The steps of `graft patch onto`: look, compare, try, write down."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from graft.commands.patch_sources import fetched_tree
from graft.commands.session import Session, component_file
from graft.errors import BadInput, FetchFailed, PatchMismatch
from graft.gate.run import host
from graft.gate.tests import Ended
from graft.hashes import digest_of
from graft.lock import FilePin, Lock
from graft.patching import Malformed, SourceTree, parse, touched_paths
from graft.patchset import Patch, PatchSet, Target
from graft.plan import installed_path, source_path
from graft.recipe import Component, Recipe
from graft.trial import onto as records
from graft.trial.bytecode import PARENT, PREFIX, Bytecode
from graft.trial.containers import Job, Put, Trials
from graft.trial.layer import Layer
from graft.trial.outcome import RunResult, explain, read_run, verdict_of
from graft.trial.probe import COMPILED_INTO, Installed, check_installed, check_paths, probe, recorded_names
from graft.trial.red_green import Test, Tools, Where, job_of, keep_bytecode, sha256
from graft.trial.reference import Base
from graft.trial.result import results_folder
from graft.trial.states import after_closure, below, patched

if TYPE_CHECKING:
    from graft.engine import Engine


@dataclass(frozen=True)
class Asked:
    """What the user asked for, with everything that is known before the image is looked at."""

    session: Session
    recipe: Recipe
    locked: Lock | None
    nvcc: str
    component: str
    found: PatchSet
    patches: tuple[Patch, ...]
    python: str
    tools: Tools

    @property
    def pinned(self) -> Component:
        return self.recipe.components[self.component]

    @property
    def target(self) -> Target:
        return "source" if self.pinned.is_built else "wheel"

    @property
    def places(self) -> dict[str, str | None]:
        """Every touched path of the source -> where it is installed."""
        pinned = self.pinned
        return {path: installed_path(pinned.build, path, pinned.distribution) for path in touched_paths(self.patches)}

    @property
    def sha256s(self) -> dict[str, str]:
        return {patch.id: sha256(patch.data) for patch in self.patches}

    def test(self, patch: Patch) -> bytes:
        return (self.found.folder / patch.record.test).read_bytes()

    @property
    def tests_digest(self) -> str:
        tests = {patch.id: sha256(self.test(patch)) for patch in self.patches}
        return digest_of([self.tools.protocol, self.nvcc, tests])


def make_layer(asked: Asked, containers: Trials, base: Base, key: str) -> Layer:
    """The patched files, once all is checked that can be checked before anything is built."""
    component, pinned = asked.component, asked.pinned
    deleted = _deleted(asked.patches)
    check_paths(asked.places, deleted, {})
    places = {path: where for path, where in asked.places.items() if where is not None}
    script = (asked.session.paths.scripts / "probe-installed.py").read_bytes()
    found, data = probe(
        containers,
        base.id,
        asked.python,
        pinned.distribution,
        [*places.values()],
        script,
        COMPILED_INTO.get(pinned.build or "", ()),
    )
    check_paths(asked.places, deleted, found.others)
    records.check_version(component, asked.patches, found.version, asked.session.arch)
    check_installed(found, component)
    _check_pristine(asked, found, places)
    before = {path: Put(data.get(where), found.files[where].executable) for path, where in places.items()}
    names = [source_path(pinned.build, name, pinned.distribution) for name in recorded_names(data[found.record or ""])]
    tree = SourceTree(
        {path: put.data for path, put in before.items() if put.data is not None},
        frozenset(path for path, put in before.items() if put.executable),
        frozenset(name for name in names if name is not None),
    )
    after = patched(component, tree, asked.patches)
    return Layer(
        base,
        found,
        {places[path]: (before[path], put) for path, put in after.items()},
        records.labels(base.identity, component, found.version, asked.sha256s, key),
        tree,
        places,
    )


def _deleted(patches: Sequence[Patch]) -> list[str]:
    """Paths that the patches take away. Raises BadInput for a file that is no patch."""
    found: list[str] = []
    for patch in patches:
        try:
            found += [diff.old for diff in parse(patch.data).files if diff.old is not None and diff.old != diff.new]
        except Malformed as problem:
            raise BadInput(str(problem), where=str(patch.path)) from problem
    return found


def _check_pristine(asked: Asked, found: Installed, places: Mapping[str, str]) -> None:
    """The lock knows the files of its version, and of every other one that did not change them; else the index does."""
    blobs = {path: found.files[where].blob for path, where in places.items()}
    known = records.known_blobs(asked.locked, asked.component)
    if not records.is_as_locked(blobs, known):
        files = _files_of(asked, found.version, [*places])
        records.check_pristine(asked.component, found.version, blobs, known, files)


def _files_of(asked: Asked, version: str, paths: Sequence[str]) -> Mapping[str, bytes] | None:
    """The files of a version of the component; None when the index has no such version. Raises FetchFailed."""
    session, pinned = asked.session, asked.pinned
    if asked.locked is not None and version == pinned.version:
        pin = component_file(asked.locked, asked.recipe, asked.component)
    else:
        other = _pin_of(asked, version)
        if other is None:
            return None
        pin = other
    return fetched_tree(session, asked.recipe, pin, asked.target, paths).files


def _pin_of(asked: Asked, version: str) -> FilePin | None:
    from graft.index import discover
    from graft.resolve import file_of_version

    if asked.session.offline:
        raise FetchFailed(
            f"offline, and nothing here says what the files of {asked.component} {version} are",
            cure="run the same command without OFFLINE=1 once",
        )
    project = asked.session.project
    try:
        return file_of_version(
            project, asked.recipe, asked.component, version, discover(project.index), dict(os.environ)
        )
    except BadInput:
        # No such version there, as for a nightly, or no file of it that fits the base.
        return None


Runs = Mapping[str, tuple[RunResult, RunResult]]


def try_patches(asked: Asked, containers: Trials, layer: Layer, candidate: str) -> Runs:
    """Each patch's test in the base, and in the candidate."""
    root = layer.installed.root
    env = {"GRAFT_ARCH_NVCC": asked.nvcc}
    bytecode = Bytecode(results_folder(asked.session.paths.state) / "bytecode", layer.base.id, (root, "/usr/lib"))
    if not any(facts.cached for facts in layer.installed.files.values()):
        # An image that was installed without bytecode; one with it is tried as it is.
        env["PYTHONPYCACHEPREFIX"] = PREFIX
    where = Where(candidate, layer.installed.executable, asked.recipe.recipe, asked.session.arch, env)
    green = below(root, {path: after for path, (_, after) in layer.files.items()})
    jobs: list[Job] = []
    for number, patch in enumerate(asked.patches):
        test = Test(asked.test(patch), f"{patch.id}.py")
        first = patched(asked.component, layer.tree, after_closure(asked.found, patch))
        red = below(root, {path: before for path, (before, _) in layer.files.items()})
        red |= below(root, {layer.places[path]: put for path, put in first.items()})
        # What it comes after is put there, for which bytecode has to go: root's work. Else the image is as it is.
        user = "0" if first else None
        base = layer.base.id
        jobs.append(job_of(f"{number}-red", base, where, test, asked.tools, red, is_put=bool(first), user=user))
        jobs.append(job_of(f"{number}-green", candidate, where, test, asked.tools, green, is_put=False))
    ended: dict[str, RunResult] = {}

    def on_end(job: Job, end: Ended, container: str) -> None:
        ended[job.id] = read_run(end)
        keep_bytecode(containers, container, ended[job.id], bytecode, asked.component, {*green, *job.files})
        patch = asked.patches[int(job.id.partition("-")[0])]
        name = "with it" if job.id.endswith("green") else "without it"
        asked.session.console.say(f"  {asked.component}/{patch.id} {name}: {ended[job.id].state}, {end.seconds:.1f} s")

    more = (PARENT, bytecode.file(asked.component)) if "PYTHONPYCACHEPREFIX" in env else None
    containers.run_all([replace(job, more=more) for job in jobs], on_end)
    return {patch.id: (ended[f"{n}-red"], ended[f"{n}-green"]) for n, patch in enumerate(asked.patches)}


def check_runs(asked: Asked, base: Base, runs: Runs) -> None:
    """Raises PatchMismatch after the table unless every patch is red-green."""
    rows = [
        (f"{asked.component}/{id}", verdict_of(red, green), red.counts, green.counts, explain(red, green))
        for id, (red, green) in runs.items()
    ]
    columns = ("patch", "verdict", "without it", "with it", "which means")
    asked.session.console.table(f"patch tests in {base.id[7:19]}", columns, rows)
    wrong = [f"{row[0]} ({row[1]})" for row in rows if row[1] != "red-green"]
    if wrong:
        raise PatchMismatch(
            f"not proven in this image, nothing was tagged: {', '.join(wrong)}",
            where=f"image {base.id}",
            cure="the test must fail an assertion in the image as it is, and pass in the patched one",
        )


def make_receipt(
    asked: Asked,
    engine: Engine,
    layer: Layer,
    candidate: str,
    key: str,
    runs: Runs,
    started: str,
    seconds: float,
) -> records.OntoReceipt:
    return records.OntoReceipt(
        image_id=candidate,
        base_id=layer.base.id,
        base=layer.base.identity,
        component=asked.component,
        version=layer.installed.version,
        python=layer.installed.python,
        key=key,
        tests_digest=asked.tests_digest,
        patches=tuple(
            records.OntoPatch(
                id=patch.id,
                sha256=sha256(patch.data),
                test_sha256=sha256(asked.test(patch)),
                verdict=verdict_of(*runs[patch.id]),
                red=runs[patch.id][0],
                green=runs[patch.id][1],
            )
            for patch in asked.patches
        ),
        files={path: sha256(after.data) for path, (_, after) in layer.files.items() if after.data is not None},
        started=started,
        seconds=round(seconds, 1),
        host=host(),
        engine=f"{engine.kind} Docker {engine.version}, {engine.store} image store",
    )
