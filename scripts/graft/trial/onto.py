"""What `graft patch onto` proves and writes down: the version, pristine files, the labels and the receipt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from packaging.version import InvalidVersion
from pydantic import Field, ValidationError

from graft.errors import PatchMismatch
from graft.gate.receipt import Host, folder_of
from graft.lock import Lock, Sha256, write_atomic
from graft.patching.entry import blob_id
from graft.patchset import Patch
from graft.trial.outcome import RunResult, TrialVerdict
from graft.trial.result import Utc
from graft.yamlio import Model

RECEIPT = "onto.json"
LABEL = "dev.graft.onto."
KEY_LABEL = f"{LABEL}key"
ImageId = r"^sha256:[0-9a-f]{64}$"


class OntoPatch(Model):
    """One patch of a patched image, and what its test said without it (in the base) and with it (in the result)."""

    id: str
    sha256: Sha256
    test_sha256: Sha256
    verdict: TrialVerdict
    red: RunResult
    green: RunResult


class OntoReceipt(Model):
    """The record of one image that patches were put onto; bound to the image's id."""

    schema_version: Literal[1] = 1
    image_id: str = Field(pattern=ImageId)
    base_id: str = Field(pattern=ImageId)
    base: str = Field(description="digest of the base in its repository, else its id")
    component: str
    version: str
    python: str
    key: Sha256
    tests_digest: Sha256 = Field(description="hash of the tests and of what runs them")
    patches: tuple[OntoPatch, ...] = Field(min_length=1)
    files: dict[str, Sha256] = Field(description="file below site-packages -> sha256 of its patched bytes")
    started: str = Field(pattern=Utc, description="UTC")
    seconds: float
    host: Host
    engine: str


def receipt_file(receipts: Path, image_id: str) -> Path:
    return folder_of(receipts, image_id) / RECEIPT


def write_receipt(receipts: Path, receipt: OntoReceipt) -> None:
    file = receipt_file(receipts, receipt.image_id)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(file, receipt.model_dump_json(indent=1) + "\n")


def find_receipt(receipts: Path, image_id: str, key: str, tests_digest: str) -> OntoReceipt | None:
    """The receipt of this image with these tests; None when there is none that can be relied on."""
    try:
        found = OntoReceipt.model_validate_json(receipt_file(receipts, image_id).read_bytes())
    except (OSError, ValidationError):
        return None
    same = (found.image_id, found.key, found.tests_digest) == (image_id, key, tests_digest)
    return found if same and all(patch.verdict == "red-green" for patch in found.patches) else None


def labels(base: str, component: str, version: str, patches: Mapping[str, str], key: str) -> dict[str, str]:
    """patches: id -> sha256."""
    return {
        f"{LABEL}base": base,
        f"{LABEL}component": component,
        f"{LABEL}version": version,
        f"{LABEL}patches": " ".join(f"{component}/{id}@sha256:{digest}" for id, digest in patches.items()),
        KEY_LABEL: key,
    }


def check_version(component: str, patches: Sequence[Patch], version: str, arch: str) -> None:
    """Raises PatchMismatch for a patch that is not meant for the installed version, or for the architecture."""
    for patch in patches:
        when = patch.record.when
        try:
            holds = when.holds(version, arch)
        except InvalidVersion:
            raise PatchMismatch(f"the installed version of {component} is no version: {version}") from None
        if not holds:
            meant = " on ".join(filter(None, (when.version, ", ".join(when.arches or ()))))
            raise PatchMismatch(
                f"{component}/{patch.id} is meant for {component} {meant}; the image has {version}, and it is tried "
                f"for {arch}",
                where=str(patch.path.parent / "series.yaml"),
                cure="take an image that the patch is meant for, or say so in `when` and lock it",
            )


@dataclass(frozen=True)
class Known:
    """Blob ids of a file as the lock has them: before the first patch of the component, and after each."""

    before: str | None
    after: frozenset[str | None]


def known_blobs(locked: Lock | None, component: str) -> dict[str, Known]:
    """What the lock says of every file of a component that its patches touch."""
    found: dict[str, Known] = {}
    for entry in locked.patches.get(component, ()) if locked else ():
        for pin in entry.patches:
            for path, touched in pin.files.items():
                old = found.setdefault(path, Known(touched.before, frozenset()))
                found[path] = Known(old.before, old.after | {touched.after})
    return found


def is_as_locked(installed: Mapping[str, str | None], known: Mapping[str, Known]) -> bool:
    """Whether every file is the pristine one that the lock was made against."""
    return all(path in known and known[path].before == blob for path, blob in installed.items())


def check_pristine(
    component: str,
    version: str,
    installed: Mapping[str, str | None],
    known: Mapping[str, Known],
    files: Mapping[str, bytes] | None,
) -> None:
    """Raises PatchMismatch, naming the file and both ids, unless the installed files are those of their version.

    files: of the wheel or sdist of the installed version; None when the index has none.
    """
    for path, blob in installed.items():
        wanted = known[path].before if path in known else None
        if files is not None:
            wanted = blob_id(files[path]) if path in files else None
        if blob == wanted and (files is not None or path in known):
            continue
        if path in known and blob in known[path].after:
            why = "it is patched already"
        elif files is None:
            why = f"and the index has no {component} {version} to compare it with"
        else:
            why = f"which {component} {version} has"
        raise PatchMismatch(
            f"{path} is not pristine: its git blob id is {blob or 'none'}, expected {wanted or 'none'}, {why}",
            cure="take an image in which nothing was changed since it was installed",
        )
