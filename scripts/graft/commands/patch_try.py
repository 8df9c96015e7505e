"""`graft patch test`: red and green of patches in an image that exists. `graft patch onto` is in patch_onto."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from graft.commands.patch_onto import onto
from graft.commands.patch_pins import reference, series_of
from graft.commands.patch_sources import fetched_tree
from graft.commands.programs import ready_engine
from graft.commands.session import (
    Loaded,
    Session,
    component_file,
    image_sources,
    lock_inputs,
    patchsets,
    plan_for,
)
from graft.errors import BadInput, PatchMismatch
from graft.lock import check_fresh, load_lock
from graft.patching import SourceTree, touched_paths
from graft.patchset import Patch, PatchSet, Target, check_when
from graft.plan import Plan, installed_path, source_path
from graft.recipe import load_recipe, select_arch
from graft.trial.bytecode import PREFIX, Bytecode
from graft.trial.containers import Put, Trials, sweep, trials
from graft.trial.environment import find_image, patched_files
from graft.trial.outcome import RunResult, TrialVerdict, error_run, explain
from graft.trial.red_green import NotInstalled, Tools, Trial, Where, make_trial, on_base, read_tools, run_trials
from graft.trial.result import TrialResult, facts, keep, kept, results_folder
from graft.trial.states import below

if TYPE_CHECKING:
    from graft.engine import Engine

__all__ = ["onto", "test"]

Chosen = Sequence[tuple[PatchSet, Patch]]


@dataclass(frozen=True)
class Row:
    """What is said of one patch. `result` is None for one that could not be tried."""

    name: str
    verdict: TrialVerdict
    red: RunResult
    green: RunResult
    known: bool = False
    result: TrialResult | None = None


def test(session: Session, refs: Sequence[str], *, every: bool, rerun: bool) -> None:
    """Try patches (`component/id`, or every one of the recipe) and say what their tests prove.

    Nothing is built. Raises BadInput when no image of the recipe's environment is there, PatchMismatch unless all are
    red-green.
    """
    planned = plan_without_patches(session)
    chosen = _chosen(session, planned, refs, every)
    tools = read_tools(session.paths.scripts, session.paths.smoke)
    rows, made = _trials(session, planned, chosen, tools)
    folder = results_folder(session.paths.state)
    if not rerun:
        rows |= {t.name: _row(r, known=True) for t in made if (r := kept(folder, t.inputs)) is not None}
    waiting = [trial for trial in made if trial.name not in rows]
    if waiting:
        rows |= _run(session, planned, waiting, tools)
    else:
        _sweep(session)
    _say(session, planned, [rows[f"{found.component}/{patch.id}"] for found, patch in chosen])


def plan_without_patches(session: Session) -> Plan:
    """The plan, when packages and base are as locked. The patches need not be: they are what is tried."""
    paths, project = session.paths, session.project
    recipe = load_recipe(paths, project, session.recipe)
    select_arch(recipe, project, session.arch, paths.relative(paths.recipe(recipe.recipe)))
    locked = load_lock(paths, recipe.recipe)
    inputs = lock_inputs(session, recipe, patchsets(session, recipe))
    check_fresh(paths, locked, {part: value for part, value in inputs.items() if part != "patches"})
    return plan_for(session, Loaded(recipe, locked, image_sources(paths)), session.arch)


def _chosen(session: Session, planned: Plan, refs: Sequence[str], every: bool) -> Chosen:
    """The patches that were asked for, each once."""
    recipe, arch = planned.recipe, planned.arch.name
    if every == bool(refs):
        raise BadInput("name patches as component/id, or give --all", where="arguments", cure="graft patch test --help")
    components = recipe.components_on(arch)
    here = [ref for ref in recipe.patches if ref.partition("/")[0] in components]
    sets: dict[str, PatchSet] = {}
    chosen: list[tuple[PatchSet, Patch]] = []
    for ref in dict.fromkeys(here if every else refs):
        component, patch_id = reference(ref)
        if component not in components:
            where = f"recipe {recipe.recipe} for {arch}"
            raise BadInput(
                f"{ref}: there is no component {component!r} in {where}", cure=f"there is: {', '.join(components)}"
            )
        if component not in sets:
            sets[component] = series_of(session, component)
        found = sets[component]
        patch = next((patch for patch in found.patches if patch.id == patch_id), None)
        if patch is None:
            known = ", ".join(f"{component}/{patch.id}" for patch in found.patches)
            raise BadInput(f"there is no patch {ref}", cure=f"the series holds: {known}")
        version = components[component].version
        if not every:
            check_when(component, [patch], version, [arch])
        if patch.record.when.holds(version, arch):
            chosen.append((found, patch))
    if not chosen:
        raise BadInput(f"recipe {recipe.recipe} has no patch for {arch}")
    return chosen


def _trials(session: Session, planned: Plan, chosen: Chosen, tools: Tools) -> tuple[dict[str, Row], list[Trial]]:
    """The trials to make, and a row for each patch that cannot be tried."""
    rows: dict[str, Row] = {}
    made: list[Trial] = []
    for found, patch in chosen:
        pinned = planned.recipe.components[found.component]
        name = f"{found.component}/{patch.id}"
        try:
            trial = make_trial(
                found,
                patch,
                _tree(session, planned, found.component, touched_paths(found.patches)),
                place=functools.partial(installed_path, pinned.build, distribution=pinned.distribution),
                site=planned.site_packages,
                environment=planned.environment.key,
                protocol=tools.protocol,
            )
        except PatchMismatch as problem:
            run = error_run(problem.what)
        except NotInstalled as problem:
            run = error_run(str(problem))
        else:
            made.append(trial)
            continue
        rows[name] = Row(name, "error", run, run)
    return rows, made


def _tree(session: Session, planned: Plan, component: str, paths: Sequence[str]) -> SourceTree:
    """The pristine files of a component, out of the pinned wheel or sdist."""
    pin = component_file(planned.lock, planned.recipe, component)
    target: Target = "source" if planned.recipe.components[component].is_built else "wheel"
    return fetched_tree(session, planned.recipe, pin, target, paths)


def _run(session: Session, planned: Plan, waiting: Sequence[Trial], tools: Tools) -> dict[str, Row]:
    console, folder = session.console, results_folder(session.paths.state)
    rows: dict[str, Row] = {}

    def on_result(result: TrialResult) -> None:
        keep(folder, result)
        row = _row(result)
        rows[row.name] = row
        console.say(f"  {row.name}: {row.verdict}, {row.red.seconds:.1f} s and {row.green.seconds:.1f} s")

    engine = ready_engine(session)
    with closing(engine.client()) as client, trials(client, console) as containers:
        image = find_image(client, planned)
        env = {"GRAFT_ARCH_NVCC": planned.arch.nvcc, "PYTHONPYCACHEPREFIX": PREFIX}
        bytecode = Bytecode(folder / "bytecode", image, (planned.site_packages, "/usr/lib"))
        where = Where(image, "python", planned.recipe.recipe, planned.arch.name, env)
        with console.step(f"try {len(waiting)} patches in image {image[7:19]}"):
            base = _base(session, planned, containers, image)
            ready = [on_base(trial, base) for trial in waiting]
            run_trials(containers, where, ready, tools, bytecode, on_result)
    return rows


def _sweep(session: Session) -> None:
    """Remove what a killed run left, where an engine of this project is up; none is started for it."""
    engine = _running_engine(session)
    if engine is not None:
        sweep(engine.client, session.console)


def _running_engine(session: Session) -> Engine | None:
    """The engine that `ready_engine` would use, when it is up."""
    from graft import engine
    from graft.engine import probe

    if session.mode != "embedded":
        try:
            return probe.system_engine(session.paths.engine / "system-config")
        except probe.Unsuitable:
            pass
    return engine.find(session.paths) if session.mode != "system" else None


def _base(session: Session, planned: Plan, containers: Trials, image: str) -> Mapping[str, Put]:
    """The pristine files of all that the image holds patched, also by patches that are gone since it was built."""
    base: dict[str, Put] = {}
    for path in patched_files(containers, image):
        base[path] = Put(None)
        for name, component in planned.recipe.components_on(planned.arch.name).items():
            source = source_path(component.build, path, component.distribution)
            if source is None:
                continue
            tree = _tree(session, planned, name, [source])
            if source in tree.files:
                base[path] = Put(tree.files[source], source in tree.executable)
                break
    return below(planned.site_packages, base)


def _row(result: TrialResult, *, known: bool = False) -> Row:
    name = f"{result.component}/{result.patch}"
    return Row(name, result.verdict, result.red, result.green, known, result)


def _say(session: Session, planned: Plan, rows: Sequence[Row]) -> None:
    """The table, the result, and the error unless every patch is proven."""
    table = [
        (
            row.name,
            row.verdict,
            row.red.counts,
            row.green.counts,
            "known" if row.known else f"{row.red.seconds + row.green.seconds:.1f}",
            explain(row.red, row.green),
        )
        for row in rows
    ]
    columns = ("patch", "verdict", "without it", "with it", "seconds", "which means")
    session.console.table(f"patch tests of {planned.recipe.recipe} for {planned.arch.name}", columns, table)
    wrong = [row for row in rows if row.verdict != "red-green"]
    line = f"{len(rows) - len(wrong)} of {len(rows)} patches are red-green"
    session.console.result(line, {"recipe": planned.recipe.recipe, "arch": planned.arch.name, "patches": _json(rows)})
    if wrong:
        names = ", ".join(f"{row.name} ({row.verdict})" for row in wrong)
        raise PatchMismatch(
            f"not proven by their tests: {names}",
            where=_test_of(wrong[0].name),
            cure="the test must fail an assertion without the patch, and pass with it; the table says what it did",
        )


def _test_of(name: str) -> str:
    component, _, patch_id = name.partition("/")
    return f"patches/{component}/tests/test_{patch_id.replace('-', '_')}.py"


def _json(rows: Sequence[Row]) -> list[Mapping[str, Any]]:
    return [
        {
            "known": row.known,
            **(
                facts(row.result)
                if row.result is not None
                else {"patch": row.name, "verdict": row.verdict, "detail": row.red.detail}
            ),
        }
        for row in rows
    ]
