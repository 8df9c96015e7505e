"""What all tests share."""

from __future__ import annotations

import signal

import pytest
from hypothesis import settings

# No test asserts a time: on a busy machine a slow example says nothing of the code.
settings.register_profile("graft", deadline=None)
settings.load_profile("graft")

# A shell starts its background jobs with interrupts ignored, and every process that a test starts would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The integration tests of one file share engines and registries, so one worker takes them all, in their order."""
    for item in items:
        if item.path.parent.name == "integration":
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
