"""Kernels and their references. A file is named after the FlashInfer module that it tests; vllm_ops.py is vLLM's."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpu.compare import Case

VLLM = "vllm_ops"


def modules() -> set[str]:
    """The FlashInfer modules that there are cases for."""
    return {path.stem for path in Path(__file__).parent.glob("[a-z]*.py")} - {VLLM}


def load(name: str) -> Sequence[Case]:
    """The cases of a module, or of vLLM's own kernels. Importing them needs torch, running them what they call."""
    cases: Sequence[Case] = importlib.import_module(f"gpu.cases.{name}").CASES
    return cases
