"""What all tests share."""

from __future__ import annotations

import signal

from hypothesis import settings

# No test asserts a time: on a busy machine a slow example says nothing of the code.
settings.register_profile("graft", deadline=None)
settings.load_profile("graft")

# A shell starts its background jobs with interrupts ignored, and every process that a test starts would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
