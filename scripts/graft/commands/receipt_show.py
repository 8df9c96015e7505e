"""`graft receipt show`: what the gate found in an image; and which receipts are meant by a word of the user."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from graft.commands.programs import ready_engine
from graft.commands.session import Session, make_plan
from graft.errors import BadInput
from graft.gate.forms import summary, title
from graft.gate.receipt import Receipt, Tier, folder_of, read_receipt, receipt_files, receipts_of
from graft.gate.run import show as show_table
from graft.trial.reference import check_image

IMAGE_ID = re.compile(r"(?:sha256:)?([0-9a-f]{12,64})")


@dataclass(frozen=True)
class Found:
    """A receipt and its file."""

    file: Path
    receipt: Receipt


def show(session: Session, which: str | None, *, tier: Tier | None = None, report: str = "table") -> None:
    """Print the receipts of an image, or one from its file. Raises BadInput where there is none."""
    found = find(session, which, tier)
    if report == "table":
        for each in found:
            console = session.console
            show_table(console, each.receipt)
            console.say(f"{title(each.receipt)}: {each.receipt.started}, {each.receipt.engine}; {each.file}")
            for limit in each.receipt.limits:
                console.say(f"  not seen: {limit}")
    lines = [f"{each.receipt.image_id} {each.receipt.tier} {each.receipt.verdict}" for each in found]
    text = "\n\n".join(summary(each.receipt) for each in found) if report == "md" else "\n".join(lines)
    data = [{"file": str(each.file), "receipt": each.receipt.model_dump(mode="json")} for each in found]
    session.console.result(text, {"receipts": data})


def find(session: Session, which: str | None, tier: Tier | None = None) -> list[Found]:
    """The receipts that are meant: a file's, or all of an image, given by its id, a reference, or the plan.

    tier: of that tier only. Raises BadInput where there is none, EngineMissing where only an engine knows which image a
    reference is.
    """
    found = _of_plan(session) if which is None else _named(session, which)
    chosen = [each for each in found if tier in (None, each.receipt.tier)]
    if not chosen:
        raise BadInput(
            f"there is no receipt of the {tier} tier",
            where=str(found[0].file.parent),
            cure="make smoke-gpu runs the tests on GPUs, make smoke the others",
        )
    return chosen


def _named(session: Session, which: str) -> list[Found]:
    file = Path(which)
    if which and file.is_file():
        return [Found(file, read_receipt(file))]
    if file.suffix == ".json":
        raise BadInput(f"there is no file {which}", where="FILE", cure="graft receipt show IMAGE|FILE")
    image = IMAGE_ID.fullmatch(which)
    if image is None:
        try:
            check_image(which, "IMAGE|FILE")
        except BadInput as problem:
            problem.what = f"there is no file {which!r}, and {problem.what}" if which else "no image or file is named"
            raise
    return _of_image(session, image[1] if image else _image_of(session, which), which)


def _of_plan(session: Session) -> list[Found]:
    """By the key: an image with these inputs, whatever it is tagged with."""
    planned = make_plan(session)
    mine: list[Found] = []
    for file in (file for folder in sorted(session.paths.receipts.glob("*")) for file in receipt_files(folder)):
        try:
            found = Found(file, read_receipt(file))
            mine += [found] if found.receipt.key == planned.image.key else []
        except BadInput as problem:
            # Perhaps another image's, perhaps of an older Graft: no reason to hide what can be read.
            session.console.warn(f"{problem.where}: {problem.what}")
    if not mine:
        raise BadInput(
            f"{planned.tag} has no receipt here",
            where=session.paths.relative(session.paths.receipts),
            cure=f"make image ARCH={planned.arch.name} RECIPE={planned.recipe.recipe}; or name an image or a file",
        )
    return mine


def _of_image(session: Session, image_id: str, which: str) -> list[Found]:
    folder = folder_of(session.paths.receipts, image_id)
    found = [Found(*each) for each in receipts_of(folder)]
    found = [each for each in found if each.receipt.image_id.removeprefix("sha256:").startswith(image_id)]
    if not found:
        raise BadInput(
            f"no gate has run in {which} here: there is no receipt of it",
            where=session.paths.relative(folder),
            cure="make smoke runs the gate in the image that is tagged; or name a receipt's file",
        )
    return found


def _image_of(session: Session, reference: str) -> str:
    """The id, in hex, of the image that a reference names in the engine."""
    from docker.errors import APIError, ImageNotFound

    engine = ready_engine(session)
    with closing(engine.client()) as client:
        try:
            return str(client.images.get(reference).id).removeprefix("sha256:")
        except (ImageNotFound, APIError):
            raise BadInput(
                f"there is no image {reference!r} in the engine, and no file of that name",
                where="IMAGE",
                cure="graft receipt show IMAGE|FILE, with an image's id or reference, or a receipt's file",
            ) from None
