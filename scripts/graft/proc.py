"""The one door for processes.

Every program Graft runs goes through `run`: its own process group (so that an interrupt or a
time limit ends the whole of it), no stdin unless given, and an error that shows the end of
the output. The environment is a parameter, so tests never patch it.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from graft.errors import BuildFailed, GraftError, Interrupted

TAIL_LINES = 40
GRACE_SECONDS = 10.0


@dataclass(frozen=True)
class Completed:
    """A finished program: exit status, and what it printed (text, undecodable bytes replaced)."""

    argv: tuple[str, ...]
    rc: int
    stdout: str
    stderr: str


def quoted(argv: Sequence[str | Path]) -> str:
    """The command as one could paste it into a shell."""
    return shlex.join(str(a) for a in argv)


def run(
    argv: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes | Iterable[bytes] | None = None,
    timeout: float | None = None,
    log: Path | None = None,
    on_line: Callable[[str], None] | None = None,
    error: type[GraftError] = BuildFailed,
    what: str | None = None,
    cure: str | None = None,
    check: bool = True,
) -> Completed:
    """Run a program to its end.

    env:     the whole environment; None inherits ours.
    stdin:   bytes to feed, or pieces of them as they come; None closes stdin.
    timeout: seconds; past it the whole process group is ended and `error` is raised.
    log:     file that receives both streams as they come.
    on_line: called with each line of stderr and stdout, without the newline.
    error:   the class raised when the program is missing, times out, or (check) exits non-zero.
    Raises Interrupted when the user interrupts, after the process group is gone.
    """
    words = [str(a) for a in argv]
    title = what or f"{Path(words[0]).name} failed"
    process: subprocess.Popen[bytes] | None = None
    with contextlib.ExitStack() as stack:
        sink = stack.enter_context(log.open("ab")) if log is not None else None
        # An interrupt can come at any moment after the start, also between two lines of ours: all of them lie in `try`.
        try:
            with _interrupts_kept() as came:
                try:
                    process = subprocess.Popen(
                        words,
                        cwd=cwd,
                        env=dict(env) if env is not None else None,
                        stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
                        stdout=subprocess.PIPE,
                        stderr=subprocess.PIPE,
                        start_new_session=True,
                    )
                except OSError as problem:
                    raise error(f"{title}: {problem.strerror}: {words[0]}", cure=cure) from problem
                pumps = _Pumps(process, sink, on_line)
            if came:
                raise KeyboardInterrupt
            pumps.feed(stdin)
            rc = process.wait(timeout)
            pumps.join()
            pumps.raise_callback_error()
        except subprocess.TimeoutExpired as expired:
            assert process is not None
            end_group(process)
            pumps.join()
            raise error(f"{title}: no end after {timeout:g} s", cure=cure, tail=pumps.tail()) from expired
        except KeyboardInterrupt as interrupt:
            if process is not None:
                end_group(process)
                pumps.join()
            raise Interrupted(f"interrupted while running {Path(words[0]).name}") from interrupt
        except BaseException:
            if process is not None:
                end_group(process)
            raise
    if check and rc != 0:
        raise error(f"{title} (exit {rc})", cure=cure, tail=pumps.tail() or quoted(words))
    return Completed(tuple(words), rc, pumps.text("stdout"), pumps.text("stderr"))


@contextlib.contextmanager
def _interrupts_kept() -> Iterator[list[int]]:
    """Keeps signals that arrive inside for afterwards: between fork and return, nobody could end the child."""
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    # An ignored signal stays ignored, for the child as well; and one without a handler ends us anyway.
    ours = [number for number, handler in before.items() if callable(handler)]
    for number in ours:
        signal.signal(number, lambda got, frame: came.append(got))
    try:
        yield came
    finally:
        for number in ours:
            signal.signal(number, before[number])


def end_group(process: subprocess.Popen[bytes], grace: float = GRACE_SECONDS) -> None:
    """End a program started by `run` and everything it started: SIGINT first, SIGKILL after `grace` seconds."""
    try:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace)
    finally:
        # The leader may be gone while its children live on, and a second Ctrl-C must not leave anything behind.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(grace)


class _Pumps:
    """Reads both streams of a process at once, so that neither can block it."""

    def __init__(
        self, process: subprocess.Popen[bytes], sink: IO[bytes] | None, on_line: Callable[[str], None] | None
    ) -> None:
        self._process = process
        self._sink = sink
        self._on_line = on_line
        self._lock = threading.Lock()
        self._chunks: dict[str, list[str]] = {"stdout": [], "stderr": []}
        self._count = 0
        self._last: deque[tuple[int, str]] = deque(maxlen=TAIL_LINES)
        # Two pipes have no common order: much on stdout must not push the cause on stderr out of sight.
        self._last_errors: deque[tuple[int, str]] = deque(maxlen=TAIL_LINES // 2)
        self._problem: Exception | None = None
        self._threads = [
            threading.Thread(target=self._read, args=(name, stream), daemon=True)
            for name, stream in (("stdout", process.stdout), ("stderr", process.stderr))
        ]
        for thread in self._threads:
            thread.start()

    def feed(self, data: bytes | Iterable[bytes] | None) -> None:
        """Write to stdin from a thread of its own: a program that does not read must not outlast its time limit."""
        if data is not None:
            threading.Thread(target=self._write, args=(data,), daemon=True).start()

    def _write(self, data: bytes | Iterable[bytes]) -> None:
        assert self._process.stdin is not None
        try:
            for piece in [data] if isinstance(data, bytes) else data:
                self._process.stdin.write(piece)
        except BrokenPipeError:
            # A program may end before it has read everything; its exit status tells.
            pass
        except Exception as problem:
            # What was fed may look complete to the program.
            self._problem = problem
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def _read(self, name: str, stream: IO[bytes] | None) -> None:
        assert stream is not None
        for raw in stream:
            line = raw.decode("utf-8", "replace")
            with self._lock:
                self._chunks[name].append(line)
                self._count += 1
                self._last.append((self._count, line.rstrip("\n")))
                if name == "stderr":
                    self._last_errors.append(self._last[-1])
                if self._sink is not None:
                    self._sink.write(raw)
                    self._sink.flush()
                if self._on_line is not None:
                    self._tell(line.rstrip("\n"))

    def _tell(self, line: str) -> None:
        # The pipe must be read on, or the program would block on it: the callback's error waits for the end.
        assert self._on_line is not None
        try:
            self._on_line(line)
        except Exception as problem:
            self._on_line, self._problem = None, problem

    def join(self) -> None:
        # A grandchild that left the group may hold the pipe open; its output is not ours to wait for.
        deadline = time.monotonic() + GRACE_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        with self._lock:
            self._sink = None

    def raise_callback_error(self) -> None:
        if self._problem is not None:
            raise self._problem

    def text(self, name: str) -> str:
        return "".join(self._chunks[name])

    def tail(self) -> str:
        return "\n".join(line for _, line in sorted({*self._last, *self._last_errors}))
