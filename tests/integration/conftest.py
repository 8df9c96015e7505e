"""Fixtures of the tests of publishing."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from distribution import Distribution, distribution
from publishing import Shop, copy_project, open_shop


@pytest.fixture(scope="session")
def planned_shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """A project with keys and its plan; without a registry yet."""
    root = tmp_path_factory.mktemp("shop") / "project"
    copy_project(root)
    return open_shop(root, "127.0.0.1:1")


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Distribution]:
    """An empty registry."""
    with distribution(tmp_path / "registry") as started:
        yield started


@pytest.fixture
def shop(planned_shop: Shop, running: Distribution) -> Shop:
    return dataclasses.replace(planned_shop, host=running.host)
