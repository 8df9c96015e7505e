"""The GPUs that this process sees. A test that was asked to run on one and sees none is red, never skipped."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lib.facts import Facts
from lib.report import Report

DRIVER = Path("/proc/driver/nvidia/version")


@dataclass(frozen=True)
class Gpu:
    """One device: its name and its compute capability."""

    name: str
    capability: tuple[int, int]

    def runs(self, capability: str, exact: bool) -> bool:
        """Whether code for `capability` (as "9.0") runs: the same major and no newer minor, or exactly that chip."""
        major, minor = (int(part) for part in capability.split("."))
        return (
            self.capability == (major, minor) if exact else self.capability[0] == major and self.capability[1] >= minor
        )


def visible() -> tuple[list[Gpu], str]:
    """The devices that torch sees, and why there is none."""
    import torch

    if not torch.cuda.is_available():
        return [], f"torch {torch.__version__} sees no CUDA device; {driver()}"
    count = torch.cuda.device_count()
    return [Gpu(torch.cuda.get_device_name(i), torch.cuda.get_device_capability(i)) for i in range(count)], ""


def check(known: Facts, report: Report) -> list[Gpu]:
    """The visible GPUs; a check for each thing that must hold of them. Empty, and red, when there is none."""
    found, why = visible()
    return judge(known, report, found, why)


def judge(known: Facts, report: Report, found: Sequence[Gpu], why: str) -> list[Gpu]:
    """As `check`, for devices that are known."""
    names = ", ".join(f"{found_one.name} ({found_one.capability[0]}.{found_one.capability[1]})" for found_one in found)
    if not report.check("devices", bool(found), f"{len(found)} x {names}; {driver()}" if found else why):
        return []
    exact = known.nvcc_arch.endswith("a")
    wrong = [gpu.name for gpu in found if not gpu.runs(known.compute_capability, exact)]
    detail = f"code for {known.nvcc_arch} does not run on: {', '.join(wrong)}"
    fits = report.check("capability", not wrong, detail if wrong else f"{known.nvcc_arch} runs on all of them")
    return list(found) if fits else []


def driver() -> str:
    """The kernel driver's version, for the record."""
    if not DRIVER.exists():
        return "no NVIDIA kernel driver is loaded"
    version = re.search(r"\s(\d+\.\d[\d.]*)\s", DRIVER.read_text())
    return f"driver {version[1]}" if version else "driver of unknown version"
