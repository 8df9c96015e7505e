"""The gate in a real engine: tests that hang, crash, say nothing or too much, and what an interrupt leaves. Needs root.

The images are made of the host's bash, under the name `python`: a smoke test of these images is a shell script.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from docker import DockerClient
from docker.errors import ImageNotFound
from hostprograms import ready

from graft.console import Console
from graft.errors import GateFailed
from graft.gate import (
    Expected,
    Finder,
    HostValue,
    Receipt,
    ReceiptFacts,
    SmokeTest,
    Tier,
    find_receipt,
    image_config,
    run_gate,
)
from graft.gate.config import check_config
from graft.gate.containers import LABEL
from graft.gate.receipt import read_receipt
from graft.paths import Paths

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.geteuid() != 0, reason="the embedded engine needs root"),
]

SOURCE = Path(__file__).parents[2]
FACTS = ReceiptFacts("toy", "sm90", "key", "lock", "gate", "engine", "docker run --entrypoint bash")
GREEN = """echo '{"test": "%s", "verdict": "pass", "checks": [{"id": "one", "verdict": "pass", "detail": ""}]}'"""

SCRIPTS = {
    "green": GREEN % "green",
    "hang": "echo started; sleep 1000",
    "stubborn": "trap '' TERM INT HUP; while :; do sleep 1000; done",
    "silent": "echo all is well",
    "twice": f"{GREEN % 'twice'}; {GREEN % 'twice'}",
    # The container ends with the test: what it started does not outlive it, and cannot report in its place.
    "leaves": f"sleep 1000 & {GREEN % 'leaves'}",
    "forks": f"(sleep 1; {GREEN % 'forks'}) & exit 0",
    "early": f"exit 0; {GREEN % 'early'}",
    "lib/collect": """echo '{"files": 0}'""",
    "crash": "echo the cause >&2; exit 3",
    "signal": "kill -SEGV $$",
    # An init that is not the test, no network but the loopback device, and the image's environment.
    "bounds": f"""
        [[ $$ != 1 && $(</proc/1/comm) == docker-init ]] || exit 3
        [[ $(</proc/net/dev) == *lo:* && $(</proc/net/dev) != *eth* ]] || exit 4
        [[ $MARK == 1 && -z $HTTP_PROXY$HTTPS_PROXY$http_proxy$https_proxy ]] || exit 5
        {GREEN % "bounds"}
    """,
}

INTERRUPTED = """
import sys
from pathlib import Path
from docker import DockerClient
from graft.console import Console
from graft.gate import ReceiptFacts, SmokeTest, run_gate
host, smoke, candidate, receipts = sys.argv[1:]
facts = ReceiptFacts("toy", "sm90", "key", "lock", "gate", "engine", "docker run")
tests = [SmokeTest("hang", "hang.py"), SmokeTest("stubborn", "stubborn.py")]
client = DockerClient(host)
run_gate(client, smoke, candidate, tests, console=Console(), receipts=Path(receipts), facts=facts, parallel=2)
"""


@dataclass(frozen=True)
class Images:
    client: DockerClient
    host: str
    candidate: str
    smoke: str

    def gate(self, receipts: Path, *tests: SmokeTest, tier: Tier = "cpu") -> Receipt:
        console = Console()
        return run_gate(
            self.client,
            self.smoke,
            self.candidate,
            tests,
            console=console,
            receipts=receipts,
            facts=FACTS,
            tier=tier,
            parallel=2,
        )

    def containers(self) -> list[str]:
        return [found["Id"] for found in self.client.api.containers(all=True, filters={"label": LABEL})]


@pytest.fixture(scope="module")
def images() -> Iterator[Images]:
    found = ready(Paths(SOURCE), "auto")
    with closing(found.client()) as client:
        candidate = client.api.import_image_from_data(rootfs(), changes=["ENV PATH=/bin", "ENV MARK=1"])
        candidate_id = re.search(r"sha256:[0-9a-f]{64}", candidate)
        assert candidate_id
        smoke = add_files(client, candidate_id[0], {f"graft/smoke/{name}.py": text for name, text in SCRIPTS.items()})
        yield Images(client, found.host, candidate_id[0], smoke)
        for image in (smoke, candidate_id[0]):
            # The engine takes an untagged parent away with its last child.
            with suppress(ImageNotFound):
                client.images.remove(image, force=True)


def rootfs() -> bytes:
    """bash as `python`, `sleep`, and the libraries both need."""
    programs = {"bin/python": "/bin/bash", "bin/sleep": shutil.which("sleep") or ""}
    libraries: set[str] = set()
    for program in programs.values():
        listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        libraries |= set(re.findall(r"(/\S+) \(0x", listed))
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, source in [*programs.items(), *((path.lstrip("/"), path) for path in sorted(libraries))]:
            tar.add(Path(source).resolve(), name, recursive=False)
    return out.getvalue()


def add_files(client: DockerClient, image: str, files: Mapping[str, str]) -> str:
    """A layer on top of an image, as the smoke stage adds one."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    made = client.api.create_container(image, command=["python"])["Id"]
    client.api.put_archive(made, "/", out.getvalue())
    committed = client.api.commit(made, changes=["CMD []"])["Id"]
    client.api.remove_container(made)
    return str(committed)


def test_a_green_test_leaves_a_receipt_and_no_container(images: Images, tmp_path: Path) -> None:
    names = ("green", "bounds", "leaves")
    receipt = images.gate(tmp_path, *(SmokeTest(name, f"{name}.py") for name in names))
    assert [test.verdict for test in receipt.tests] == ["pass", "pass", "pass"]
    assert find_receipt(tmp_path, images.candidate, "gate") == receipt
    assert not images.containers()


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("hang", "hang"),
        ("stubborn", "hang"),
        ("silent", "no-report"),
        ("twice", "no-report"),
        ("forks", "no-report"),
        ("early", "no-report"),
        ("crash", "crash"),
        ("signal", "crash"),
        ("missing", "crash"),
    ],
)
def test_anything_else_is_red(images: Images, tmp_path: Path, name: str, verdict: str) -> None:
    with pytest.raises(GateFailed, match=rf"{name} \({verdict}\)") as failed:
        images.gate(tmp_path, SmokeTest(name, f"{name}.py", 5.0), SmokeTest("green", "green.py"))
    assert images.candidate in (failed.value.cure or "")
    assert find_receipt(tmp_path, images.candidate, "gate") is None
    assert not images.containers()
    if name == "crash":
        assert "the cause" in (failed.value.tail or "")


def test_gpus_that_are_asked_for_and_absent_are_red(images: Images, tmp_path: Path) -> None:
    tests = (SmokeTest("green", "green.py", tier="gpu"), SmokeTest("bounds", "bounds.py", tier="gpu"))
    if Path("/proc/driver/nvidia").exists():
        # With the NVIDIA Container Toolkit, as on every host with a GPU that is meant for containers.
        assert images.gate(tmp_path, *tests, tier="gpu").tier == "gpu"
        return
    with pytest.raises(GateFailed, match=r"green \(not-run\), bounds \(not-run\)"):
        images.gate(tmp_path, *tests, tier="gpu")
    assert not images.containers()
    [file] = tmp_path.glob("*/receipt-failed-gpu.json")
    detail = read_receipt(file).tests[0].detail
    assert "gives the test no GPU: could not select device driver" in detail


def test_the_configuration_that_the_engine_says_is_judged(images: Images, tmp_path: Path) -> None:
    expected = Expected({"PATH": "/bin", "MARK": "1"}, {}, (), "")
    finder = Finder([HostValue("the name of this host", "build-7")])
    receipt = images.gate(tmp_path, image_config(images.client, images.candidate, expected, finder))
    assert [check.verdict for check in receipt.tests[0].checks] == ["pass"] * 7
    made = images.client.api.create_container(images.candidate, command=["python"])["Id"]
    changes = ["ENV http_proxy=http://x.example", "LABEL by=build-7", "EXPOSE 8000", 'CMD ["x"]']
    other = images.client.api.commit(made, message="made on build-7", changes=changes)["Id"]
    images.client.api.remove_container(made)
    try:
        checks = {c.id: c for c in check_config(*inspected(images.client, str(other)), expected, finder)}
        assert [id for id, check in checks.items() if check.verdict == "fail"] == [
            "env",
            "labels",
            "settings",
            "configuration",
            "history",
        ]
        assert "the name of this host in step" in checks["history"].detail
        assert "build-7" not in str(checks)
    finally:
        images.client.images.remove(str(other), force=True)


def inspected(client: DockerClient, image: str) -> tuple[Any, Any]:
    api: Any = client.api
    return api.inspect_image(image), api.history(image)


def test_tests_of_another_image_are_refused(images: Images, tmp_path: Path) -> None:
    other = add_files(images.client, images.candidate, {"other": ""})
    try:
        with pytest.raises(GateFailed, match="not made from the candidate"):
            run_gate(images.client, images.smoke, other, [], console=Console(), receipts=tmp_path, facts=FACTS)
    finally:
        images.client.images.remove(other)


def start(images: Images, tmp_path: Path) -> subprocess.Popen[bytes]:
    """A gate run of its own process, with two tests that do not end."""
    argv = [sys.executable, "-c", INTERRUPTED, images.host, images.smoke, images.candidate, str(tmp_path)]
    process = subprocess.Popen(
        argv,
        env={**os.environ, "PYTHONPATH": str(SOURCE / "scripts")},
        stderr=subprocess.PIPE,
        # A shell's background job ignores SIGINT, and its children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 60
    while len(images.containers()) < 2:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return process


def test_an_interrupt_leaves_no_container_and_no_receipt(images: Images, tmp_path: Path) -> None:
    process = start(images, tmp_path)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode != 0
    assert b"Interrupted" in said
    assert not images.containers()
    assert not list(tmp_path.iterdir())


def test_what_a_killed_run_left_is_removed_by_the_next_one(images: Images, tmp_path: Path) -> None:
    process = start(images, tmp_path)
    process.kill()
    process.communicate(timeout=60)
    assert len(images.containers()) == 2
    images.gate(tmp_path, SmokeTest("green", "green.py"))
    assert not images.containers()
