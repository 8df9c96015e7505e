"""`graft patch onto`: patches on an image that exists, in a small layer, tested red and green, tagged only then."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from graft.commands.onto_steps import Asked, check_runs, make_layer, make_receipt, try_patches
from graft.commands.patch_pins import series_of
from graft.commands.programs import ready_engine
from graft.commands.session import Session
from graft.errors import BadInput
from graft.lock import load_lock
from graft.patching import check_safety
from graft.recipe import load_recipe, select_arch
from graft.trial import onto as records
from graft.trial.containers import trials
from graft.trial.layer import build_layer, check_base, onto_key, work_folder
from graft.trial.red_green import read_tools, utc_now
from graft.trial.reference import Base, chosen_tag, default_tag, find_base

if TYPE_CHECKING:
    from docker import DockerClient

    from graft.engine import Engine


def onto(
    session: Session, image: str, component: str, refs: Sequence[str], *, tag: str | None, python: str = "python3"
) -> None:
    """Put patches onto an image: looked at, built, tested before and after, then tagged.

    Raises BadInput, RegistryFailed (it cannot be pulled), PatchMismatch (the installed files are not the pristine ones
    of a version that the patches know, or the tests are not red-green), BuildFailed. On an error nothing is tagged or
    left behind.
    """
    asked = _asked(session, component, refs, python)
    engine = ready_engine(session)
    with closing(engine.client()) as client:
        base = find_base(client, image, session.console, offline=session.offline)
        check_base(base)
        facts = {"base": base.id, "component": component, "python": python, "patches": [*asked.sha256s.items()]}
        key = onto_key(facts, session.paths.scripts)
        name = chosen_tag(tag, base) if tag is not None else default_tag(base, key)
        receipt = _finished(asked, client, name, key)
        if receipt is not None:
            session.console.say(f"nothing to do: {name} is built and its patches are red-green")
        else:
            receipt = _make(asked, engine, client, base, key, name)
    session.console.result(name, _facts(session, name, receipt))


def _asked(session: Session, component: str, refs: Sequence[str], python: str) -> Asked:
    paths = session.paths
    recipe = load_recipe(paths, session.project, session.recipe)
    where = paths.relative(paths.recipe(recipe.recipe))
    arch = select_arch(recipe, session.project, session.arch, where)
    if component not in recipe.components:
        known = ", ".join(recipe.components)
        raise BadInput(f"there is no component {component!r} in the recipe", where=where, cure=f"there is: {known}")
    ids = [ref.partition("/")[2] if "/" in ref else ref for ref in refs]
    other = [ref for ref in refs if "/" in ref and ref.partition("/")[0] != component]
    if other:
        raise BadInput(
            f"{other[0]} is not a patch of {component}",
            where="arguments",
            cure="the patches of one component at a time: --component says which",
        )
    found = series_of(session, component)
    chosen = found.select(ids, where="arguments")
    for patch in chosen:
        check_safety(patch.data, patch.record, where=str(patch.path))
    return Asked(
        session,
        recipe,
        load_lock(paths, recipe.recipe) if paths.lock(recipe.recipe).is_file() else None,
        arch.nvcc,
        component,
        found,
        chosen,
        python,
        read_tools(paths.scripts, paths.smoke),
    )


def _finished(asked: Asked, client: DockerClient, name: str, key: str) -> records.OntoReceipt | None:
    """The receipt of the image that has the name, when it is the one that would be made."""
    from docker.errors import ImageNotFound

    try:
        there = client.images.get(name)
    except ImageNotFound:
        return None
    if there.labels.get(records.KEY_LABEL) != key:
        return None
    return records.find_receipt(asked.session.paths.receipts, str(there.id), key, asked.tests_digest)


def _make(asked: Asked, engine: Engine, client: DockerClient, base: Base, key: str, name: str) -> records.OntoReceipt:
    session, paths = asked.session, asked.session.paths
    started, clock = utc_now(), time.monotonic()
    # Containers go before the candidate, which they would hold.
    with work_folder(paths.contexts, client) as folder, trials(client, session.console) as containers:
        with session.console.step(f"look at {asked.component} in {base.id[7:19]}"):
            layer = make_layer(asked, containers, base, key)
        with session.console.step("build the layer"):
            log = paths.logs / "patch-onto.log"
            candidate = build_layer(layer, folder, paths.scripts, engine, client, log)
        receipt = records.find_receipt(paths.receipts, candidate, key, asked.tests_digest)
        if receipt is None:
            with session.console.step(f"try {len(asked.patches)} patches, without them and with them"):
                runs = try_patches(asked, containers, layer, candidate)
            check_runs(asked, base, runs)
            receipt = make_receipt(asked, engine, layer, candidate, key, runs, started, time.monotonic() - clock)
            records.write_receipt(paths.receipts, receipt)
        repository, _, tag = name.rpartition(":")
        client.images.get(candidate).tag(repository, tag=tag)
    return receipt


def _facts(session: Session, name: str, receipt: records.OntoReceipt) -> dict[str, Any]:
    return {
        "reference": name,
        "image_id": receipt.image_id,
        "base": receipt.base,
        "component": receipt.component,
        "version": receipt.version,
        "key": receipt.key,
        "patches": [
            {"patch": f"{receipt.component}/{p.id}", "sha256": p.sha256, "verdict": p.verdict} for p in receipt.patches
        ],
        "receipt": session.paths.relative(records.receipt_file(session.paths.receipts, receipt.image_id)),
    }
