"""The inventory of an image on an engine: its configuration, what it says of itself, and a look inside."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from graft import metadata
from graft.component import Component as RecipeComponent
from graft.console import Console
from graft.errors import BadInput, GraftError
from graft.gate import found_operators
from graft.gate.receipt import FAILED, PASSED, folder_of, read_receipt
from graft.inventory.model import Component, Inventory, Layer, Package
from graft.plan import Plan
from graft.project import Project
from graft.trial.containers import Job, Put, Trials, trials
from graft.trial.reference import Base
from graft.yamlio import Model, parse

if TYPE_CHECKING:
    from docker import DockerClient

PROBE_SECONDS = 600.0
PROBE_HOME = "/graft-inventory"
#: Instructions that change the configuration alone. A step of any other makes a layer, be it an empty one.
NO_LAYER = re.compile(
    r"^(?:/bin/sh -c #\(nop\) +)?(?:ENV|LABEL|ENTRYPOINT|CMD|EXPOSE|USER|VOLUME|ARG|STOPSIGNAL|HEALTHCHECK|SHELL"
    r"|MAINTAINER|ONBUILD)\b"
)
#: Steps of images/stages/ that are the same in every image.
OWN_STEPS = {"ADD metadata.tar /": "metadata", "ADD rootfs.tar /": "base"}
#: Without the shell, the builder's name, and the end that each published step has (images/macros/run.j2).
STEP_WORDS = re.compile(
    r"^(?:/bin/sh -c #\(nop\) +|RUN )?(?:/bin/sh -c )?(.*?)"
    r"(?: && touch --date=@\d+ /etc /run /tmp)?(?: # buildkit)?$"
)


class _Package(Model):
    version: str
    bytes: int


class _Answer(Model):
    """What images/scripts/inventory.py says."""

    python: dict[str, _Package]
    debian: dict[str, _Package]
    gpu: dict[str, list[str]]
    unread: dict[str, str]
    roots: list[str]


def of_image(
    client: DockerClient,
    console: Console,
    name: str,
    image: Base,
    project: Project,
    scripts: Mapping[str, bytes],
    receipts: Path,
) -> Inventory:
    """Everything that is known of an image; `scripts` are the files of the probe, by name.

    Operators are those that a gate run found whose receipt lies in `receipts`. An image that Graft did not make has no
    components. Without a Python that runs, its packages and GPU code are not known, which is noted.
    Raises EngineMissing.
    """
    config = image.attrs["Config"]
    labels: Mapping[str, str] = config.get("Labels") or {}
    env = dict(sorted(entry.partition("=")[::2] for entry in config.get("Env") or ()))
    with trials(client, console) as containers:
        found = read_metadata(containers, image.id)
        answer, why = _probe(containers, image.id, env, scripts)
    plan = _plan(found, project, name)
    layers, unmatched = layers_of(client.images.get(image.id).history(), image.attrs["RootFS"]["Layers"], plan)
    notes = [note for note in (why, unmatched) if note]
    notes += [f"{file} cannot be read: {problem}" for file, problem in (answer.unread if answer else {}).items()]
    return Inventory(
        name,
        "image",
        facts_of(labels, image.id),
        "installed",
        components=_components(labels, found),
        patches=patches_of(labels),
        python=_packages(answer.python) if answer else None,
        debian=_packages(answer.debian) if answer else None,
        env=env,
        entrypoint=tuple(config.get("Entrypoint") or ()),
        gpu=answer.gpu if answer else None,
        operators=operators_of(receipts, image.id),
        layers=layers,
        notes=notes,
    )


def read_metadata(containers: Trials, image_id: str) -> dict[str, bytes]:
    """/usr/share/graft of an image: path below it -> bytes; empty when Graft did not make it. Nothing of it runs."""
    container = containers.make(Job("metadata", image_id, ("/nothing",), {}, 0.0))
    try:
        found = containers.read(container, metadata.HOME)
    finally:
        containers.remove(container)
    return {path.partition("/")[2]: data for path, data in found.items()}


def operators_of(receipts: Path, image_id: str) -> dict[str, tuple[str, ...]] | None:
    """What a gate run of this very image found that its extensions register; None where no receipt says it."""
    for name in (PASSED, FAILED):
        file = folder_of(receipts, image_id) / name
        if not file.is_file():
            continue
        try:
            receipt = read_receipt(file)
            return found_operators(receipt) if receipt.image_id == image_id else None
        except GraftError:
            return None
    return None


def layers_of(
    history: Sequence[Mapping[str, Any]], digests: Sequence[str], plan: Plan | None
) -> tuple[tuple[Layer, ...] | None, str]:
    """The layers, oldest first, with the steps that made them; or None and why they cannot be told apart.

    history: of the Engine API, newest first, sizes in bytes. digests: of the uncompressed layers, oldest first.
    """
    steps = list(reversed(history))
    making = [step for step in steps if not NO_LAYER.match(str(step["CreatedBy"]))]
    if len(making) != len(digests):
        # Other builders record a step for a folder that was there already.
        making = [step for step in steps if step["Size"] > 0]
    if len(making) != len(digests):
        return None, f"its history names {len(making)} steps for {len(digests)} layers: their sizes are not known"
    said = said_of([str(step["CreatedBy"]) for step in making], plan)
    rows = zip(digests, making, said, strict=True)
    return tuple(Layer(digest, int(step["Size"]), words) for digest, step, words in rows), ""


def said_of(steps: Sequence[str], plan: Plan | None = None) -> list[str]:
    """What each step that made a layer did, lowest first; of an image of Graft by its plan.

    The texts of a history are BuildKit's, which at times gives a layer the text of a step that only read it.
    """
    if plan is not None and len(planned := _planned(plan)) == len(steps):
        return planned
    words = [match[1] if (match := STEP_WORDS.match(step)) else step for step in steps]
    return [OWN_STEPS.get(text, text.replace("bash /run/graft/scripts/", "")[:100]) for text in words]


def _planned(plan: Plan) -> list[str]:
    """The layers of images/stages/, in their order."""
    foundation = [
        [f"wheels {layer.name}", *(["cuda-links"] if layer.name == "cuda" else [])] for layer in plan.foundation
    ]
    return [
        *("base", "venv"),
        *(name for names in foundation for name in names),
        *(f"wheels {layer.name}" for layer in (*plan.libraries, *plan.wheels)),
        *(f"compiled {build.name}" for build in plan.builds),
        *(f"overlay {overlay.name}" for overlay in plan.overlays),
        *("metadata", "workdir"),
    ]


def _probe(
    containers: Trials, image_id: str, env: Mapping[str, str], scripts: Mapping[str, bytes]
) -> tuple[_Answer | None, str]:
    from docker.errors import APIError

    python = f"{env['VIRTUAL_ENV']}/bin/python" if "VIRTUAL_ENV" in env else "python3"
    files = {f"{PROBE_HOME}/{name}": Put(data) for name, data in scripts.items()}
    argv = (python, f"{PROBE_HOME}/inventory.py")
    job = Job("inventory", image_id, argv, files, PROBE_SECONDS, {"PYTHONDONTWRITEBYTECODE": "1"})
    container = containers.make(job)
    unknown = f"{python} does not run in {image_id[:19]}: its packages and GPU code are not known"
    try:
        ended = containers.wait(container, PROBE_SECONDS)
    except APIError as problem:
        # The runtime refuses to start a program that is not there.
        if problem.status_code in (400, 404):
            return None, unknown
        raise
    finally:
        containers.remove(container)
    try:
        if ended.exit_code == 0:
            return _Answer.model_validate(json.loads(ended.stdout.splitlines()[-1])), ""
    except (IndexError, ValueError, ValidationError):
        pass
    return None, f"{unknown} ({ended.tail()[-200:]})"


def facts_of(labels: Mapping[str, str], image_id: str) -> dict[str, str]:
    """What the labels say of an image, and its id."""
    names = {"recipe": "dev.graft.recipe", "arch": "dev.graft.arch", "CUDA": "dev.graft.cuda"}
    facts = {fact: labels[label] for fact, label in names.items() if label in labels}
    if "dev.graft.key" in labels:
        facts["key"] = labels["dev.graft.key"][:12]
    if "dev.graft.lock" in labels:
        facts["lock"] = labels["dev.graft.lock"].removeprefix("sha256:")[:12]
    return {**facts, "image": image_id.removeprefix("sha256:")[:12]}


def _components(labels: Mapping[str, str], found: Mapping[str, bytes]) -> dict[str, Component] | None:
    """From the recipe in the image, in its order; None for an image that Graft did not make."""
    if "dev.graft.recipe" not in labels or "recipe.yaml" not in found:
        return None
    data = parse(found["recipe.yaml"], _where("recipe.yaml")).data
    try:
        made = {name: RecipeComponent.model_validate(entry) for name, entry in data["components"].items()}
    except (KeyError, TypeError, AttributeError, ValidationError) as problem:
        raise BadInput(f"the components cannot be read: {problem}", where=str(_where("recipe.yaml"))) from None
    return {name: Component(c.version, c.commit, c.kind, c.distribution) for name, c in made.items()}


def patches_of(labels: Mapping[str, str]) -> dict[str, str] | None:
    """component/id -> sha256 by the labels; None for an image that Graft did not make."""
    if "dev.graft.recipe" not in labels:
        return None
    prefix = "dev.graft.patch."
    return {
        label.removeprefix(prefix).replace(".", "/", 1): digest.removeprefix("sha256:")
        for label, digest in sorted(labels.items())
        if label.startswith(prefix)
    }


def _packages(found: Mapping[str, _Package]) -> dict[str, Package]:
    return {name: Package(entry.version, entry.bytes) for name, entry in sorted(found.items())}


def _plan(found: Mapping[str, bytes], project: Project, where: str) -> Plan | None:
    """What the image was made by; None where it does not say so. Only the names of its layers depend on it."""
    try:
        return metadata.plan_of(found, project, where)
    except BadInput:
        return None


def _where(name: str) -> Path:
    return Path(metadata.HOME) / name
