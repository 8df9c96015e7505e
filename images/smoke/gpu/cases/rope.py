"""FlashInfer's `rope`: rotary embedding from a table of cosines and sines, both ways of pairing the elements."""

from __future__ import annotations

import torch

from gpu.compare import Case, Random, Tensors

TOKENS, HEADS, KEY_HEADS, HEAD, LONGEST = 37, 8, 2, 128, 512


def cos_sin(rotary: int, longest: int = LONGEST, base: float = 10000.0) -> torch.Tensor:
    """(longest, rotary) in 32 bits: cosines in the first half, sines in the second (Su et al., arXiv:2104.09864)."""
    frequency = base ** (-torch.arange(0, rotary, 2, dtype=torch.float64) / rotary)
    angle = torch.arange(longest, dtype=torch.float64)[:, None] * frequency
    return torch.cat([angle.cos(), angle.sin()], -1).float()


def rotated(x: torch.Tensor, positions: torch.Tensor, table: torch.Tensor, neox: bool) -> torch.Tensor:
    """x: (tokens, heads * HEAD). neox: halves are pairs, else neighbours are."""
    heads = x.view(x.shape[0], -1, HEAD).float()
    cosine, sine = table[positions.long()].float().unsqueeze(1).chunk(2, -1)
    first, second = heads.chunk(2, -1) if neox else (heads[..., ::2], heads[..., 1::2])
    turned = (first * cosine - second * sine, second * cosine + first * sine)
    out = torch.cat(turned, -1) if neox else torch.stack(turned, -1).flatten(-2)
    return out.reshape(x.shape).to(x.dtype)


def prepare(random: Random, dtype: torch.dtype) -> Tensors:
    return {
        "positions": random.integers(TOKENS, high=LONGEST, dtype=torch.int32),
        "query": random.uniform(TOKENS, HEADS * HEAD, dtype=dtype),
        "key": random.uniform(TOKENS, KEY_HEADS * HEAD, dtype=dtype),
        "table": cos_sin(HEAD),
    }


def apply(t: Tensors, neox: bool) -> Tensors:
    import flashinfer

    query, key = flashinfer.rope.apply_rope_with_cos_sin_cache(
        t["positions"], t["query"], t["key"], HEAD, t["table"], is_neox=neox
    )
    return {"query": query, "key": key}


def reference(t: Tensors, neox: bool) -> Tensors:
    return {name: rotated(t[name], t["positions"], t["table"], neox) for name in ("query", "key")}


CASES = tuple(
    Case(
        f"apply_rope_with_cos_sin_cache({'neox' if neox else 'interleaved'})",
        (torch.float16, torch.bfloat16),
        prepare,
        lambda t, neox=neox: apply(t, neox),  # type: ignore[misc]
        lambda t, neox=neox: reference(t, neox),  # type: ignore[misc]
    )
    for neox in (True, False)
)
