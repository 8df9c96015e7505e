"""An engine that only pretends, and gate runs in it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import requests
from docker.errors import APIError, NotFound

from graft.console import Console
from graft.gate import Receipt, ReceiptFacts, SmokeTest, run_gate

CANDIDATE = "sha256:" + "a" * 64
SMOKE = "sha256:" + "b" * 64
FACTS = ReceiptFacts(
    recipe="glm-dsa",
    arch="sm90",
    key="k" * 12,
    lock_digest="l",
    gate_digest="g",
    engine="embedded Docker 26.1.5",
    look_inside="DOCKER_HOST=unix:///e docker run -it --rm --network none --entrypoint bash",
)


def report(test: str = "core", verdict: str = "pass", *checks: tuple[str, str]) -> str:
    listed = [{"id": id, "verdict": said, "detail": f"about {id}"} for id, said in checks or (("one", verdict),)]
    return json.dumps({"test": test, "verdict": verdict, "checks": listed})


class FakeTest:
    """What a container does: it runs for `polls` looks at it, then it has ended so."""

    def __init__(self, exit_code: int = 0, stdout: str | None = None, *, polls: int = 0, oom: bool = False) -> None:
        self.exit_code, self.stdout, self.polls, self.oom = exit_code, stdout, polls, oom


class FakeEngine:
    """As much of the Engine API as the gate uses."""

    def __init__(self, tests: dict[str, FakeTest]) -> None:
        self.tests = tests
        self.there: dict[str, dict[str, Any]] = {}
        self.created: list[dict[str, Any]] = []
        self.most_at_once = 0
        #: Why no container can be started, as an engine without GPUs says it.
        self.refuses: str | None = None
        self.on_inspect: Callable[[], None] = lambda: None
        self.attrs: dict[str, dict[str, Any]] = {
            CANDIDATE: {"RootFS": {"Layers": ["1", "2"]}, "Config": {"Env": ["A=1"], "User": ""}},
            SMOKE: {"RootFS": {"Layers": ["1", "2", "3"]}, "Config": {"Env": ["A=1"], "User": ""}},
        }

    @property
    def api(self) -> FakeEngine:
        return self

    @property
    def images(self) -> FakeEngine:
        return self

    def get(self, image: str) -> Any:
        return type("Image", (), {"attrs": self.attrs[image]})

    def create_host_config(self, **settings: Any) -> dict[str, Any]:
        return settings

    def create_container(self, image: str, **settings: Any) -> dict[str, str]:
        self.created.append({"image": image, **settings})
        name = settings["name"]
        test = Path(settings["entrypoint"][-1]).stem.replace("_", "-")
        self.there[name] = {"labels": settings["labels"], "test": self.tests[test], "name": test, "killed": False}
        self.most_at_once = max(self.most_at_once, len(self.there))
        return {"Id": name}

    def start(self, container: str) -> None:
        assert container in self.there
        if self.refuses is not None:
            raise APIError("500 Server Error", response=requests.Response(), explanation=self.refuses)

    def inspect_container(self, container: str) -> dict[str, Any]:
        self.on_inspect()
        if container not in self.there:
            raise NotFound("no such container")
        test = self.there[container]["test"]
        test.polls -= 1
        status = "running" if test.polls >= 0 else "exited"
        return {"State": {"Status": status, "ExitCode": test.exit_code, "OOMKilled": test.oom}}

    def logs(self, container: str, *, stdout: bool, stderr: bool) -> bytes:
        found = self.there[container]
        said = found["test"].stdout
        text = report(found["name"]) if said is None else said
        return text.encode() if stdout else b"what it said on stderr\n"

    def kill(self, container: str) -> None:
        self.there[container]["killed"] = True

    def remove_container(self, container: str, *, force: bool, v: bool) -> None:
        if self.there.pop(container, None) is None:
            raise NotFound("no such container", response=requests.Response())

    def containers(self, *, all: bool, filters: dict[str, str]) -> list[dict[str, Any]]:
        key, _, value = filters["label"].partition("=")
        return [
            {"Id": id, "Labels": found["labels"]}
            for id, found in self.there.items()
            if key in found["labels"] and value in ("", found["labels"][key])
        ]


def gate(engine: FakeEngine, tmp_path: Path, **changes: Any) -> Receipt:
    tier = changes.get("tier", "cpu")
    tests = [SmokeTest(id, id.replace("-", "_") + ".py", 60.0, tier=tier) for id in engine.tests]
    settings: dict[str, Any] = {"console": Console(), "receipts": tmp_path, "facts": FACTS, "parallel": 2, **changes}
    chosen = settings.pop("tests", tests)
    return run_gate(engine, SMOKE, CANDIDATE, chosen, **settings)  # type: ignore[arg-type]
