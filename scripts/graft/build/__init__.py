"""From a plan to a candidate: contexts on disk, one buildx call per target, the image id on success.

The image is never named here: its identity is the id that buildx reports when it exits 0.
"""

from __future__ import annotations

from graft.build.command import BuildCommand, build_target, by_hand, command_of, image_id
from graft.build.components import build_components, new_entries, shared_context
from graft.build.contexts import Inputs, place_built, prepare_contexts
from graft.build.log import Measured, measured, stage_seconds

__all__ = [
    "BuildCommand",
    "Inputs",
    "Measured",
    "build_components",
    "build_target",
    "by_hand",
    "command_of",
    "image_id",
    "measured",
    "new_entries",
    "place_built",
    "prepare_contexts",
    "shared_context",
    "stage_seconds",
]
