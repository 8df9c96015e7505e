"""Publish an image: bytes, manifest by digest, what is attached, signature, immutable tag, record, channels.

In this order, so that whenever it is interrupted every tag points to a whole, gated and described image, or to what it
pointed to before; and each step does nothing where it is done already, so that a second push finishes.
"""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from graft.console import LINE_EVERY_SECONDS, Console, size
from graft.errors import GateFailed
from graft.gate import Receipt
from graft.publish.evidence import Evidence, is_passing
from graft.publish.history import Move, history_tag, record
from graft.publish.keys import PrivateKey
from graft.publish.signing import Claim, sign
from graft.publish.tagging import move, put_immutable, taken
from graft.registry.client import Registry
from graft.registry.compress import Compression
from graft.registry.images import Memory, Sent, send_image
from graft.registry.manifest import Document
from graft.registry.saved import Source

#: Image id, manifest digest and the receipt as it is published -> everything that is attached.
MakeEvidence = Callable[[str, str, Receipt], Evidence]
NOT_GATED = "make image runs the gate; only an image that passed is published"


@dataclass(frozen=True)
class Publication:
    """What shall be published, and as what. Tags are without the repository. by: who publishes."""

    source: Source
    receipt: Receipt
    tag: str
    channels: tuple[str, ...]
    evidence: MakeEvidence
    by: str


@dataclass(frozen=True)
class Published:
    """What was published. new_bytes: of layers that the registry did not have."""

    digest: str
    image_id: str
    new_bytes: int
    moved: tuple[str, ...]


def publish(
    registry: Registry,
    what: Publication,
    key: PrivateKey | None,
    memory: Memory,
    compression: Compression,
    console: Console,
    *,
    threads: int,
) -> Published:
    """Push, or finish an earlier push of the same. Raises GateFailed and RegistryFailed."""
    _check_receipt(what)
    there = registry.manifest(what.tag)
    known = memory.image_id(what.source)
    if there is not None:
        _refuse_other(registry, what, there, known)
    if there is not None and known is not None:
        # Perhaps compressed in another way by somebody else: the manifest that has the tag is the one that counts.
        document, image_id, new_bytes = there, known, 0
        console.say(f"{registry.name(what.tag)} is there already")
    else:
        sent = _send(registry, what, memory, compression, console, threads)
        document, image_id, new_bytes = sent.manifest, sent.image_id, sent.new_bytes
        if there is not None and there.digest != document.digest:
            raise taken(registry, what.tag, there.digest)
        registry.put_manifest(document)
    with console.step("attach receipt, lock, bill of material and provenance"):
        receipt = what.receipt.model_copy(update={"image_id": image_id, "manifest_digest": document.digest})
        evidence = what.evidence(image_id, document.digest, receipt)
        evidence.attach(registry, document.descriptor)
        if key is not None:
            now = int(datetime.datetime.now(datetime.UTC).timestamp())
            sign(registry, Claim(str(registry.repository), document.digest, what.by, now, evidence.digests), key)
    put_immutable(registry, document, what.tag)
    moved = tuple(
        channel for channel in what.channels if _move_channel(registry, document, channel, what, image_id, receipt)
    )
    return Published(document.digest, image_id, new_bytes, moved)


def _move_channel(
    registry: Registry, document: Document, channel: str, what: Publication, image_id: str, receipt: Receipt
) -> bool:
    """Write the move down, then move; False when the channel stood there already."""
    previous = registry.digest_at(channel)
    entry = Move(
        channel=channel,
        action="push",
        digest=document.digest,
        previous=previous if previous != document.digest else None,
        image_id=image_id,
        tag=what.tag,
        by=what.by,
        at=now_utc(),
    )
    record(registry, history_tag(receipt.recipe, receipt.arch), entry)
    return move(registry, document, channel)


def now_utc() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _check_receipt(what: Publication) -> None:
    receipt = what.receipt
    if receipt.image_id != what.source.id:
        raise GateFailed(
            f"the receipt is of {receipt.image_id[:19]}, not of {what.source.id[:19]}", where=what.tag, cure=NOT_GATED
        )
    if not is_passing(receipt):
        raise GateFailed("the receipt is not one of a passed gate", where=what.tag, cure=NOT_GATED)


def _refuse_other(registry: Registry, what: Publication, there: Document, known: str | None) -> None:
    """Another image has the tag. Said before gigabytes are sent, where the engine's name of the image tells."""
    if known is not None and there.config(registry.name(what.tag)).digest != known:
        raise taken(registry, what.tag, there.digest)


def _send(
    registry: Registry,
    what: Publication,
    memory: Memory,
    compression: Compression,
    console: Console,
    threads: int,
) -> Sent:
    with console.step(f"send layers to {registry.repository}"):
        sent = send_image(registry, what.source, memory, compression, threads, _Meter(console).add)
        console.say(f"  {size(sent.new_bytes)} of layers were new to the registry")
    return sent


class _Meter:
    """Says now and then how much was sent; how much it will be is known when the last layer is compressed."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._sent, self._last = 0, time.monotonic()
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        with self._lock:
            self._sent += count
            if time.monotonic() - self._last >= LINE_EVERY_SECONDS:
                self._last = time.monotonic()
                self._console.say(f"  {size(self._sent)} sent")
