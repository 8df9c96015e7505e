"""The tests on GPUs can run in this image, as far as that is seen without one, so that no GPU is rented to find out.

Every compiled module has a case; every case's reference runs with the image's torch, agrees with itself and refuses a
result that is a little off; and two ranks of the all-reduce meet and add up, over gloo, which needs no GPU.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from gpu import cases, kernels, nccl
from lib import facts
from lib.facts import Facts
from lib.report import Report

if TYPE_CHECKING:
    from gpu.compare import Case, Tensors

RANKS = 2


def main() -> None:
    known = facts.load()
    report = Report("gpu-ready")
    with ThreadPoolExecutor(1) as pool:
        ranks = pool.submit(nccl.group, RANKS, "gloo", "cpu")
        check_cases(known, report)
        nccl.check_sums(report, ranks.result())
    report.finish()


def check_cases(known: Facts, report: Report) -> None:
    there = cases.modules()
    modules = kernels.compiled(known)
    missing = [name for name in modules if name not in there]
    report.check("cases", not missing, f"no case for: {', '.join(missing)}" if missing else f"for {', '.join(modules)}")
    for name in [*(name for name in modules if name in there), *([cases.VLLM] if "vllm" in known.components else [])]:
        tried = cases.load(name)
        wrong = [problem for case in tried for problem in problems(case)]
        kinds = sum(len(case.dtypes) for case in tried)
        report.check(
            f"reference:{name}", not wrong, "; ".join(wrong) or f"{len(tried)} kernels, {kinds} with types, on the CPU"
        )


def problems(case: Case) -> Sequence[str]:
    """What is wrong with a case: its reference does not agree with itself, or it takes something else for right."""
    from gpu import compare

    found = []
    for dtype in case.dtypes:
        for kernel, wanted in ((case.reference, True), (lambda t: changed(case.reference(t)), False)):
            ok, detail = compare.run(dataclasses.replace(case, kernel=kernel), dtype, "cpu")
            if ok is not wanted:
                found.append(f"{compare.name_of(case, dtype)} {'refuses' if wanted else 'takes'} {detail}")
    return found


def changed(tensors: Tensors) -> Tensors:
    """Every number off by a quarter, or by one: two steps of the coarsest type."""
    return {
        name: (tensor.float() * 1.25).to(tensor.dtype) if tensor.dtype.is_floating_point else tensor + 1
        for name, tensor in tensors.items()
    }


if __name__ == "__main__":
    main()
