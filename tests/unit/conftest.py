"""Fixtures of the unit tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from web import Web, web


@pytest.fixture
def server() -> Iterator[Web]:
    """A web server on the loopback address, ended with the test."""
    with web() as running:
        yield running
