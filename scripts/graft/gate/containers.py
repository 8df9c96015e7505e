"""Containers of one gate run: each is bounded, labelled with its run, and gone at the end whatever happens."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graft.errors import GateFailed
from graft.gate.receipt import Tier

if TYPE_CHECKING:
    from docker import DockerClient

LABEL = "dev.graft.gate"
OWNER_LABEL = "dev.graft.gate.owner"
PYTHON = "python"
TESTS = "/graft/smoke"

MEMORY = "16g"
# A process for each GPU, each with torch; NCCL and vLLM keep their buffers in /dev/shm, and NCCL's are pinned.
GPU_MEMORY = "128g"
GPU_SHARED_MEMORY = "16g"
PROCESSES = 4096
LOG_BYTES = "16m"
GONE_SECONDS = 30.0
LATE_SECONDS = 5.0


class Containers:
    """The containers of one run. Every one that was created is removed by `remove_all`."""

    def __init__(self, client: DockerClient, run_id: str, tier: Tier = "cpu") -> None:
        self._client = client
        self._tier = tier
        self.run_id = run_id
        self._asked_for: str | None = None

    def start(self, image_id: str, test_id: str, file: str) -> str:
        """Create and start the container of one test; returns its id."""
        from docker.types import LogConfig

        api = self._client.api
        name = self._asked_for = f"graft-gate-{self.run_id}-{test_id}"
        made = api.create_container(
            image_id,
            entrypoint=[PYTHON, f"{TESTS}/{file}"],
            command=[],
            name=name,
            labels={LABEL: self.run_id, OWNER_LABEL: owner()},
            # The client's configuration may name proxies; none of them may reach a test.
            use_config_proxy=False,
            host_config=api.create_host_config(
                network_mode="none",
                init=True,
                pids_limit=PROCESSES,
                security_opt=["no-new-privileges"],
                log_config=LogConfig(type=LogConfig.types.JSON, config={"max-size": LOG_BYTES}),
                **_devices(self._tier),
            ),
        )
        self._asked_for = None
        container = str(made["Id"])
        api.start(container)
        return container

    def state(self, container: str) -> Mapping[str, Any]:
        """Docker's State of a container."""
        state: Mapping[str, Any] = self._client.api.inspect_container(container)["State"]
        return state

    def logs(self, container: str) -> tuple[str, str]:
        """What it printed: stdout, stderr."""
        api = self._client.api
        out, err = (
            api.logs(container, stdout=stdout, stderr=not stdout).decode("utf-8", "replace") for stdout in (True, False)
        )
        return out, err

    def kill(self, container: str) -> None:
        """End everything in a container; it may have ended by itself."""
        with _gone_is_fine():
            self._client.api.kill(container)

    def remove(self, container: str) -> None:
        """Kill and remove a container. Raises GateFailed when it is still there afterwards."""
        remove(self._client, container)

    def remove_all(self) -> None:
        """Remove what carries this run's label, also a container whose creation was interrupted."""
        end = time.monotonic() + LATE_SECONDS
        while self._asked_for is not None and time.monotonic() < end:
            # An engine goes on with a request that nobody waits for, and the container is listed once it is made.
            if self._client.api.containers(all=True, filters={"name": self._asked_for}):
                break
            time.sleep(0.1)
        for container in _labelled(self._client, f"{LABEL}={self.run_id}"):
            self.remove(container)


def _devices(tier: Tier) -> dict[str, Any]:
    """The settings of a container that decide which devices it sees, and how much memory it has for them."""
    from docker.types import DeviceRequest, Ulimit

    if tier == "cpu":
        # runc: where the default runtime is NVIDIA's, it would bring GPUs in.
        return {"runtime": "runc", "mem_limit": MEMORY, "memswap_limit": MEMORY}
    return {
        # As `docker run --gpus all`, in the engine's default runtime.
        "device_requests": [DeviceRequest(count=-1, capabilities=[["gpu"]])],
        "mem_limit": GPU_MEMORY,
        "memswap_limit": GPU_MEMORY,
        "shm_size": GPU_SHARED_MEMORY,
        "ulimits": [Ulimit(name="memlock", soft=-1, hard=-1)],
    }


def remove_orphans(client: DockerClient) -> int:
    """Remove the containers of runs whose process died before it could; returns how many."""
    removed = 0
    for container in client.api.containers(all=True, filters={"label": OWNER_LABEL}):
        if is_dead(container["Labels"][OWNER_LABEL]):
            remove(client, container["Id"])
            removed += 1
    return removed


def remove(client: DockerClient, container: str) -> None:
    """Kill and remove a container. Raises GateFailed when it is still there afterwards."""
    from docker.errors import NotFound

    # A removal that is already in progress answers 409 until it is done.
    deadline = time.monotonic() + GONE_SECONDS
    while True:
        with _gone_is_fine():
            client.api.remove_container(container, force=True, v=True)
        try:
            client.api.inspect_container(container)
        except NotFound:
            return
        if time.monotonic() > deadline:
            raise GateFailed(f"container {container[:12]} cannot be removed", cure=f"docker rm -f {container[:12]}")
        time.sleep(0.2)


def owner() -> str:
    """This process, told apart from every other one of this machine, also of other PID namespaces and earlier times."""
    return f"{_machine()}-{os.getpid()}-{_start_time(os.getpid())}"


def is_dead(name: str) -> bool:
    """Whether `name` was a process of this machine and namespace that has ended; others cannot be judged."""
    machine, _, process = name.rpartition("-")[0].rpartition("-")
    started = name.rpartition("-")[2]
    return machine == _machine() and process.isdigit() and _start_time(int(process)) != started


def _machine() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")[:12]
    return f"{boot}-{Path('/proc/self/ns/pid').stat().st_ino}"


def _start_time(process: int) -> str | None:
    """Field 22 of /proc/PID/stat (proc(5)); the program's name before it may hold spaces and brackets."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except (FileNotFoundError, ProcessLookupError):
        return None


def _labelled(client: DockerClient, label: str) -> list[str]:
    return [str(found["Id"]) for found in client.api.containers(all=True, filters={"label": label})]


@contextlib.contextmanager
def _gone_is_fine() -> Iterator[None]:
    """404: there is no such container. 409: it is not running, or is being removed."""
    from docker.errors import APIError

    try:
        yield
    except APIError as problem:
        if problem.status_code not in (404, 409):
            raise
