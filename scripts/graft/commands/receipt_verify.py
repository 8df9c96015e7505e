"""`graft receipt verify`: whether a receipt is whole, is of the image in the engine, and of today's tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from graft.commands.programs import ready_engine
from graft.commands.receipt_show import Found, find
from graft.commands.session import Session, make_plan
from graft.errors import GateFailed, GraftError
from graft.gate.receipt import Receipt, Tier

if TYPE_CHECKING:
    from docker import DockerClient


@dataclass(frozen=True)
class Verified:
    """One thing that a receipt was held to. `what` of the receipt `file`."""

    file: str
    what: str
    ok: bool
    detail: str


def verify(session: Session, which: str | None, *, tier: Tier | None = None) -> None:
    """Hold the receipts of an image, or one from its file, to everything that can be known without a new run.

    Raises BadInput for what no gate can have written (before an engine is asked for), EngineMissing, and GateFailed
    when one does not hold.
    """
    found = find(session, which, tier)
    engine = ready_engine(session)
    with closing(engine.client()) as client:
        checks = [check for each in found for check in _checks(session, client, each)]
    rows = [(check.what, "pass" if check.ok else "fail", check.detail, check.file) for check in checks]
    session.console.table("receipts", ("what", "verdict", "detail", "file"), rows)
    red = [check for check in checks if not check.ok]
    data = {"verified": not red, "checks": [vars(check) for check in checks]}
    said = ", ".join(f"{each.receipt.tier} {each.receipt.verdict}" for each in found)
    session.console.result(f"{'verified' if not red else 'not verified'}: {found[0].receipt.image_id} {said}", data)
    if red:
        raise GateFailed(
            f"a receipt does not hold: {'; '.join(f'{check.what}: {check.detail}' for check in red)}",
            where=red[0].file,
            cure="make smoke (make smoke-gpu) runs the tests again and writes a new receipt",
        )


def _checks(session: Session, client: DockerClient, found: Found) -> Iterator[Verified]:
    receipt, file = found.receipt, str(found.file)
    red = ", ".join(test.id for test in receipt.red)
    yield Verified(file, "verdict", receipt.verdict == "pass", f"red: {red}" if red else receipt.verdict)
    yield from (replace(check, file=file) for check in _of_image(client, receipt))
    yield replace(_tests(session, receipt), file=file)


def _of_image(client: DockerClient, receipt: Receipt) -> Iterator[Verified]:
    """The image is in the engine under the receipt's id, and its labels say what the receipt says."""
    from docker.errors import ImageNotFound

    try:
        image = client.images.get(receipt.image_id)
    except ImageNotFound:
        yield Verified("", "image", False, f"the engine has no image {receipt.image_id}")
        return
    yield Verified("", "image", image.id == receipt.image_id, f"the engine's is {image.id}")
    wanted = {
        "dev.graft.recipe": receipt.recipe,
        "dev.graft.arch": receipt.arch,
        "dev.graft.key": receipt.key,
        "dev.graft.lock": f"sha256:{receipt.lock_digest}",
    }
    labels = image.labels or {}
    wrong = [
        f"{name} is {labels.get(name) or 'not set'}, the receipt says {value}"
        for name, value in wanted.items()
        if labels.get(name) != value
    ]
    yield Verified("", "labels", not wrong, "; ".join(wrong) or f"{', '.join(wanted)} are the receipt's")


def _tests(session: Session, receipt: Receipt) -> Verified:
    """The tests that ran are those of this checkout."""
    try:
        planned = make_plan(replace(session, recipe=receipt.recipe, arch=receipt.arch))
    except GraftError as problem:
        return Verified("", "tests", False, f"stale: which tests would run today cannot be said: {problem.what}")
    today = planned.gate.key if receipt.tier == "cpu" else planned.gpu_gate.key
    same = receipt.gate_digest == today
    return Verified(
        "", "tests", same, "those of today" if same else "stale: other tests, facts or waivers than today's"
    )
