"""Containers that are thrown away: files are put into each, one program runs, nothing is left."""

from __future__ import annotations

import contextlib
import io
import os
import tarfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from graft.console import Console
from graft.errors import EngineMissing, GateFailed, Interrupted
from graft.gate.containers import (
    LABEL,
    LOG_BYTES,
    MEMORY,
    OWNER_LABEL,
    PROCESSES,
    Containers,
    owner,
    remove_orphans,
)
from graft.gate.tests import Ended
from graft.store import CHECKED_MTIME

if TYPE_CHECKING:
    from docker import DockerClient

POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Put:
    """One file of a container; `data` None: there is none."""

    data: bytes | None
    executable: bool = False


@dataclass(frozen=True)
class Job:
    """One program in a container of its own.

    files: absolute path -> what is put there before it starts. user: None is the image's own.
    more: a folder, and where a tar is that is unpacked there too, once it exists.
    """

    id: str
    image: str
    argv: tuple[str, ...]
    files: Mapping[str, Put]
    seconds: float
    env: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    more: tuple[str, Path] | None = None


class Trials(Containers):
    """The containers of one verb; the gate's clean-up finds them when this process is killed."""

    def make(self, job: Job) -> str:
        """Create a job's container with its files, and start nothing; returns its id."""
        from docker.types import LogConfig

        api = self._client.api
        name = self._asked_for = f"graft-trial-{self.run_id}-{job.id}"
        made = api.create_container(
            job.image,
            entrypoint=list(job.argv),
            command=[],
            name=name,
            user=job.user,
            environment=dict(job.env),
            labels={LABEL: self.run_id, OWNER_LABEL: owner()},
            healthcheck={"test": ["NONE"]},
            # The client's configuration may name proxies; none of them may reach a test.
            use_config_proxy=False,
            host_config=api.create_host_config(
                network_mode="none",
                init=True,
                # Where the default runtime is NVIDIA's, it would bring GPUs in.
                runtime="runc",
                mem_limit=MEMORY,
                memswap_limit=MEMORY,
                pids_limit=PROCESSES,
                security_opt=["no-new-privileges"],
                log_config=LogConfig(type=LogConfig.types.JSON, config={"max-size": LOG_BYTES}),
            ),
        )
        self._asked_for = None
        container = str(made["Id"])
        if any(put.data is not None for put in job.files.values()):
            api.put_archive(container, "/", archive(job.files))
        if job.more is not None and job.more[1].is_file():
            with job.more[1].open("rb") as tar:
                api.put_archive(container, job.more[0], tar)
        return container

    def begin(self, container: str) -> None:
        self._client.api.start(container)

    def read(self, container: str, path: str) -> dict[str, bytes]:
        """The files at or below a path of a container: path relative to its folder -> bytes; empty: none is there."""
        chunks = self.tar(container, path)
        if chunks is None:
            return {}
        found: dict[str, bytes] = {}
        with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as tar:
            for member in tar:
                stream = tar.extractfile(member) if member.isreg() else None
                if stream is not None:
                    found[member.name] = stream.read()
        return found

    def tar(self, container: str, path: str) -> Iterator[bytes] | None:
        """A folder of a container as a tar; None when it is not there."""
        from docker.errors import NotFound

        try:
            chunks: Iterator[bytes] = self._client.api.get_archive(container, path)[0]
        except NotFound:
            return None
        return chunks

    def files(self, container: str) -> Iterator[bytes]:
        """All files of a container as a tar, in pieces; it need not run."""
        chunks: Iterator[bytes] = self._client.api.export(container)
        return chunks

    def ended(self, container: str, started: float, limit: float) -> Ended | None:
        """How a job ended, its container kept; None while it runs and may run on. Past `limit` seconds it is killed."""
        state = self.state(container)
        seconds = time.monotonic() - started
        stopped = state["Status"] in ("exited", "dead")
        if not stopped and seconds < limit:
            return None
        if not stopped:
            self.kill(container)
        stdout, stderr = self.logs(container)
        memory = bool(state.get("OOMKilled"))
        return Ended(int(state["ExitCode"]) if stopped else None, stdout, stderr, seconds, limit, memory)

    def wait(self, container: str, limit: float) -> Ended:
        """Start a container and wait for its end."""
        started = time.monotonic()
        self.begin(container)
        while (ended := self.ended(container, started, limit)) is None:
            time.sleep(POLL_SECONDS)
        return ended

    def run_all(self, jobs: Sequence[Job], on_end: Callable[[Job, Ended, str], None]) -> None:
        """Run every job, some at a time; each container is removed when its job has ended and `on_end` was told."""
        waiting = list(jobs)
        running: list[tuple[Job, str, float]] = []
        parallel = min(os.cpu_count() or 1, 4)
        while waiting or running:
            while waiting and len(running) < parallel:
                job = waiting.pop(0)
                container = self.make(job)
                running.append((job, container, time.monotonic()))
                self.begin(container)
            for entry in list(running):
                job, container, started = entry
                ended = self.ended(container, started, job.seconds)
                if ended is not None:
                    running.remove(entry)
                    on_end(job, ended, container)
                    self.remove(container)
            time.sleep(POLL_SECONDS)


@contextlib.contextmanager
def trials(client: DockerClient, console: Console, doing: str = "patch tests ran") -> Iterator[Trials]:
    """Containers for one verb, removed at the end however it ends; those of killed runs are removed first.

    doing: what an interrupt interrupts.
    Raises Interrupted on Ctrl-C, EngineMissing when the engine fails in between.
    """
    from docker.errors import DockerException
    from requests.exceptions import RequestException

    made = Trials(client, uuid.uuid4().hex[:12])
    try:
        _remove_left(client, console)
        yield made
    except KeyboardInterrupt as interrupt:
        raise Interrupted(
            f"interrupted while {doing}; nothing that had not ended was kept",
            cure="run the same command: it tries what has no result yet",
        ) from interrupt
    except (DockerException, RequestException) as problem:
        raise EngineMissing(f"the engine failed: {problem}", cure="look at the engine's log") from problem
    finally:
        try:
            made.remove_all()
        except (DockerException, RequestException) as problem:
            # It must not hide why the run ended.
            console.warn(f"containers may be left, the next run removes them: {problem}")


def sweep(connect: Callable[[], DockerClient], console: Console) -> None:
    """Remove the containers of killed runs where nothing has to run. What the engine then fails at is only said."""
    from docker.errors import DockerException
    from requests.exceptions import RequestException

    try:
        with contextlib.closing(connect()) as client:
            _remove_left(client, console)
    except (DockerException, RequestException, GateFailed) as problem:
        console.warn(f"containers may be left, the next run removes them: {problem}")


def _remove_left(client: DockerClient, console: Console) -> None:
    orphans = remove_orphans(client)
    if orphans:
        console.warn(f"removed {orphans} containers that a run left which was killed")


def archive(files: Mapping[str, Put]) -> bytes:
    """The tar that puts files at their absolute paths, owned by root and readable by all."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for path, put in sorted(files.items()):
            if put.data is None:
                continue
            member = tarfile.TarInfo(path.lstrip("/"))
            member.size, member.mode, member.mtime = len(put.data), 0o755 if put.executable else 0o644, CHECKED_MTIME
            tar.addfile(member, io.BytesIO(put.data))
    return out.getvalue()
