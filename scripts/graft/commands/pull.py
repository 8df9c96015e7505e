"""`make pull` and `make verify`: what a channel is, that it passed, and how to run it."""

from __future__ import annotations

import datetime
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from graft.commands.programs import ready_engine
from graft.commands.registry import public_key, reference_of, registry_of, repository_of
from graft.commands.session import Session
from graft.console import Console
from graft.errors import RegistryFailed
from graft.publish.verify import ASK, Verified, verify
from graft.recipe import load_recipe, select_arch
from graft.registry.reference import Reference

if TYPE_CHECKING:
    from docker import DockerClient

    from graft.registry.client import Registry

Channel = Literal["candidate", "stable"]
MODEL = "MODEL"


def verify_image(session: Session, image: str, *, address: str | None, key: Path | None, unsigned: bool) -> None:
    """Check a published image. The result is its reference by digest."""
    reference = reference_of(session, image, address)
    found = verify(
        registry_of(reference.repository), reference, None if unsigned else public_key(session, key), unsigned=unsigned
    )
    show(session.console, found)
    session.console.result(str(found.by_digest), facts(found))


def pull(
    session: Session, *, channel: Channel, image: str | None, address: str | None, key: Path | None, unsigned: bool
) -> None:
    """A channel's image, or a named one, verified and then pulled by digest. The result is the reference by digest."""
    if image is not None:
        reference = reference_of(session, image, address)
    else:
        recipe = load_recipe(session.paths, session.project, session.recipe)
        select_arch(recipe, session.project, session.arch, session.paths.relative(session.paths.recipe(recipe.recipe)))
        tag = session.project.registry.channels.tag(channel, recipe.recipe, session.arch)
        reference = Reference(repository_of(session, address), tag=tag)
    registry = registry_of(reference.repository)
    found = verify(registry, reference, None if unsigned else public_key(session, key), unsigned=unsigned)
    if image is None:
        _check_meant(session, found)
    show(session.console, found)
    engine = ready_engine(session)
    with closing(engine.client()) as client, session.console.step(f"pull {found.by_digest}"):
        _pull(client, registry, found, engine.store == "classic")
        if found.tag:
            client.images.get(str(found.by_digest)).tag(str(reference.repository), tag=found.tag)
    by_hand = f"DOCKER_HOST={engine.host} {engine.docker}" if engine.kind == "embedded" else "docker"
    session.console.say("run it:")
    session.console.say(f"  {by_hand} run --gpus all -p 8000:8000 {found.by_digest} {MODEL}")
    session.console.result(str(found.by_digest), facts(found))


def show(console: Console, found: Verified) -> None:
    """Who, when, which tests."""
    receipt, claim = found.receipt, found.claim
    signed = "nobody: not asked for"
    if claim is not None and found.key is not None:
        signed = f"{claim.by or 'no name'}, {_time(claim.time)}, key {found.key.fingerprint[:19]}"
    rows = [
        ("image", str(found.by_digest)),
        ("image id", found.image_id),
        ("immutable tag", found.tag),
        ("signed by", signed),
        ("recipe", f"{receipt.recipe} for {receipt.arch}"),
        ("key", receipt.key),
        ("lock", receipt.lock_digest),
        ("gate", f"passed {receipt.started}, {receipt.engine}"),
        *(
            ("", f"{test.id}: {test.verdict}, {len(test.checks)} checks, {test.seconds:.0f} s")
            for test in receipt.tests
        ),
        *(("not shown by it", limit) for limit in receipt.limits),
    ]
    console.table("verified" if claim is not None else "verified, without a signature", ("what", "found"), rows)


def facts(found: Verified) -> dict[str, Any]:
    """For --json."""
    claim = found.claim
    return {
        "reference": str(found.by_digest),
        "digest": found.digest,
        "image_id": found.image_id,
        "tag": found.tag,
        "signed": claim is not None,
        "by": claim.by if claim else None,
        "at": _time(claim.time) if claim else None,
        "key_fingerprint": found.key.fingerprint if claim and found.key else None,
        "recipe": found.receipt.recipe,
        "arch": found.receipt.arch,
        "key": found.receipt.key,
        "lock": found.receipt.lock_digest,
        "gate": {test.id: test.verdict for test in found.receipt.tests},
        "gate_started": found.receipt.started,
    }


def _time(seconds: int) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _check_meant(session: Session, found: Verified) -> None:
    """A channel's tag must point to an image of its own recipe and architecture."""
    said = (found.receipt.recipe, found.receipt.arch)
    if said != (session.recipe, session.arch):
        raise RegistryFailed(
            f"is an image of {said[0]} for {said[1]}, not of {session.recipe} for {session.arch}",
            where=str(found.reference),
            cure=ASK,
        )


def _pull(client: DockerClient, registry: Registry, found: Verified, named_by_config: bool) -> None:
    """By digest, through the engine; then the engine's name of it must be the image that was verified."""
    from docker.errors import APIError

    where, repository = str(found.by_digest), str(registry.repository)
    credentials = registry.credentials
    try:
        events = client.api.pull(
            repository,
            tag=found.digest,
            stream=True,
            decode=True,
            platform="linux/amd64",
            auth_config=credentials.for_docker() if credentials is not None else {},
        )
        problems = [str(event["error"]) for event in events if "error" in event]
        if problems:
            raise RegistryFailed(f"the engine cannot pull it: {problems[-1]}", where=where, cure=REACH)
        image = client.images.get(where)
    except APIError as problem:
        raise RegistryFailed(f"the engine cannot pull it: {problem.explanation}", where=where, cure=REACH) from problem
    wanted = found.image_id if named_by_config else found.digest
    if image.id != wanted:
        raise RegistryFailed(f"the engine has another image now: {image.id}, not {wanted}", where=where, cure=ASK)


REACH = "the engine must reach the registry too: its proxy, its certs.d, or a truncated layer that a new push repairs"
