"""On every visible GPU: a kernel of each module that the recipe compiled, and some of vLLM's own, against references.

The compiled file must be the one that ran: FlashInfer may not compile, and must map it. Its norms take CuTe DSL's
kernels where they can, so FLASHINFER_USE_CUDA_NORM, its own switch, asks for the compiled ones.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lib import facts
from lib.facts import Facts
from lib.report import Report

from gpu import cases, devices

if TYPE_CHECKING:
    from gpu.compare import Case

FLASHINFER = "flashinfer-python"
AOT = "flashinfer/data/aot"
SETTINGS = {"FLASHINFER_DISABLE_JIT": "1", "FLASHINFER_USE_CUDA_NORM": "1"}


def main() -> None:
    os.environ.update(SETTINGS)
    known = facts.load()
    report = Report("gpu-kernels")
    found = devices.check(known, report)
    if found:
        check(known, report, [f"cuda:{number}" for number in range(len(found))])
    report.finish()


def compiled(known: Facts) -> list[str]:
    """The FlashInfer modules that the recipe compiled ahead of time."""
    return sorted({n for c in known.components.values() if c.distribution == FLASHINFER for n in c.modules})


def check(known: Facts, report: Report, on: Sequence[str]) -> None:
    """Each module has a case, each case agrees with its reference on all devices, and the compiled file was mapped."""
    there = cases.modules()
    for name in compiled(known):
        if not report.check(
            f"case:{name}", name in there, "has cases" if name in there else f"no case: {name} is not tested"
        ):
            continue
        check_cases(report, name, cases.load(name), on)
        check_mapped(known, report, name)
    if "vllm" in known.components:
        check_cases(report, "vllm", cases.load(cases.VLLM), on)


def check_cases(report: Report, module: str, of: Sequence[Case], on: Sequence[str]) -> None:
    from gpu import compare

    for case in of:
        for dtype in case.dtypes:
            said = {}
            for device in on:
                try:
                    said[device] = compare.run(case, dtype, device)
                except Exception as error:
                    # Whatever it is, it is the kernel's; the others still have to run.
                    said[device] = (False, f"{type(error).__name__}: {error}")
            good = all(ok for ok, _ in said.values())
            shown = said if not good else dict(list(said.items())[:1])
            detail = "; ".join(f"{device}: {text}" for device, (ok, text) in shown.items() if good or not ok)
            report.check(f"{module}:{compare.name_of(case, dtype)}", good, f"{detail}; {len(on)} devices")


def check_mapped(known: Facts, report: Report, name: str) -> None:
    """The compiled module of the image, and not something else of the same name, was loaded for it."""
    file = str(known.site_packages / AOT / name / f"{name}.so")
    mapped = file in Path("/proc/self/maps").read_text()
    report.check(f"mapped:{name}", mapped, file if mapped else f"{file} was not loaded: another kernel ran")


if __name__ == "__main__":
    main()
