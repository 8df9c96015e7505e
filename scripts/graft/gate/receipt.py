"""The record of one gate run, bound to the image id. Its files for people and CI are made in `graft.gate.forms`.

A run of the GPU tier has files of its own: what it finds neither makes nor ends the receipt that tags are moved by.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import Field, ValidationError

from graft.errors import BadInput
from graft.yamlio import Model

PASSED, FAILED = "receipt.json", "receipt-failed.json"

Tier = Literal["cpu", "gpu"]
TIERS: tuple[Tier, ...] = get_args(Tier)
Verdict = Literal["pass", "fail", "hang", "no-report", "crash", "not-run"]


class Check(Model):
    """One thing that a smoke test looked at."""

    id: str = Field(min_length=1)
    verdict: Literal["pass", "fail", "waived"]
    detail: str


class TestResult(Model):
    """One smoke test; everything but `pass` is red, and `detail` says why."""

    # Not a class of tests, whatever pytest thinks of its name.
    __test__ = False

    id: str
    tier: Tier
    verdict: Verdict
    seconds: float
    detail: str
    checks: tuple[Check, ...] = Field(description="the evidence: what was looked at, and what was found")


class Host(Model):
    """The machine as far as it matters for a result; no name or address."""

    system: str
    kernel: str
    machine: str
    cpus: int
    memory_gb: float


class Compiled(Model):
    """How a component of the image was compiled, where that was seen: another engine's cache says nothing of it."""

    component: str
    key: str = Field(description="key of the component: the hash of everything that it was made from")
    seconds: float
    jobs: int = Field(description="compilers at once")
    peak_gb: float = Field(description="GiB of the largest process")
    hits: int | None = Field(description="objects that came from the compile cache; null without one")
    misses: int | None = Field(description="objects that were compiled")
    uncached: int | None = Field(description="objects that the compile cache could not look for")
    shared: int | None = Field(default=None, description="of the hits, those from the cache that machines share")


class Receipt(Model):
    """One gate run. `image_id` is the config digest; the manifest digest is known once the image is pushed."""

    schema_version: Literal[2] = Field(description="version of this format")
    tier: Tier = Field(description="which tests ran: those without a GPU, which tags are moved by, or those on GPUs")
    image_id: str = Field(pattern=r"^sha256:[0-9a-f]{64}$")
    manifest_digest: str | None = Field(pattern=r"^sha256:[0-9a-f]{64}$")
    recipe: str
    arch: str
    key: str = Field(description="key of the image: the hash of everything that went into it")
    lock_digest: str
    gate_digest: str = Field(description="hash of the smoke tests, facts and waivers that ran")
    started: str = Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$", description="UTC")
    seconds: float
    host: Host
    engine: str
    verdict: Literal["pass", "fail"]
    tests: tuple[TestResult, ...]
    limits: tuple[str, ...] = Field(description="what this run cannot have seen")
    compiled: tuple[Compiled, ...] = Field(default=(), description="how its components were compiled")

    @property
    def red(self) -> list[TestResult]:
        return [test for test in self.tests if test.verdict != "pass"]

    def contradictions(self) -> list[str]:
        """What of this receipt cannot be true together, a sentence each; a receipt that a gate wrote has none."""
        expected = "fail" if self.red or not self.tests else "pass"
        found = [f"the run says {self.verdict}, its tests say {expected}"] if self.verdict != expected else []
        found += [f"test {id} is there {n} times" for id, n in Counter(t.id for t in self.tests).items() if n > 1]
        for test in self.tests:
            failed = any(check.verdict == "fail" for check in test.checks)
            if test.tier != self.tier:
                found.append(f"test {test.id} is of the tier {test.tier}, the run of {self.tier}")
            if test.verdict == "pass" and (failed or not test.checks):
                found.append(f"test {test.id} says pass, and {'a check failed' if failed else 'has no check'}")
            if test.verdict == "fail" and not failed:
                found.append(f"test {test.id} says fail, and no check failed")
        return found


@dataclass(frozen=True)
class ReceiptFacts:
    """What the caller knows of the run. look_inside: the command that opens a shell, up to the image's id."""

    recipe: str
    arch: str
    key: str
    lock_digest: str
    gate_digest: str
    engine: str
    look_inside: str
    compiled: Sequence[Mapping[str, Any]] = ()


def folder_of(receipts: Path, image_id: str) -> Path:
    return receipts / image_id.removeprefix("sha256:")[:12]


def file_name(name: str, tier: Tier) -> str:
    """`receipt.json` is `receipt-gpu.json` in the GPU tier."""
    stem, dot, ending = name.partition(".")
    return name if tier == "cpu" else f"{stem}-{tier}{dot}{ending}"


def write_receipt(receipts: Path, receipt: Receipt, forms: Mapping[str, str]) -> Path:
    """Write the receipt and its forms (file name -> text); returns the receipt's file.

    A red one has a name of its own and ends an earlier passing one of its tier.
    """
    folder = folder_of(receipts, receipt.image_id)
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / file_name(PASSED if receipt.verdict == "pass" else FAILED, receipt.tier)
    # First: a crash in between must not leave a passing receipt of an image that has just failed.
    for old in (PASSED, FAILED):
        (folder / file_name(old, receipt.tier)).unlink(missing_ok=True)
    for name, text in forms.items():
        _write(folder / file_name(name, receipt.tier), text)
    _write(place, receipt.model_dump_json(indent=1) + "\n")
    return place


def find_receipt(receipts: Path, image_id: str, gate_digest: str, tier: Tier = "cpu") -> Receipt | None:
    """The passing receipt of this image with these tests; None when there is none that can be relied on."""
    try:
        found = (folder_of(receipts, image_id) / file_name(PASSED, tier)).read_bytes()
        receipt = parse_receipt(found, PASSED)
    except (FileNotFoundError, BadInput):
        return None
    same = (receipt.image_id, receipt.gate_digest, receipt.tier) == (image_id, gate_digest, tier)
    return receipt if same and receipt.verdict == "pass" else None


def read_receipt(file: Path) -> Receipt:
    """A receipt from its file. Raises BadInput, naming what is wrong with it."""
    return parse_receipt(file.read_bytes(), str(file))


def parse_receipt(data: bytes, where: str) -> Receipt:
    """A receipt that a gate can have written: of its format, and without contradictions. Raises BadInput."""
    try:
        # What two readers could read as two verdicts is refused before the model sees it.
        json.loads(data, object_pairs_hook=_unique)
        receipt = Receipt.model_validate_json(data)
        wrong = "; ".join(receipt.contradictions())
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_input=False)[0]
        at = ".".join(map(str, first["loc"]))
        wrong = f"{at}: {first['msg']}" if at else first["msg"]
    except (ValueError, RecursionError) as problem:
        wrong = str(problem)
    if wrong:
        cure = "docs/receipt.schema.json is its format; `make smoke` writes a new one"
        raise BadInput(f"this is no receipt: {wrong}", where=where, cure=cure)
    return receipt


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    twice = [key for key, n in Counter(key for key, _ in pairs).items() if n > 1]
    if twice:
        raise ValueError(f"the key {twice[0]!r} is there twice")
    return dict(pairs)


def receipts_of(folder: Path) -> list[tuple[Path, Receipt]]:
    """All receipts in an image's folder, the tier without a GPU first. Raises BadInput for a damaged one."""
    return [(file, read_receipt(file)) for file in receipt_files(folder)]


def receipt_files(folder: Path) -> list[Path]:
    """The files that should be receipts in an image's folder, the tier without a GPU first."""
    files = [folder / file_name(name, tier) for tier in TIERS for name in (PASSED, FAILED)]
    return [file for file in files if file.is_file()]


def schema() -> str:
    """docs/receipt.schema.json: the format of a receipt as JSON Schema."""
    return json.dumps(Receipt.model_json_schema(), indent=1) + "\n"


def _write(place: Path, text: str) -> None:
    """Whole or not at all: a receipt that is half written could pass for one."""
    with tempfile.NamedTemporaryFile(
        "w", dir=place.parent, prefix=f".{place.name}.", encoding="utf-8", delete=False
    ) as file:
        try:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            Path(file.name).chmod(0o644)
            Path(file.name).replace(place)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise
