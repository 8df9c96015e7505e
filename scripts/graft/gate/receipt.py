"""The record of one gate run, bound to the image id: receipt.json for machines, junit.xml for CI."""

from __future__ import annotations

import json
import os
import re
import tempfile
import xml.etree.ElementTree as xml
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from graft.yamlio import Model

PASSED, FAILED = "receipt.json", "receipt-failed.json"

Verdict = Literal["pass", "fail", "hang", "no-report", "crash", "not-run"]

# Control characters that XML 1.0 cannot hold, not even escaped.
NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


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
    tier: Literal["cpu", "gpu"]
    verdict: Verdict
    seconds: float
    detail: str
    checks: tuple[Check, ...]


class Host(Model):
    """The machine as far as it matters for a result; no name or address."""

    system: str
    kernel: str
    machine: str
    cpus: int
    memory_gb: float


class Receipt(Model):
    """One gate run. `image_id` is the config digest; the manifest digest is known once the image is pushed."""

    schema_version: Literal[1] = Field(description="version of this format")
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

    @property
    def red(self) -> list[TestResult]:
        return [test for test in self.tests if test.verdict != "pass"]


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


def folder_of(receipts: Path, image_id: str) -> Path:
    return receipts / image_id.removeprefix("sha256:")[:12]


def write_receipt(receipts: Path, receipt: Receipt) -> Path:
    """Write the receipt and its JUnit twin. A red one has a name of its own and ends an earlier passing one."""
    folder = folder_of(receipts, receipt.image_id)
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / (PASSED if receipt.verdict == "pass" else FAILED)
    # First: a crash in between must not leave a passing receipt of an image that has just failed.
    for old in (PASSED, FAILED):
        (folder / old).unlink(missing_ok=True)
    _write(folder / "junit.xml", junit(receipt))
    _write(place, receipt.model_dump_json(indent=1) + "\n")
    return place


def find_receipt(receipts: Path, image_id: str, gate_digest: str) -> Receipt | None:
    """The passing receipt of this image with these tests; None when there is none that can be relied on."""
    try:
        receipt = Receipt.model_validate_json((folder_of(receipts, image_id) / PASSED).read_bytes())
    except (FileNotFoundError, ValidationError):
        return None
    same = receipt.image_id == image_id and receipt.gate_digest == gate_digest
    return receipt if same and receipt.verdict == "pass" and receipt.tests and not receipt.red else None


def junit(receipt: Receipt) -> str:
    """One suite for each smoke test, one case for each check; a test that gave no checks is one case in error."""
    root = xml.Element("testsuites", name=f"{receipt.recipe}-{receipt.arch}", time=f"{receipt.seconds:.1f}")
    for test in receipt.tests:
        suite = xml.SubElement(root, "testsuite", name=test.id, time=f"{test.seconds:.1f}", timestamp=receipt.started)
        for check in test.checks:
            case = xml.SubElement(suite, "testcase", classname=f"gate.{test.id}", name=_text(check.id))
            if check.verdict == "fail":
                xml.SubElement(case, "failure", message=_text(check.detail))
            elif check.verdict == "waived":
                xml.SubElement(case, "skipped", message=_text(f"waived: {check.detail}"))
        if test.verdict not in ("pass", "fail"):
            case = xml.SubElement(suite, "testcase", classname=f"gate.{test.id}", name=test.verdict)
            xml.SubElement(case, "error", message=_text(test.detail))
        for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            suite.set(name, str(len(suite.findall(f"testcase/{tag}"))))
        suite.set("tests", str(len(suite.findall("testcase"))))
    xml.indent(root, " ")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + xml.tostring(root, encoding="unicode") + "\n"


def schema() -> str:
    """docs/receipt.schema.json: the format of a receipt as JSON Schema."""
    return json.dumps(Receipt.model_json_schema(), indent=1) + "\n"


def _text(text: str) -> str:
    return NOT_XML.sub("?", text)


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
