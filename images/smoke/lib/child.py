"""Programs that a smoke test starts: each with a time limit for itself and for everything it started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

TAIL_LINES = 15


@dataclass(frozen=True)
class Finished:
    """How a program ended: its exit status (None: the time limit ended it) and its output."""

    rc: int | None
    stdout: str
    stderr: str

    @property
    def ok(self) -> bool:
        return self.rc == 0

    def why(self) -> str:
        """What went wrong, with the end of the output, where the cause stands."""
        ended = "no end within the time limit" if self.rc is None else f"exit {self.rc}"
        tail = "\n".join((self.stdout + self.stderr).rstrip().splitlines()[-TAIL_LINES:])
        return f"{ended}: {tail}" if tail else ended


def run(argv: Sequence[str], *, seconds: float, env: Mapping[str, str] | None = None, cwd: str = "/tmp") -> Finished:
    """Run a program to its end; `env` is added to ours. Its process group is gone when this returns."""
    process = subprocess.Popen(
        list(argv),
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    rc: int | None = None
    try:
        stdout, stderr = process.communicate(timeout=seconds)
        rc = process.returncode
    except subprocess.TimeoutExpired:
        end_group(process)
        stdout, stderr = process.communicate()
    finally:
        end_group(process)
    return Finished(rc, stdout, stderr)


def python(code: str, *args: str, seconds: float, env: Mapping[str, str] | None = None) -> Finished:
    """Run a few lines in a fresh interpreter of the image. -P: no folder of ours may shadow what is installed."""
    return run([sys.executable, "-P", "-c", code, *args], seconds=seconds, env=env)


def end_group(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
