"""One kernel against a reference: random inputs from a seed, plain torch on the CPU, and limits by type.

The reference runs on the CPU in 32 bits, so that nothing of what is tested takes part in it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

Tensors = Mapping[str, torch.Tensor]

#: (relative, absolute) limit of one element. Half types: some roundings between input and output; the products of the
#: tests' inputs are near 1. FP8: one step of the type (3 or 2 bits of mantissa), for values between two of them.
LIMITS: Mapping[torch.dtype, tuple[float, float]] = {
    torch.float32: (1e-4, 1e-5),
    torch.float16: (4e-3, 2e-3),
    torch.bfloat16: (1.6e-2, 1.6e-2),
    torch.float8_e4m3fn: (0.126, 2**-9),
    torch.float8_e5m2: (0.251, 2**-16),
}
#: Share of an FP8 result that must be the very same number: one step everywhere would hide a wrong scale.
SAME_FP8 = 0.98


class Random:
    """Random tensors that are the same on every machine; the seed is the name of what they are for."""

    def __init__(self, name: str) -> None:
        self._generator = torch.Generator("cpu").manual_seed(zlib.crc32(name.encode()))

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.randn(shape, generator=self._generator).to(dtype)

    def uniform(self, *shape: int, low: float = -1.0, high: float = 1.0, dtype: torch.dtype) -> torch.Tensor:
        return (torch.rand(shape, generator=self._generator) * (high - low) + low).to(dtype)

    def integers(self, *shape: int, high: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        return torch.randint(high, shape, generator=self._generator).to(dtype)

    def order(self, count: int) -> torch.Tensor:
        return torch.randperm(count, generator=self._generator)


@dataclass(frozen=True)
class Case:
    """One kernel. Both functions get tensors of their own, may write into them, and name what they return.

    prepare: (random numbers, type) -> the inputs, on the CPU.
    """

    name: str
    dtypes: tuple[torch.dtype, ...]
    prepare: Callable[[Random, torch.dtype], Tensors]
    kernel: Callable[[Tensors], Tensors]
    reference: Callable[[Tensors], Tensors]


def name_of(case: Case, dtype: torch.dtype) -> str:
    return f"{case.name}[{str(dtype).removeprefix('torch.')}]"


def run(case: Case, dtype: torch.dtype, device: str) -> tuple[bool, str]:
    """Whether the kernel's result on `device` is the reference's, and how far they are apart."""
    inputs = case.prepare(Random(name_of(case, dtype)), dtype)
    want = case.reference({name: tensor.clone() for name, tensor in inputs.items()})
    got = case.kernel({name: tensor.to(device, copy=True) for name, tensor in inputs.items()})
    if device.startswith("cuda"):
        # An error of a kernel is raised here, not in the next case.
        torch.cuda.synchronize(device)
    return judge({name: tensor.cpu() for name, tensor in got.items()}, want)


def judge(got: Tensors, want: Tensors) -> tuple[bool, str]:
    """Whether two results are the same within the limits of their types; the worst difference of each tensor."""
    if got.keys() != want.keys():
        return False, f"returned {sorted(got)}, wanted {sorted(want)}"
    said = [(*_difference(got[name], want[name]), name) for name in want]
    wrong = [f"{name}: {detail}" for ok, detail, name in said if not ok]
    return not wrong, "; ".join(wrong or [f"{name}: {detail}" for _, detail, name in said])


def _difference(got: torch.Tensor, want: torch.Tensor) -> tuple[bool, str]:
    if (got.shape, got.dtype) != (want.shape, want.dtype):
        return False, f"is {got.dtype} {tuple(got.shape)}, wanted {want.dtype} {tuple(want.shape)}"
    if want.dtype not in LIMITS:
        differ = int((got != want).sum())
        return differ == 0, f"{differ} of {want.numel()} differ"
    a, b = got.float(), want.float()
    if not bool(torch.isfinite(a).all()):
        return False, f"{int((~torch.isfinite(a)).sum())} of {want.numel()} are not finite"
    relative, absolute = LIMITS[want.dtype]
    over = (a - b).abs() - (absolute + relative * b.abs())
    worst = f"largest difference {float((a - b).abs().max()):.2g}"
    if float(over.max()) > 0:
        return (
            False,
            f"{int((over > 0).sum())} of {want.numel()} differ by more than {relative:g} + {absolute:g}, {worst}",
        )
    same = float((a == b).float().mean())
    if want.dtype.itemsize == 1 and same < SAME_FP8:
        return False, f"only {same:.1%} are the very same number, {worst}"
    return True, worst
