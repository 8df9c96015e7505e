"""The plan: everything that will happen for one recipe and architecture, with keys.

Pure: plain data in, plain data out; no clock, no disk, no network. A key is the hash of all inputs of one
step and of nothing else; its inputs stay readable by name, so that a difference can be named.
"""

from __future__ import annotations

from graft.plan.components import BUILD_EPOCH, in_order
from graft.plan.files import GPU_TIER, SCRIPTS_OF, SMOKE_FILES, ImageSources, files_of
from graft.plan.keys import KEY_LENGTH, Keyed, first_difference
from graft.plan.make import CUDA_PREFIXES, plan, versioned
from graft.plan.model import (
    CHANNELS,
    ENTRYPOINT,
    WORKDIR,
    Build,
    Layer,
    Overlay,
    Plan,
    compiled_distribution,
    launch_facts,
)
from graft.plan.places import INSTALLED_AT, VENV, image_env, installed_path, patch_test, site_packages, source_path

__all__ = [
    "BUILD_EPOCH",
    "CHANNELS",
    "CUDA_PREFIXES",
    "ENTRYPOINT",
    "GPU_TIER",
    "INSTALLED_AT",
    "KEY_LENGTH",
    "SCRIPTS_OF",
    "SMOKE_FILES",
    "VENV",
    "WORKDIR",
    "Build",
    "ImageSources",
    "Keyed",
    "Layer",
    "Overlay",
    "Plan",
    "compiled_distribution",
    "files_of",
    "first_difference",
    "image_env",
    "in_order",
    "installed_path",
    "launch_facts",
    "patch_test",
    "plan",
    "site_packages",
    "source_path",
    "versioned",
]
