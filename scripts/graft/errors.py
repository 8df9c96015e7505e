"""One error class per exit code; the table in the README is the user's view of it.

A message says what happened, where, and what to do about it. `tail` carries the end of a
failed program's output, because that is where the cause stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar


class GraftError(Exception):
    """Base of everything Graft reports without a traceback.

    what:  one sentence, no trailing newline.
    where: `file:line`, `patch, hunk`, an artifact name, or None.
    cure:  what the user can do, usually a command.
    tail:  the last lines of a failed program's output.
    findings: each (where, what) of an error that is about several places.
    """

    exit_code: ClassVar[int] = 1

    def __init__(
        self, what: str, *, where: str | None = None, cure: str | None = None, tail: str | None = None
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.cure = cure
        self.tail = tail
        self.findings: tuple[tuple[str, str], ...] = ()

    def as_dict(self) -> dict[str, str | int | None]:
        """The error as `--json` prints it."""
        return {
            "error": type(self).__name__,
            "exit_code": self.exit_code,
            "what": self.what,
            "where": self.where,
            "cure": self.cure,
            "tail": self.tail,
        }


class BadInput(GraftError):
    """Recipe, lock, patch, architecture or arguments are wrong."""

    exit_code = 2


class LockStale(GraftError):
    """The lock is missing, or does not belong to the recipe as it stands."""

    exit_code = 3


class FetchFailed(GraftError):
    """A download failed, or its bytes are not the locked ones."""

    exit_code = 4


class PatchMismatch(GraftError):
    """A patch does not apply as locked."""

    exit_code = 5


class BuildFailed(GraftError):
    """A step of the image build failed."""

    exit_code = 6


class OutOfMemory(BuildFailed):
    """The compilers of a component were killed for memory. jobs: how many ran at once; None when nobody said."""

    def __init__(self, message: str, component: str, jobs: int | None, **more: str) -> None:
        super().__init__(message, **more)
        self.component = component
        self.jobs = jobs


class GateFailed(GraftError):
    """A smoke test was red or did not run; nothing was tagged."""

    exit_code = 7


class RegistryFailed(GraftError):
    """A registry refused or could not be used."""

    exit_code = 8


class EngineMissing(GraftError):
    """No Docker engine could be reached or started."""

    exit_code = 9


class Interrupted(GraftError):
    """Ctrl-C, or a termination signal."""

    exit_code = 130


ERRORS: Sequence[type[GraftError]] = (
    BadInput,
    LockStale,
    FetchFailed,
    PatchMismatch,
    BuildFailed,
    GateFailed,
    RegistryFailed,
    EngineMissing,
    Interrupted,
)
