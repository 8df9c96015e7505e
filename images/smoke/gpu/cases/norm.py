"""FlashInfer's `norm`: RMSNorm, alone, after a residual, and with quantized output."""

from __future__ import annotations

import torch

from gpu.compare import Case, Random, Tensors

EPS = 1e-6
ROWS, HIDDEN = 33, 1024
HALF = (torch.float16, torch.bfloat16)
FP8 = torch.float8_e4m3fn


def prepare(random: Random, dtype: torch.dtype) -> Tensors:
    return {
        "x": random.normal(ROWS, HIDDEN, dtype=dtype),
        "residual": random.normal(ROWS, HIDDEN, dtype=dtype),
        "weight": random.uniform(HIDDEN, low=0.5, high=1.5, dtype=dtype),
        "scale": torch.tensor([0.0375]),
    }


def rms(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """In 32 bits: x / sqrt(mean(x^2) + eps) * weight (Zhang and Sennrich, arXiv:1910.07467)."""
    x = x.float()
    return x / torch.sqrt(x.square().mean(-1, keepdim=True) + EPS) * weight.float()


def quantized(value: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    largest = torch.finfo(FP8).max
    return (value / scale).clamp(-largest, largest).to(FP8)


def rmsnorm(t: Tensors) -> Tensors:
    import flashinfer

    return {"out": flashinfer.norm.rmsnorm(t["x"], t["weight"], EPS)}


def fused_add_rmsnorm(t: Tensors) -> Tensors:
    import flashinfer

    flashinfer.norm.fused_add_rmsnorm(t["x"], t["residual"], t["weight"], EPS)
    return {"out": t["x"], "residual": t["residual"]}


def rmsnorm_quant(t: Tensors) -> Tensors:
    import flashinfer

    out = torch.empty_like(t["x"], dtype=FP8)
    flashinfer.norm.rmsnorm_quant(out, t["x"], t["weight"], t["scale"], EPS)
    return {"out": out}


def fused_add_rmsnorm_quant(t: Tensors) -> Tensors:
    import flashinfer

    out = torch.empty_like(t["x"], dtype=FP8)
    flashinfer.norm.fused_add_rmsnorm_quant(out, t["x"], t["residual"], t["weight"], t["scale"], EPS)
    return {"out": out, "residual": t["residual"]}


def reference(t: Tensors) -> Tensors:
    return {"out": rms(t["x"], t["weight"]).to(t["x"].dtype)}


def reference_fused(t: Tensors) -> Tensors:
    total = t["x"].float() + t["residual"].float()
    return {"out": rms(total, t["weight"]).to(t["x"].dtype), "residual": total.to(t["x"].dtype)}


def reference_quant(t: Tensors) -> Tensors:
    return {"out": quantized(rms(t["x"], t["weight"]), t["scale"])}


def reference_fused_quant(t: Tensors) -> Tensors:
    total = t["x"].float() + t["residual"].float()
    return {"out": quantized(rms(total, t["weight"]), t["scale"]), "residual": total.to(t["x"].dtype)}


CASES = (
    Case("rmsnorm", HALF, prepare, rmsnorm, reference),
    Case("fused_add_rmsnorm", HALF, prepare, fused_add_rmsnorm, reference_fused),
    Case("rmsnorm_quant", HALF, prepare, rmsnorm_quant, reference_quant),
    Case("fused_add_rmsnorm_quant", HALF, prepare, fused_add_rmsnorm_quant, reference_fused_quant),
)
