"""Results of trials, kept by the hash of everything that decided them: base, patch, test and the way it is run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from graft.hashes import digest_of
from graft.lock import Sha256, write_atomic
from graft.trial.outcome import RunResult, TrialVerdict
from graft.yamlio import Model

#: Raised when a trial is made in another way with the same inputs.
FORMAT = 1
Utc = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"


class TrialInputs(Model):
    """Everything that decides a result.

    environment: key of the image without its patches; pristine: what the patch and those that it comes after touch,
    file -> sha256 (None: there is none). after: id -> sha256 of the patches that it comes after.
    protocol: hash of the programs that run the test.
    """

    environment: Sha256
    pristine: dict[str, Sha256 | None]
    after: dict[str, Sha256]
    patch: Sha256
    test: Sha256
    protocol: Sha256

    @property
    def key(self) -> str:
        return digest_of({"format": FORMAT, **self.model_dump(mode="json")})


class TrialResult(Model):
    """One trial: the test without the patch (red) and with it (green). `image` is the id it ran in."""

    schema_version: Literal[1] = 1
    key: Sha256
    component: str
    patch: str
    verdict: TrialVerdict
    inputs: TrialInputs
    red: RunResult
    green: RunResult
    recipe: str
    arch: str
    image: str
    started: str = Field(pattern=Utc, description="UTC")

    @property
    def patch_sha256(self) -> str:
        return self.inputs.patch

    @property
    def test_sha256(self) -> str:
        return self.inputs.test

    @property
    def seconds(self) -> float:
        """Of both runs, which may have run at the same time."""
        return round(self.red.seconds + self.green.seconds, 1)


def results_folder(state: Path) -> Path:
    """Where results lie below .graft."""
    return state / "patch-tests"


def keep(folder: Path, result: TrialResult) -> None:
    """Write a result; an earlier one of the same inputs is replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / f"{result.key}.json", result.model_dump_json(indent=1) + "\n")


def kept(folder: Path, inputs: TrialInputs) -> TrialResult | None:
    """The result of the same inputs. An error is none: the machine may have been its cause."""
    result = _read(folder / f"{inputs.key}.json")
    return result if result is not None and result.inputs == inputs and result.verdict != "error" else None


def last_result(folder: Path, component: str, patch_id: str) -> TrialResult | None:
    """The newest result of a patch, whatever its bytes were; `patch_sha256` and `test_sha256` say which. No engine."""
    found = [r for r in _all(folder) if (r.component, r.patch) == (component, patch_id)]
    return max(found, key=lambda result: (result.started, result.key), default=None)


def _all(folder: Path) -> Iterator[TrialResult]:
    for file in sorted(folder.glob("*.json")):
        result = _read(file)
        if result is not None:
            yield result


def _read(file: Path) -> TrialResult | None:
    """None for a file that is not there, damaged or of another Graft: the trial is made again."""
    try:
        result = TrialResult.model_validate_json(file.read_bytes())
    except (OSError, ValidationError):
        return None
    return result if result.key == result.inputs.key == file.stem else None


def facts(result: TrialResult) -> Mapping[str, Any]:
    """A result as --json prints it."""
    return {
        "patch": f"{result.component}/{result.patch}",
        "verdict": result.verdict,
        "red": result.red.model_dump(mode="json"),
        "green": result.green.model_dump(mode="json"),
        "patch_sha256": result.patch_sha256,
        "test_sha256": result.test_sha256,
        "started": result.started,
        "key": result.key,
    }
