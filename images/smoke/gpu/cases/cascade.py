"""FlashInfer's `cascade`: two parts of an attention are merged by their log-sum-exp, which is to the base 2 there."""

from __future__ import annotations

import torch

from gpu.compare import Case, Random, Tensors

TOKENS, HEADS, HEAD = 29, 8, 128


def prepare(random: Random, dtype: torch.dtype) -> Tensors:
    return {
        "v_a": random.uniform(TOKENS, HEADS, HEAD, dtype=dtype),
        "s_a": random.normal(TOKENS, HEADS),
        "v_b": random.uniform(TOKENS, HEADS, HEAD, dtype=dtype),
        "s_b": random.normal(TOKENS, HEADS),
    }


def merge_state(t: Tensors) -> Tensors:
    import flashinfer

    values, sums = flashinfer.cascade.merge_state(t["v_a"], t["s_a"], t["v_b"], t["s_b"])
    return {"values": values, "sums": sums}


def reference(t: Tensors) -> Tensors:
    a, b = torch.exp2(t["s_a"]), torch.exp2(t["s_b"])
    values = (t["v_a"].float() * a[..., None] + t["v_b"].float() * b[..., None]) / (a + b)[..., None]
    return {"values": values.to(t["v_a"].dtype), "sums": torch.log2(a + b)}


CASES = (Case("merge_state", (torch.float16, torch.bfloat16), prepare, merge_state, reference),)
