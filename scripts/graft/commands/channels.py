"""`graft history`, `promote` and `rollback`: channels are moved to images that are verified, never rebuilt."""

from __future__ import annotations

from pathlib import Path

from graft.commands.pull import Channel, facts, show
from graft.commands.registry import public_key, publisher, reference_of, registry_of, repository_of
from graft.commands.session import Session
from graft.errors import RegistryFailed
from graft.publish.history import Move, Record, before, history_tag, read_history, record
from graft.publish.keys import PublicKey
from graft.publish.push import now_utc
from graft.publish.tagging import move
from graft.publish.verify import Verified, verify
from graft.recipe import load_recipe, select_arch
from graft.registry.client import Registry
from graft.registry.reference import Reference


def history(session: Session, *, address: str | None) -> None:
    """Where the channels stand and every move, the newest first. The result is one line for each move."""
    recipe = _recipe(session)
    registry = registry_of(repository_of(session, address))
    found = read_history(registry, history_tag(recipe, session.arch))
    channels = dict.fromkeys([*_channels(session), *(entry.channel for entry in found.moves)])
    stands = {tag: registry.digest_at(tag) for tag in channels}
    for tag, digest in stands.items():
        session.console.say(f"{registry.name(tag)} {_standing(found, tag, digest)}")
    rows = [
        (entry.at, entry.channel, entry.action, entry.digest[:19], (entry.previous or "")[:19], entry.tag, entry.by)
        for entry in reversed(found.moves)
    ]
    session.console.table(
        f"moves of {recipe} for {session.arch}", ("when", "channel", "how", "to", "from", "tag", "who"), rows
    )
    lines = "\n".join(f"{e.at} {e.channel} {e.action} {e.digest}" for e in reversed(found.moves))
    session.console.result(
        lines or "no moves",
        {"channels": stands, "moves": [entry.model_dump(mode="json") for entry in found.moves]},
    )


def promote(
    session: Session, image: str | None, *, to: Channel, address: str | None, key: Path | None, unsigned: bool
) -> None:
    """Move a channel to an image that verifies: the named one, or what the candidate channel points to."""
    recipe = _recipe(session)
    if image is not None:
        reference = reference_of(session, image, address)
    else:
        tag = session.project.registry.channels.tag("candidate", recipe, session.arch)
        reference = Reference(repository_of(session, address), tag=tag)
    registry = registry_of(reference.repository)
    found = verify(registry, reference, None if unsigned else public_key(session, key), unsigned=unsigned)
    _check_recipe(session, found)
    channel = session.project.registry.channels.tag(to, recipe, session.arch)
    _move(session, registry, found, channel, "promote", recipe)


def rollback(session: Session, *, channel: Channel, address: str | None, key: Path | None, unsigned: bool) -> None:
    """Move a channel back to the last image before this one that still verifies."""
    recipe = _recipe(session)
    registry = registry_of(repository_of(session, address))
    public = None if unsigned else public_key(session, key)
    tag = session.project.registry.channels.tag(channel, recipe, session.arch)
    now = registry.digest_at(tag)
    moves = read_history(registry, history_tag(recipe, session.arch)).of(tag)
    earlier = before(moves, now)
    if not earlier:
        raise RegistryFailed(
            "there is nothing to go back to: the record has no earlier image",
            where=registry.name(tag),
            cure="graft history shows the record; graft promote IMAGE moves to any image that verifies",
        )
    found = _first_verified(session, registry, earlier, public, unsigned)
    _move(session, registry, found, tag, "rollback", recipe)


def _first_verified(
    session: Session, registry: Registry, earlier: list[Move], key: PublicKey | None, unsigned: bool
) -> Verified:
    reasons = []
    for entry in earlier:
        try:
            found = verify(registry, Reference(registry.repository, digest=entry.digest), key, unsigned=unsigned)
        except RegistryFailed as problem:
            session.console.warn(f"passing over {entry.tag} ({entry.digest[:19]}): {problem.what}")
            reasons.append(problem.what)
            continue
        _check_recipe(session, found)
        return found
    raise RegistryFailed(f"no earlier image verifies: {reasons[0]}", where=registry.name(earlier[0].channel))


def _move(session: Session, registry: Registry, found: Verified, channel: str, action: str, recipe: str) -> None:
    show(session.console, found)
    previous = registry.digest_at(channel)
    moved = previous != found.digest
    if moved:
        entry = Move(
            channel=channel,
            action="rollback" if action == "rollback" else "promote",
            digest=found.digest,
            previous=previous,
            image_id=found.image_id,
            tag=found.tag,
            by=publisher(session),
            at=now_utc(),
        )
        record(registry, history_tag(recipe, session.arch), entry)
        move(registry, found.document, channel)
    session.console.say(f"{registry.name(channel)} {'now' if moved else 'stands already'} at {found.digest}")
    session.console.result(
        str(found.by_digest), {**facts(found), "channel": channel, "previous": previous, "moved": moved}
    )


def _standing(found: Record, tag: str, digest: str | None) -> str:
    """Where a channel stands, and whether the record says so."""
    if digest is None:
        return "does not exist yet"
    last = found.of(tag)[-1:]
    if last and last[0].digest != digest:
        return f"at {digest}; the last move, to {last[0].digest[:19]}, was cut off or undone elsewhere: run it again"
    return f"at {digest}"


def _channels(session: Session) -> list[str]:
    channels = session.project.registry.channels
    return [channels.tag(name, session.recipe, session.arch) for name in ("stable", "candidate")]


def _recipe(session: Session) -> str:
    recipe = load_recipe(session.paths, session.project, session.recipe)
    select_arch(recipe, session.project, session.arch, session.paths.relative(session.paths.recipe(recipe.recipe)))
    return recipe.recipe


def _check_recipe(session: Session, found: Verified) -> None:
    if (found.receipt.recipe, found.receipt.arch) != (session.recipe, session.arch):
        raise RegistryFailed(
            f"is an image of {found.receipt.recipe} for {found.receipt.arch}: it goes into no channel of"
            f" {session.recipe} for {session.arch}",
            where=str(found.reference),
            cure=f"RECIPE={found.receipt.recipe} ARCH={found.receipt.arch}",
        )
