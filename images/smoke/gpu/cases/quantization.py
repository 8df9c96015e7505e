"""FlashInfer's `quantization`: bits are packed into bytes."""

from __future__ import annotations

import torch

from gpu.compare import Case, Random, Tensors

# The last byte is not full.
BITS = 8 * 517 + 3


def prepare(random: Random, dtype: torch.dtype) -> Tensors:
    return {"bits": random.integers(BITS, high=2, dtype=dtype)}


def packbits(t: Tensors) -> Tensors:
    import flashinfer

    return {order: flashinfer.quantization.packbits(t["bits"], bitorder=order) for order in ("big", "little")}


def reference(t: Tensors) -> Tensors:
    padded = torch.cat([t["bits"].long(), torch.zeros(-BITS % 8, dtype=torch.int64)]).view(-1, 8)
    weights = 2 ** torch.arange(8)
    return {
        "big": (padded * weights.flip(0)).sum(-1).to(torch.uint8),
        "little": (padded * weights).sum(-1).to(torch.uint8),
    }


CASES = (Case("packbits", (torch.bool,), prepare, packbits, reference),)
