"""One gate run: verify the smoke image, run its tests in containers, write the receipt, say what is red."""

from __future__ import annotations

import datetime
import os
import platform
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from graft.console import Console
from graft.errors import GateFailed, Interrupted
from graft.gate.containers import Containers, remove_orphans
from graft.gate.forms import forms
from graft.gate.receipt import Compiled, Host, Receipt, ReceiptFacts, TestResult, Tier, write_receipt
from graft.gate.tests import Ended, SmokeTest, judge, not_run

if TYPE_CHECKING:
    from docker import DockerClient

TOTAL_SECONDS = 2700.0
POLL_SECONDS = 0.2

#: What a run cannot have seen, by tier.
LIMITS: Mapping[Tier, tuple[str, ...]] = {
    "cpu": (
        "no GPU was used: no kernel ran, and nothing is known of speed or of results on a device",
        "no GPU driver was there: what loads the driver's libraries was not loaded, or only against stubs",
        "no network was there",
    ),
    "gpu": (
        "only the GPUs that the tests name were used, with the driver of this host; nothing is known of others",
        "kernels were compared with a reference in a few shapes and types; nothing is known of speed",
        "the models that were served are tiny and their weights random: nothing is known of a real one's answers",
        "no network was there: links between machines were not tried, and between GPUs only where there are several",
    ),
}


@dataclass
class _Running:
    test: SmokeTest
    container: str
    started: float


def run_gate(
    client: DockerClient,
    smoke_image_id: str,
    candidate_id: str,
    tests: Sequence[SmokeTest],
    *,
    console: Console,
    receipts: Path,
    facts: ReceiptFacts,
    tier: Tier = "cpu",
    total_seconds: float = TOTAL_SECONDS,
    parallel: int | None = None,
) -> Receipt:
    """Run the smoke tests in the candidate and write the receipt, also of a red run.

    tier: of all the tests; `gpu` brings all GPUs in, and is red when the engine has none.
    total_seconds: limit of the whole run; parallel: tests at once (default: one for each core, at most 4; the tests
    of the GPU tier share the GPUs and run one by one).
    Raises GateFailed when anything but a pass comes out, Interrupted on Ctrl-C; no container is left.
    """
    check_same_image(client, smoke_image_id, candidate_id)
    orphans = remove_orphans(client)
    if orphans:
        console.warn(f"removed {orphans} containers that a gate run left which was killed")
    started = datetime.datetime.now(datetime.UTC)
    clock = time.monotonic()
    at_once = 1 if tier == "gpu" else min(os.cpu_count() or 1, 4)
    containers = Containers(client, uuid.uuid4().hex[:12], tier)
    run = _Run(containers, smoke_image_id, console, clock + total_seconds, parallel or at_once)
    results = run.run(tests)
    red = [result for result in results if result.verdict != "pass"]
    receipt = Receipt(
        schema_version=2,
        tier=tier,
        image_id=candidate_id,
        manifest_digest=None,
        recipe=facts.recipe,
        arch=facts.arch,
        key=facts.key,
        lock_digest=facts.lock_digest,
        gate_digest=facts.gate_digest,
        started=started.strftime("%Y-%m-%dT%H:%M:%SZ"),
        seconds=round(time.monotonic() - clock, 1),
        host=host(),
        engine=facts.engine,
        verdict="fail" if red or not results else "pass",
        tests=tuple(results),
        limits=LIMITS[tier],
        compiled=tuple(Compiled.model_validate(known) for known in facts.compiled),
    )
    place = write_receipt(receipts, receipt, forms(receipt))
    show(console, receipt)
    if receipt.verdict != "pass":
        raise red_gate(receipt, facts, place, run.tails)
    return receipt


def check_same_image(client: DockerClient, smoke_image_id: str, candidate_id: str) -> None:
    """The smoke image is the candidate plus tests: layers that start with its layers, equal environment and user.

    Raises GateFailed: tests in another image would say nothing of this one.
    """
    smoke, candidate = (client.images.get(image).attrs for image in (smoke_image_id, candidate_id))
    below = candidate["RootFS"]["Layers"]
    if smoke["RootFS"]["Layers"][: len(below)] != below:
        raise GateFailed("the smoke image was not made from the candidate", where=candidate_id, cure="build both again")
    for name in ("Env", "User", "WorkingDir"):
        if (smoke["Config"].get(name) or "") != (candidate["Config"].get(name) or ""):
            raise GateFailed(f"the smoke image has another {name} than the candidate", where=candidate_id)


class _Run:
    """The tests of one run. One thread: an interrupt ends the wait, and the containers with it."""

    def __init__(self, containers: Containers, image_id: str, console: Console, deadline: float, parallel: int) -> None:
        self._containers = containers
        self._image_id = image_id
        self._console = console
        self._deadline = deadline
        self._parallel = parallel
        self._running: list[_Running] = []
        self.tails: dict[str, str] = {}

    def run(self, tests: Sequence[SmokeTest]) -> list[TestResult]:
        """A result for each test, in their order."""
        from docker.errors import DockerException
        from requests.exceptions import RequestException

        try:
            done = self._run_all(list(tests))
        except KeyboardInterrupt as interrupt:
            raise Interrupted("interrupted in the gate; nothing was tagged") from interrupt
        except (DockerException, RequestException) as problem:
            raise GateFailed(
                f"the engine failed during the gate: {problem}", cure="look at the engine's log"
            ) from problem
        finally:
            self._clean_up()
        return [done[test.id] for test in tests]

    def _clean_up(self) -> None:
        """Leave no container. An engine that does not answer keeps its own, and must not hide why the run ended."""
        from docker.errors import DockerException
        from requests.exceptions import RequestException

        try:
            self._containers.remove_all()
        except (DockerException, RequestException) as problem:
            self._console.warn(f"containers of this gate may be left, the next run removes them: {problem}")

    def _run_all(self, waiting: list[SmokeTest]) -> dict[str, TestResult]:
        done: dict[str, TestResult] = {}
        while waiting or self._running:
            while waiting and len(self._running) < self._parallel and time.monotonic() < self._deadline:
                test = waiting.pop(0)
                refused = self._start(test)
                if refused is not None:
                    done[test.id] = refused
            for running in list(self._running):
                ended = self._ended(running)
                if ended is not None:
                    self._running.remove(running)
                    done[running.test.id] = self._finish(running.test, ended)
            if not self._running and time.monotonic() >= self._deadline:
                done |= {test.id: not_run(test, "the time for the whole gate was over") for test in waiting}
                break
            time.sleep(POLL_SECONDS)
        return done

    def _start(self, test: SmokeTest) -> TestResult | None:
        """Start a test; the result of one that the engine has no GPU for, which is red and never a skip."""
        from docker.errors import APIError

        started = time.monotonic()
        try:
            container = self._containers.start(self._image_id, test.id, test.file)
        except APIError as problem:
            if test.tier != "gpu":
                raise
            self.tails[test.id] = "GPUs were asked for; `docker run --rm --gpus all IMAGE` has to work on this host"
            return not_run(test, f"the engine gives the test no GPU: {problem.explanation or problem}")
        self._running.append(_Running(test, container, started))
        return None

    def _ended(self, running: _Running) -> Ended | None:
        """How the test ended; None while it runs and may run on."""
        state = self._containers.state(running.container)
        now = time.monotonic()
        seconds = now - running.started
        stopped = state["Status"] in ("exited", "dead")
        if not stopped and seconds < running.test.seconds and now < self._deadline:
            return None
        if not stopped:
            self._containers.kill(running.container)
        stdout, stderr = self._containers.logs(running.container)
        self._containers.remove(running.container)
        return Ended(
            exit_code=int(state["ExitCode"]) if stopped else None,
            stdout=stdout,
            stderr=stderr,
            seconds=seconds,
            limit=seconds if now >= self._deadline else running.test.seconds,
            out_of_memory=bool(state.get("OOMKilled")),
        )

    def _finish(self, test: SmokeTest, ended: Ended) -> TestResult:
        result = judge(test, ended)
        self.tails[test.id] = ended.tail()
        self._console.say(f"  {test.id}: {result.verdict}, {len(result.checks)} checks, {result.seconds:.1f} s")
        return result


def show(console: Console, receipt: Receipt) -> None:
    """The table: a line for each test, and one for each check that did not pass."""
    rows: list[tuple[str, ...]] = []
    for test in receipt.tests:
        waived = sum(check.verdict == "waived" for check in test.checks)
        counts = f"{len(test.checks)}" + (f", {waived} waived" if waived else "")
        rows.append((test.id, test.verdict, counts, f"{test.seconds:.1f}", test.detail))
        rows += [
            (f"  {check.id}", check.verdict, "", "", check.detail) for check in test.checks if check.verdict != "pass"
        ]
    console.table(f"gate of {receipt.image_id[7:19]}", ("test", "verdict", "checks", "seconds", "detail"), rows)


def red_gate(receipt: Receipt, facts: ReceiptFacts, place: Path, tails: dict[str, str]) -> GateFailed:
    """The error of a red run: the tests, the candidate, how to look inside, the end of the first red one's output."""
    red = receipt.red
    names = ", ".join(f"{test.id} ({test.verdict})" for test in red) or "no test ran"
    what = {
        "cpu": "the gate is red, nothing was tagged",
        "gpu": "the GPU tier is red; no tag was moved or taken away",
    }
    return GateFailed(
        f"{what[receipt.tier]}: {names}",
        where=f"candidate {receipt.image_id}",
        cure=f"look inside with `{facts.look_inside} {receipt.image_id}`; the receipt is {place}",
        tail=next((f"{test.id}:\n{tails[test.id]}" for test in red if tails.get(test.id)), None),
    )


def host() -> Host:
    """This machine, without anything that names it."""
    release = platform.freedesktop_os_release()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Host(
        system=release.get("PRETTY_NAME", release["NAME"]),
        kernel=platform.release(),
        machine=platform.machine(),
        cpus=os.cpu_count() or 0,
        memory_gb=round(memory / 1e9, 1),
    )
