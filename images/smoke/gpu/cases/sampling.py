"""FlashInfer's `sampling`: the softmax with a temperature that sampling starts from. What it draws is random."""

from __future__ import annotations

import torch

from gpu.compare import Case, Random, Tensors

ROWS, VOCABULARY, TEMPERATURE = 7, 5003, 0.7


def prepare(random: Random, dtype: torch.dtype) -> Tensors:
    return {"logits": 3 * random.normal(ROWS, VOCABULARY, dtype=dtype)}


def softmax(t: Tensors) -> Tensors:
    import flashinfer

    return {"probabilities": flashinfer.sampling.softmax(t["logits"], temperature=TEMPERATURE)}


def reference(t: Tensors) -> Tensors:
    scaled = t["logits"].double() / TEMPERATURE
    powers = torch.exp(scaled - scaled.amax(-1, keepdim=True))
    # Near 1 for the largest of a row, so that the limits mean something for small ones too.
    return {"probabilities": (powers / powers.sum(-1, keepdim=True)).float()}


CASES = (Case("softmax", (torch.float32,), prepare, softmax, reference),)
