"""Which inputs cannot be had, and why: each by name, with one question for each host."""

from __future__ import annotations

import socket
from collections.abc import Sequence

import pytest
from web import Web

from graft import net
from graft.pins import Input
from graft.reach import NOT_FETCHED, unreachable

URL = "https://git.invalid/x.git"


def found(inputs: Sequence[Input], *, offline: bool = False) -> dict[str, str]:
    return {item.name: item.why for item in unreachable(inputs, offline=offline)}


def never(client: object, url: str) -> str | None:
    raise AssertionError(f"{url} was asked")


def test_a_host_that_answers_is_told_from_one_that_does_not(server: Web) -> None:
    client = net.session()
    assert net.unanswered(client, f"{server.url}/nothing-here") is None
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    assert net.unanswered(client, f"http://127.0.0.1:{port}/secret") == "connection failed"


def test_each_host_is_asked_once_and_every_input_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def answer(client: object, url: str) -> str | None:
        asked.append(url)
        return None if "reg.invalid" in url else "timed out"

    monkeypatch.setattr(net, "unanswered", answer)
    inputs = [
        Input("a", "git", "commit 1", URL),
        Input("a pull 1", "pull", "commit 2", URL),
        Input("b", "image", "sha256:1", "reg.invalid/x:1"),
        Input("base", "base", "image x", "reg.invalid/base"),
    ]
    assert found(inputs) == {
        "a": "git.invalid: timed out",
        "a pull 1": "git.invalid: timed out",
        "b": "reg.invalid answers, but Graft pulls no images yet",
        "base": "reg.invalid answers, but Graft pulls no images yet",
    }
    assert sorted(asked) == ["https://git.invalid/", "https://reg.invalid/"]


def test_offline_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(net, "unanswered", never)
    assert found([Input("a", "git", "commit 1", URL)], offline=True) == {"a": "git.invalid: not asked: offline"}


def test_what_is_known_needs_no_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(net, "unanswered", never)
    inputs = [
        Input("patch", "patch", "sha256:1", lost="nobody has it"),
        Input("torch", "index", "torch==1 of second", "second", "x", "index second has no address in build.yaml"),
        Input("other", "index", "other==1 of third", "third", "x"),
        Input("cublas", "apt", "libcublas=1", floats="x"),
        Input("numba", "index", "numba==1", floats="x"),
        Input("dependencies", "wheels", "", floats="x"),
        Input("a tree", "git", "tree 1"),
    ]
    assert found(inputs) == {
        "patch": "nobody has it",
        "torch": "index second has no address in build.yaml",
        "other": "Graft locks no files of a second index yet",
        "cublas": "apt's sources are the base image's, and that is not here",
    }


def test_every_kind_with_a_host_says_what_graft_cannot_do_with_it() -> None:
    assert set(NOT_FETCHED) == {"base", "git", "pull", "archive", "image"}
