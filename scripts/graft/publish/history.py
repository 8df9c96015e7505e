"""The record of a channel's moves, kept in the image repository itself under a tag of its own.

A move is written down before the tag moves: what a kill in between leaves is an entry whose digest the tag does not
have yet, which `current` sees and the same command, run again, finishes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field, ValidationError

from graft.errors import RegistryFailed
from graft.registry.blobs import BytesBlob, put_blob
from graft.registry.client import Registry, TagChanged
from graft.registry.manifest import EMPTY_BYTES, artifact
from graft.yamlio import Model

TYPE = "application/vnd.graft.history.v1+json"
ROUNDS = 8
DIGEST = r"^sha256:[0-9a-f]{64}$"


class Move(Model):
    """One move of a channel. tag: the immutable tag of what it moved to. at: UTC."""

    channel: str
    action: Literal["push", "promote", "rollback"]
    digest: str = Field(pattern=DIGEST)
    previous: str | None = Field(pattern=DIGEST)
    image_id: str = Field(pattern=DIGEST)
    tag: str
    by: str
    at: str


class Record(Model):
    """All moves, oldest first."""

    schema_version: Literal[1]
    moves: tuple[Move, ...] = Field(strict=False)

    def of(self, channel: str) -> tuple[Move, ...]:
        return tuple(move for move in self.moves if move.channel == channel)


def history_tag(recipe: str, arch: str) -> str:
    return f"graft-history-{recipe}-{arch}"


def read_history(registry: Registry, tag: str) -> Record:
    """The record; an empty one where there is none. Raises RegistryFailed."""
    where = registry.name(tag)
    found = registry.manifest(tag)
    if found is None:
        return Record(schema_version=1, moves=())
    blobs = found.layers(where)
    if found.content(where).get("artifactType") != TYPE or len(blobs) != 1:
        raise RegistryFailed("is no record of moves", where=where, cure="something else was pushed under this tag")
    try:
        return Record.model_validate_json(registry.blob(blobs[0].digest, blobs[0].size, "the record of moves"))
    except ValidationError as problem:
        raise RegistryFailed("the record of moves cannot be read", where=where) from problem


def record(registry: Registry, tag: str, move: Move) -> Record:
    """Add a move at the end, unless the last one of its channel says the same.

    Two writers at once: what is read back decides, and the move that is not there is added again.
    Raises RegistryFailed.
    """
    put_blob(registry, BytesBlob(EMPTY_BYTES))
    for attempt in range(ROUNDS):
        before = read_history(registry, tag)
        last = before.of(move.channel)[-1:]
        if last and (last[0].digest, last[0].action) == (move.digest, move.action):
            return before
        if move in before.moves:
            return before
        after = Record(schema_version=1, moves=(*before.moves, move))
        blob = BytesBlob(after.model_dump_json().encode())
        put_blob(registry, blob)
        try:
            registry.put_manifest(artifact(TYPE, [blob.descriptor(TYPE)]), tag)
        except TagChanged:
            registry.wait(attempt)
    raise RegistryFailed("others write the record of moves all the time", where=registry.name(tag))


def standing(moves: Sequence[Move]) -> list[Move]:
    """What a channel went through without what was rolled back: the last one is where it stands, by the record."""
    found: list[Move] = []
    for move in moves:
        if move.action == "rollback":
            # Back to something it stood on: everything after that is undone.
            kept = [i for i, entry in enumerate(found) if entry.digest == move.digest]
            found = found[: kept[-1] + 1] if kept else [*found, move]
        elif not found or found[-1].digest != move.digest:
            found.append(move)
    return found


def before(moves: Sequence[Move], now: str | None) -> list[Move]:
    """Where a channel that points to `now` can go back to, the nearest first."""
    found = standing(moves)
    places = [i for i, entry in enumerate(found) if entry.digest == now]
    # Not in the record: an entry whose move was cut off is not where it stands.
    earlier = found[: places[-1]] if places else found
    return [entry for entry in reversed(earlier) if entry.digest != now]
