"""What all tests share."""

from __future__ import annotations

from hypothesis import settings

# No test asserts a time: on a busy machine a slow example says nothing of the code.
settings.register_profile("graft", deadline=None)
settings.load_profile("graft")
