"""`graft reproduce IMAGE`: build an image again from nothing but itself, and say where the two differ."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from graft import metadata
from graft.commands.image import build, gate, one_build
from graft.commands.programs import ready_engine
from graft.commands.session import Session, image_sources
from graft.errors import BadInput, BuildFailed
from graft.operators import load_operators
from graft.paths import Paths
from graft.plan import Plan, first_difference
from graft.recipe import Recipe, load_recipe

if TYPE_CHECKING:
    from docker import DockerClient

    from graft.trial.layers import FileDifference
    from graft.trial.reference import Base

MAX_ROWS = 60


def reproduce(session: Session, what: str, *, trust: bool, without_gate: bool) -> None:
    """Fetch, build every step anew, gate, and compare with the image, down to the files of its layers. Tags nothing.

    The lock, the facts, the patches, the templates and the scripts are the image's; the smoke tests and the host's
    programs are this checkout's. trust: also run scripts of the image that this checkout does not have.
    Raises BadInput (no image of Graft, or not with this Graft), BuildFailed when the two are not the same.
    """
    from graft.inventory.imaged import read_metadata
    from graft.trial.containers import trials
    from graft.trial.reference import check_image, find_base

    check_image(what)
    engine = ready_engine(session)
    with closing(engine.client()) as client:
        image = find_base(client, what, session.console, offline=session.offline)
        with trials(client, session.console) as containers:
            found = read_metadata(containers, image.id)
        gate_of = None if without_gate else _recipe_here(session, found)
        planned = _planned(session, found, what, image, gate_of)
        _check_trust(session, found, what, trust=trust)
        with _project(session, planned, found, image) as paths:
            inner = replace(
                session, paths=paths, project=planned.project, recipe=planned.recipe.recipe, arch=planned.arch.name
            )
            with one_build(inner):
                candidate, tests = build(inner, planned, engine, no_cache=True, host=session)
                if gate_of is not None:
                    gate(inner, planned, engine, client, candidate, tests, rerun=True, record=False)
        _judge(session, client, what, image, candidate, planned, gated=gate_of is not None)


def _recipe_here(session: Session, found: Mapping[str, bytes]) -> Recipe:
    """The recipe of this checkout, whose smoke tests the gate runs. Raises BadInput."""
    try:
        name = json.loads(found["manifest.json"])["recipe"]
    except (KeyError, ValueError, TypeError):
        raise BadInput(
            "the image does not say which recipe it is of", where="IMAGE", cure="name one of Graft"
        ) from None
    try:
        return load_recipe(session.paths, session.project, str(name))
    except BadInput as problem:
        problem.cure = "the gate's tests are those of the recipe here; build and compare without them: --no-gate"
        raise


def _planned(session: Session, found: Mapping[str, bytes], what: str, image: Base, gate_of: Recipe | None) -> Plan:
    """The image's own plan. Raises BadInput when its key is not the image's."""
    recorded = load_operators(session.paths, gate_of.recipe, gate_of.arches) if gate_of is not None else None
    planned = metadata.plan_of(found, session.project, what, gate_of, image_sources(session.paths), recorded)
    label = (image.attrs["Config"].get("Labels") or {}).get("dev.graft.key")
    if planned.image.key != label:
        raise BadInput(
            f"what the image says of itself has key {planned.image.key[:12]}, and its label {str(label)[:12]}:"
            f" {_first_other(found, planned)} differs",
            where=what,
            cure="use the Graft that built it (dev.graft.* labels, /usr/share/graft/key.json)",
        )
    return planned


def _first_other(found: Mapping[str, bytes], planned: Plan) -> str:
    try:
        before = json.loads(found["key.json"])["inputs"]
        return first_difference(before, dict(planned.image.inputs)) or "the label"
    except (KeyError, ValueError, TypeError):
        return "key.json cannot be read, so nobody knows what"


def _check_trust(session: Session, found: Mapping[str, bytes], what: str, *, trust: bool) -> None:
    """Scripts of an image run here, some as root outside of any container: those of this checkout, or asked for."""
    other = [
        name
        for name, data in metadata.image_files(found).items()
        if not (session.paths.images / name).is_file() or (session.paths.images / name).read_bytes() != data
    ]
    if not other:
        return
    more = f" and {len(other) - 1} more" if len(other) > 1 else ""
    if not trust:
        raise BadInput(
            f"the image was built with another images/{other[0]}{more} than this checkout has, and it would run here",
            where=what,
            cure="check out the revision that built it; or look at the image's /usr/share/graft/images, then --trust",
        )
    session.console.warn(f"templates and scripts of the image are used: {', '.join(other)}")


@contextmanager
def _project(session: Session, planned: Plan, found: Mapping[str, bytes], image: Base) -> Iterator[Paths]:
    """The image's inputs as a project on disk, with the state of this one; removed at the end."""
    state = session.paths.state.resolve()
    root = state / "reproduce" / image.id.removeprefix("sha256:")[:12]
    shutil.rmtree(root, ignore_errors=True)
    paths = Paths(root)
    tests = shutil.ignore_patterns("__pycache__")
    shutil.copytree(session.paths.smoke, paths.smoke, ignore=tests)
    paths.state.symlink_to(state)
    for name, data in found.items():
        if name.startswith((metadata.IMAGES, "patches/")):
            place = root / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
            # Some are hooks of mmdebstrap, which starts them itself.
            place.chmod(0o755 if name.startswith(f"{metadata.IMAGES}scripts/") else 0o644)
    for ref in planned.patch_refs:
        component, _, patch_id = ref.partition("/")
        name = f"test_{patch_id.replace('-', '_')}.py"
        test = session.paths.patches / component / "tests" / name
        if not test.is_file():
            raise BadInput(f"the test of {ref} is not in this checkout", where=session.paths.relative(test))
        place = paths.patches / component / "tests" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(test, place)
    try:
        yield paths
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _judge(
    session: Session, client: DockerClient, what: str, image: Base, candidate: str, planned: Plan, *, gated: bool
) -> None:
    from graft.trial.layers import configs_differ, history_differs, layers_differ

    facts: dict[str, Any] = {"image": image.id, "built": candidate, "key": planned.image.key, "gated": gated}
    if candidate == image.id:
        session.console.result(
            f"reproduced {candidate}", {**facts, "equal": True, "differences": [], "config": [], "exceptions": {}}
        )
        return
    with session.console.step("compare the layers"):
        config = configs_differ(image.attrs, client.images.get(candidate).attrs)
        files = layers_differ(client, image.id, candidate)
        texts = history_differs(client, image.id, candidate)
    if not config and not files and texts:
        session.console.say(f"apart from the texts of its history, which reach nobody who runs it: {'; '.join(texts)}")
        result = f"reproduced every layer and the configuration of {image.id}"
        data = {**facts, "equal": True, "differences": [], "config": [], "exceptions": {"history": texts}}
        session.console.result(result, data)
        return
    _show(session, config, files)
    data = {**facts, "equal": False, "config": config, "differences": [asdict(file) for file in files]}
    layers = len({file.layer for file in files})
    session.console.result(f"{len(files)} files of {layers} layers differ", data)
    raise BuildFailed(
        f"{what} is not what was built from it: {len(files)} files of {layers} layers differ"
        + (f", and {len(config)} entries of the configuration" if config else ""),
        where=candidate,
        cure="the table above names them; the new build is there under that id",
    )


def _show(session: Session, config: list[str], files: list[FileDifference]) -> None:
    for line in config:
        session.console.say(f"configuration: {line}")
    rows = [(str(file.layer), file.file, file.what) for file in files[:MAX_ROWS]]
    if rows:
        session.console.table("files that differ", ("layer", "file", "what"), rows)
    if len(files) > MAX_ROWS:
        session.console.say(f"and {len(files) - MAX_ROWS} more; --json names them all")
