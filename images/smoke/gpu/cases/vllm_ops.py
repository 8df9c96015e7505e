"""A few of vLLM's own kernels: norms, the gated activation, rotary embedding, and the writes into its KV caches."""

from __future__ import annotations

import torch

from gpu.cases import norm, rope
from gpu.compare import Case, Random, Tensors

HALF = (torch.float16, torch.bfloat16)
TOKENS, BLOCK, BLOCKS = 45, 16, 8
HEADS, HEAD = 4, 128
CKV, KPE = 512, 64


def rms_norm(t: Tensors) -> Tensors:
    from vllm import _custom_ops

    out = torch.empty_like(t["x"])
    _custom_ops.rms_norm(out, t["x"], t["weight"], norm.EPS)
    return {"out": out}


def fused_add_rms_norm(t: Tensors) -> Tensors:
    from vllm import _custom_ops

    _custom_ops.fused_add_rms_norm(t["x"], t["residual"], t["weight"], norm.EPS)
    return {"out": t["x"], "residual": t["residual"]}


def prepare_gate(random: Random, dtype: torch.dtype) -> Tensors:
    return {"x": random.uniform(TOKENS, 2 * 1024, low=-2.0, high=2.0, dtype=dtype)}


def silu_and_mul(t: Tensors) -> Tensors:
    # Importing it loads the kernels.
    from vllm import _custom_ops  # noqa: F401

    out = torch.empty(TOKENS, 1024, dtype=t["x"].dtype, device=t["x"].device)
    torch.ops._C.silu_and_mul(out, t["x"])
    return {"out": out}


def reference_gate(t: Tensors) -> Tensors:
    gate, up = t["x"].float().chunk(2, -1)
    return {"out": (gate / (1 + torch.exp(-gate)) * up).to(t["x"].dtype)}


def prepare_rope(random: Random, dtype: torch.dtype) -> Tensors:
    inputs = rope.prepare(random, dtype)
    # Its table has the type of the query, and its positions are 64 bits wide.
    return {**inputs, "positions": inputs["positions"].long(), "table": inputs["table"].to(dtype)}


def rotary_embedding(t: Tensors) -> Tensors:
    from vllm import _custom_ops

    _custom_ops.rotary_embedding(t["positions"], t["query"], t["key"], rope.HEAD, t["table"], True)
    return {"query": t["query"], "key": t["key"]}


def prepare_cache(random: Random, dtype: torch.dtype) -> Tensors:
    return {
        "key": random.normal(TOKENS, HEADS, HEAD, dtype=dtype),
        "value": random.normal(TOKENS, HEADS, HEAD, dtype=dtype),
        "keys": random.normal(BLOCKS, BLOCK, HEADS, HEAD, dtype=dtype),
        "values": random.normal(BLOCKS, BLOCK, HEADS, HEAD, dtype=dtype),
        "slots": random.order(BLOCKS * BLOCK)[:TOKENS],
        "one": torch.ones(1),
    }


def reshape_and_cache_flash(t: Tensors) -> Tensors:
    from vllm import _custom_ops

    _custom_ops.reshape_and_cache_flash(
        t["key"], t["value"], t["keys"], t["values"], t["slots"], "auto", t["one"], t["one"]
    )
    return {"keys": t["keys"], "values": t["values"]}


def reference_cache(t: Tensors) -> Tensors:
    for name, new in (("keys", "key"), ("values", "value")):
        t[name].view(BLOCKS * BLOCK, HEADS, HEAD)[t["slots"]] = t[new]
    return {"keys": t["keys"], "values": t["values"]}


def prepare_mla(random: Random, dtype: torch.dtype) -> Tensors:
    return {
        "ckv": random.normal(TOKENS, CKV, dtype=dtype),
        "kpe": random.normal(TOKENS, KPE, dtype=dtype),
        "cache": random.normal(BLOCKS, BLOCK, CKV + KPE, dtype=dtype),
        "slots": random.order(BLOCKS * BLOCK)[:TOKENS],
        "one": torch.ones(1),
    }


def concat_and_cache_mla(t: Tensors) -> Tensors:
    from vllm import _custom_ops

    _custom_ops.concat_and_cache_mla(t["ckv"], t["kpe"], t["cache"], t["slots"], "auto", t["one"])
    return {"cache": t["cache"]}


def reference_mla(t: Tensors) -> Tensors:
    t["cache"].view(BLOCKS * BLOCK, CKV + KPE)[t["slots"]] = torch.cat([t["ckv"], t["kpe"]], -1)
    return {"cache": t["cache"]}


CASES = (
    Case("rms_norm", HALF, norm.prepare, rms_norm, norm.reference),
    Case("fused_add_rms_norm", HALF, norm.prepare, fused_add_rms_norm, norm.reference_fused),
    Case("silu_and_mul", HALF, prepare_gate, silu_and_mul, reference_gate),
    Case("rotary_embedding", HALF, prepare_rope, rotary_embedding, lambda t: rope.reference(t, True)),
    Case("reshape_and_cache_flash", HALF, prepare_cache, reshape_and_cache_flash, reference_cache),
    Case("concat_and_cache_mla", HALF, prepare_mla, concat_and_cache_mla, reference_mla),
)
