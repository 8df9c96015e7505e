"""FlashInfer's `topk`: the largest of each row. All values differ, so there is one right answer."""

from __future__ import annotations

import torch

from gpu.compare import Case, Random, Tensors

ROWS, WIDTH, K = 5, 20011, 64


def prepare(random: Random, dtype: torch.dtype) -> Tensors:
    return {"values": torch.stack([random.order(WIDTH).to(dtype) for _ in range(ROWS)])}


def top_k(t: Tensors) -> Tensors:
    import flashinfer

    values, indices = flashinfer.topk.top_k(t["values"], K, sorted=True)
    return {"values": values, "indices": indices.long()}


def reference(t: Tensors) -> Tensors:
    indices = t["values"].argsort(-1, descending=True)[:, :K]
    return {"values": t["values"].gather(-1, indices), "indices": indices}


CASES = (Case("top_k", (torch.float32,), prepare, top_k, reference),)
