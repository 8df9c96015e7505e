"""`make image`, the main job, and `make smoke`: plan, fetch, build, gate, tag.

What only a real build needs is imported when it is needed: an image with nothing to do is said within a second.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from graft.commands.compiling import check_disk, compiled_facts, jobs_of, note, once_more
from graft.commands.components import Compiled, find, share
from graft.commands.estimate import FETCH_STEP, build_durations, durations, gate_step
from graft.commands.operators import record_first
from graft.commands.programs import bootstrap_programs, ready_engine
from graft.commands.requirements import build_checked, check_in_engine
from graft.commands.session import (
    Session,
    component_file,
    last,
    make_plan,
    other_recipes,
    patchsets,
    remember,
    wanted,
)
from graft.commands.trees import bring_trees
from graft.commands.unreachable import refuse_unlocked
from graft.errors import BadInput, GateFailed
from graft.locks import alone
from graft.patchset import recorded_patches
from graft.plan import ENTRYPOINT, WORKDIR, Plan, installed_path
from graft.recipe import load_recipe
from graft.store import CHECKED_MTIME
from graft.tags import check_alone

if TYPE_CHECKING:
    from docker import DockerClient

    from graft.build import Inputs
    from graft.engine import Engine
    from graft.gate import Expected, HostValue, Receipt, Tier


#: A download of less says little about the next one, in bytes.
FETCH_SAMPLE = 50_000_000


def image(session: Session, *, rerun_gate: bool = False, no_cache: bool = False, unlocked: bool = False) -> None:
    """Plan, fetch, build, gate, tag. The result is the immutable reference.

    unlocked: also a recipe without a lock, for which nobody promises the same bytes twice.
    """
    recipe = load_recipe(session.paths, session.project, session.recipe)
    if recipe.unlocked:
        refuse_unlocked(session, recipe, asked=unlocked)
    if unlocked:
        raise BadInput(f"recipe {recipe.recipe} has a lock", where="--unlocked", cure="leave out --unlocked")
    planned = make_plan(session)
    check_alone(session.project, recipe, planned.arch.name, other_recipes(session, recipe.recipe))
    engine = ready_engine(session)
    with closing(engine.client()) as client:
        found = finished(session, planned, client)
        if found is not None and not rerun_gate and not no_cache:
            session.console.say(f"nothing to do: {planned.tag} is built and has passed its gate")
            candidate = found
        else:
            with one_build(session):
                candidate, tests = build(session, planned, engine, no_cache=no_cache)
                started = time.monotonic()
                gate(session, planned, engine, client, candidate, tests, rerun=rerun_gate)
                durations(session).note({gate_step(planned): time.monotonic() - started})
        tag(client, candidate, planned)
        if found is None or rerun_gate or no_cache:
            share(session, planned)
    remember(session, planned)
    session.console.result(planned.tag, _facts(planned, candidate))


def smoke(session: Session, *, tier: Tier = "cpu") -> None:
    """Run the gate again, or its tests on GPUs, in the image that is tagged for this recipe and architecture.

    No tag moves: the tests on GPUs have a receipt of their own, and what they find does not end the other one.
    """
    planned = make_plan(session)
    engine = ready_engine(session)
    with closing(engine.client()) as client:
        if tagged(client, planned) is None:
            raise GateFailed(f"{planned.tag} is not built", cure=f"make image ARCH={planned.arch.name}")
        with one_build(session):
            candidate, tests = build(session, planned, engine)
            gate(session, planned, engine, client, candidate, tests, tier=tier, rerun=True)
    session.console.result(planned.tag, _facts(planned, candidate))


def build(
    session: Session, planned: Plan, engine: Engine, *, no_cache: bool = False, host: Session | None = None
) -> tuple[str, str]:
    """Fetch and build; returns the ids of the candidate and of its smoke image. Nothing is tagged.

    host: given when `session` is of what an image says of itself, which has neither series nor host's programs.
    """
    from graft.build import build_target, measured, prepare_contexts, stage_seconds
    from graft.fetch import fetch
    from graft.render import render

    rendered = render(session.paths, planned)
    started = time.monotonic()
    bring_trees(session, planned.recipe, {b.name: b.source for b in (*planned.sources, *planned.builds)})
    fetched = fetch(session.store, wanted(session, planned), session.console, offline=session.offline)
    if fetched > FETCH_SAMPLE:
        durations(session).note({FETCH_STEP: (time.monotonic() - started) * 1e9 / fetched})
    found = {} if no_cache else find(session, planned)
    inputs = _inputs(session, planned, host)
    with session.console.step("lay out the build contexts"):
        folder = prepare_contexts(session.paths, planned, rendered, session.store, inputs)
    if engine.kind == "embedded":
        check_disk(session, planned)
    compiled, built, jobs = Compiled({}, 0.0), [], {}
    if no_cache:
        # All of it in one go, as the Dockerfile says it: nothing of the store, and no step twice.
        jobs = jobs_of(session, planned, is_local=engine.host.startswith("unix://"))
    else:
        compiled = build_checked(session, planned, engine, rendered, folder, found)
        built = [b.name for b in planned.builds]
    ids = []
    for target in ("runtime", "smoke"):
        log = session.paths.logs / f"{planned.recipe.recipe}-{planned.arch.name}-{target}.log"
        log.unlink(missing_ok=True)
        started = time.monotonic()
        with session.console.step(f"build {target}"):
            build_with = functools.partial(
                build_target,
                folder,
                rendered,
                planned,
                engine.docker,
                engine.env(),
                target,
                session.console,
                log,
                no_cache=no_cache and target == "runtime",
                built=built,
            )
            made = once_more(session, build_with, jobs)
        ids.append(made)
        if target == "runtime":
            if no_cache:
                note(session, planned, measured(log))
                # An image that is made again has passed; its bytes are all that is asked of it.
                if host is None:
                    check_in_engine(session, planned, engine, rendered, folder, jobs)
            stages = {**compiled.stages, **stage_seconds(log)}
            total = compiled.total + time.monotonic() - started
            durations(session).note(build_durations(planned, last(session), stages, total))
    return ids[0], ids[1]


def gate(
    session: Session,
    planned: Plan,
    engine: Engine,
    client: DockerClient,
    candidate: str,
    tests: str,
    *,
    tier: Tier = "cpu",
    rerun: bool = False,
    record: bool = True,
) -> Receipt:
    """The smoke tests in the candidate. Raises GateFailed; a passing receipt of the same image is taken as it is.

    record: whether the first green run of an architecture says which operators the image has to register.
    """
    from graft import gate as gates

    receipts = session.paths.receipts
    digest = planned.gate.key if tier == "cpu" else planned.gpu_gate.key
    passed = gates.find_receipt(receipts, candidate, digest, tier)
    if passed is not None and not rerun:
        session.console.say(f"gate: {candidate[7:19]} has a passing receipt")
        return passed
    facts = gates.ReceiptFacts(
        recipe=planned.recipe.recipe,
        arch=planned.arch.name,
        key=planned.image.key,
        lock_digest=planned.lock.digest,
        gate_digest=digest,
        compiled=compiled_facts(session, planned),
        engine=f"{engine.kind} Docker {engine.version}, {engine.store} image store",
        look_inside=f"DOCKER_HOST={engine.host} {engine.docker} run -it --rm --network none --entrypoint bash",
    )
    chosen = (
        [
            *gates.smoke_tests(session.paths.smoke, planned.recipe.smoke),
            gates.image_config(client, candidate, _expected(planned), gates.Finder(_of_this_host(session))),
        ]
        if tier == "cpu"
        else gates.gpu_tests([pin.name for pin in planned.lock.image_packages(planned.arch.name)])
    )
    with session.console.step("gate" if tier == "cpu" else "gate on GPUs"):
        receipt = gates.run_gate(
            client,
            tests,
            candidate,
            chosen,
            tier=tier,
            console=session.console,
            receipts=receipts,
            facts=facts,
        )
    return record_first(session, planned, receipt) if tier == "cpu" and record else receipt


def _expected(planned: Plan) -> Expected:
    from graft.gate import Expected

    return Expected(planned.env, planned.labels(), ENTRYPOINT, WORKDIR)


def _of_this_host(session: Session) -> list[HostValue]:
    from graft.gate import host_values

    project = session.project
    snapshots = {f"bases.{n}": b.bootstrap.snapshot for n, b in project.bases.items() if b.bootstrap}
    shared = {"compile_cache.redis": project.compile_cache.redis}
    return host_values(session.paths.root, {**snapshots, **shared, **project.indexes, "index": project.index})


def tag(client: DockerClient, candidate: str, planned: Plan) -> None:
    """Move the tags to the candidate, by id: the immutable one first."""
    made = client.images.get(candidate)
    for reference in (planned.tag, *planned.channels):
        repository, _, name = reference.rpartition(":")
        if reference not in made.tags:
            made.tag(repository, tag=name)


def tagged(client: DockerClient, planned: Plan) -> str | None:
    """The id of the image under the plan's immutable tag; None when there is none."""
    from docker.errors import ImageNotFound

    try:
        found = client.images.get(planned.tag)
    except ImageNotFound:
        return None
    return str(found.id) if found.labels.get("dev.graft.key") == planned.image.key else None


def finished(session: Session, planned: Plan, client: DockerClient) -> str | None:
    """The id of the plan's image when it is tagged and its gate has passed with these tests."""
    from graft import gate as gates

    found = tagged(client, planned)
    if found is None or gates.find_receipt(session.paths.receipts, found, planned.gate.key) is None:
        return None
    return found


@contextmanager
def one_build(session: Session) -> Iterator[None]:
    """One build per recipe and architecture at a time: they share the contexts on disk."""
    folder = session.paths.contexts
    folder.mkdir(parents=True, exist_ok=True)
    what = f"another build of {session.recipe} for {session.arch}"
    with alone(folder / f"{session.recipe}-{session.arch}.lock", what, session.console.say):
        yield


def _inputs(session: Session, planned: Plan, host: Session | None) -> Inputs:
    """The base's files, and the original bytes of every patched file (for the red half of red and green)."""
    from graft import patching
    from graft.base import build_rootfs
    from graft.build import Inputs

    store, packages = session.store, planned.lock.base.packages
    runtime = [pin for pin in packages if pin.set == "runtime"]
    debs = {pin: store.path(pin) for pin in runtime}
    # The same time in every base: the lock's date would change all layers with every lock.
    rootfs = build_rootfs(
        session.paths,
        planned.recipe.base,
        runtime,
        debs,
        CHECKED_MTIME,
        session.console.say,
        functools.partial(bootstrap_programs, host or session, planned.lock.base.suite),
        suite=planned.lock.base.suite,
    )
    pristine: dict[str, dict[str, bytes]] = {}
    patches: dict[str, dict[str, bytes]] = {}
    sets = patchsets(session, planned.recipe) if host is None else {}
    for component, patched in planned.patched().items():
        # Those that are locked for this architecture, in the order of the series.
        wanted_here = {pin.id for pin in patched.patches}
        ids = [patch_id for patch_id in planned.recipe.patches_of(component) if patch_id in wanted_here]
        if host is None:
            chosen = sets[component].select(ids)
        else:
            chosen = recorded_patches(session.paths.patches / component, [pin.id for pin in patched.patches])
        patching.check_files(component, patched, chosen)
        patches[component] = patching.context_files(patched, chosen)
        file = store.path(component_file(planned.lock, planned.recipe, component))
        pinned = planned.recipe.components[component]
        place = functools.partial(installed_path, pinned.build, distribution=pinned.distribution)
        touched = {path for pin in patched.patches for path in pin.files}
        places = {path: where for path in sorted(touched) if (where := place(path)) is not None}
        read = patching.read_files(file, patched.target, list(places))
        pristine[component] = {places[path]: data for path, data in read.items()}
    builder = [store.path(pin) for pin in packages if pin.set == "builder"]
    return Inputs(rootfs, builder, pristine, patches)


def _facts(planned: Plan, candidate: str) -> dict[str, Any]:
    return {
        "reference": planned.tag,
        "channels": list(planned.channels),
        "image_id": candidate,
        "key": planned.image.key,
        "lock": planned.lock.digest,
    }
