"""`make push`: the gated image into a registry; `graft key new`: the pair of keys that signs."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from graft.commands.image import tagged
from graft.commands.programs import ready_engine
from graft.commands.registry import SIGNING_KEY, publisher, registry_of, repository_of, signing_key
from graft.commands.session import Session, make_plan, other_recipes, patchsets
from graft.errors import BadInput, GateFailed
from graft.gate import Receipt, find_receipt
from graft.plan import Plan
from graft.publish.evidence import Evidence
from graft.publish.keys import new_pair
from graft.publish.push import NOT_GATED, Publication, publish
from graft.publish.statements import provenance, sbom
from graft.registry.images import Memory
from graft.registry.saved import EngineImage
from graft.tags import check_alone, check_tag

if TYPE_CHECKING:
    from docker import DockerClient

    from graft.engine import Engine


def push(session: Session, *, address: str | None) -> None:
    """Publish the image that is built and has passed its gate. The result is the reference by digest."""
    planned = make_plan(session)
    repository = repository_of(session, address)
    tags = channel_tags(session, planned)
    key, by = signing_key(session), publisher(session)
    engine = ready_engine(session)
    with closing(engine.client()) as client:
        image_id, receipt = _gated(session, planned, client)
        registry = registry_of(repository)
        if key is None:
            session.console.warn("not signed: build.yaml names no key, and pullers will be told (graft key new)")
        done = publish(
            registry,
            Publication(
                source=_source(client, engine, image_id),
                receipt=receipt,
                tag=planned.tag.rpartition(":")[2],
                channels=tags,
                evidence=lambda image, digest, final: evidence(session, planned, str(repository), image, digest, final),
                by=by,
            ),
            key,
            Memory(session.paths.state / "publish", session.project.registry.compression),
            session.project.registry.compression,
            session.console,
            threads=session.jobs or os.cpu_count() or 1,
        )
    for channel in tags:
        moved = "now" if channel in done.moved else "stays"
        session.console.say(f"{registry.name(channel)} {moved} at {done.digest}")
    session.console.result(
        registry.name(done.digest),
        {
            "reference": registry.name(done.digest),
            "tag": registry.name(planned.tag.rpartition(":")[2]),
            "channels": [registry.name(channel) for channel in tags],
            "moved": [registry.name(channel) for channel in done.moved],
            "digest": done.digest,
            "image_id": done.image_id,
            "signed": key is not None,
            "new_bytes": done.new_bytes,
        },
    )


def channel_tags(session: Session, planned: Plan) -> tuple[str, ...]:
    """The tags that a push moves. Raises BadInput for an illegal one, and for one that is another recipe's as well."""
    candidate = session.project.registry.channels.tag("candidate", planned.recipe.recipe, planned.arch.name)
    tags = tuple(dict.fromkeys([candidate, *(name.rpartition(":")[2] for name in planned.channels)]))
    for tag in (*tags, planned.tag):
        check_tag(f":{tag.rpartition(':')[2]}", "build.yaml: channels")
    stable = session.project.registry.channels.tag("stable", planned.recipe.recipe, planned.arch.name)
    if stable in tags:
        raise BadInput(f"{stable} is the stable channel: only promote moves it", where="build.yaml: channels")
    check_alone(session.project, planned.recipe, planned.arch.name, other_recipes(session, planned.recipe.recipe))
    return tags


def evidence(
    session: Session, planned: Plan, repository: str, image_id: str, digest: str, receipt: Receipt
) -> Evidence:
    """Everything that is attached to the image."""
    sets = patchsets(session, planned.recipe)
    patches = {name: sets[name].select([pin.id for pin in entry.patches]) for name, entry in planned.patched().items()}
    return Evidence(
        {
            "receipt": (receipt.model_dump_json(indent=1) + "\n").encode(),
            "lock": session.paths.lock(planned.recipe.recipe).read_bytes(),
            "sbom": sbom(planned, image_id, digest, patches),
            "provenance": provenance(planned, repository, digest, receipt.started),
        }
    )


def new_key(session: Session, private: Path, public: Path) -> None:
    """Make a pair of keys. The password is that of GRAFT_SIGNING_PASSWORD, if it is set."""
    password = os.environ.get("GRAFT_SIGNING_PASSWORD")
    made = new_pair(private, public, password)
    sealed = "sealed with GRAFT_SIGNING_PASSWORD" if password else "without a password: keep the file safe"
    session.console.say(f"private key: {private} ({sealed}); never commit it. export {SIGNING_KEY}={private}")
    session.console.say(f"public key: {public}; commit it and name it in build.yaml: registry.key")
    session.console.result(made.fingerprint, {"fingerprint": made.fingerprint, "public": str(public)})


def _gated(session: Session, planned: Plan, client: DockerClient) -> tuple[str, Receipt]:
    """The image under the plan's tag and its passing receipt. Raises GateFailed."""
    found = tagged(client, planned)
    if found is None:
        raise GateFailed(f"{planned.tag} is not built", cure=f"make image ARCH={planned.arch.name}")
    receipt = find_receipt(session.paths.receipts, found, planned.gate.key)
    if receipt is None:
        raise GateFailed(f"{planned.tag} ({found[7:19]}) has no passing receipt of these tests", cure=NOT_GATED)
    return found, receipt


def _source(client: DockerClient, engine: Engine, image_id: str) -> EngineImage:
    layers = client.images.get(image_id).attrs["RootFS"]["Layers"]
    return EngineImage(client, image_id, tuple(layers), named_by_config=engine.store == "classic")
