"""FlashInfer's `page`: new keys and values are put where the page table says; nothing else is touched."""

from __future__ import annotations

import torch

from gpu.compare import Case, Random, Tensors

PAGE, PAGES = 16, 24
#: New tokens of each request, and its pages; the last page is filled as far as the new tokens reach.
NEW = (19, 1, 40)
HEADS, HEAD = 4, 128
# The only sizes that the kernel for MLA has.
CKV, KPE = 512, 64


def table(random: Random) -> dict[str, torch.Tensor]:
    """A page table with pages in random order, and the request and position of every new token."""
    needed = [-(-count // PAGE) for count in NEW]
    indptr = torch.tensor([0, *torch.tensor(needed).cumsum(0).tolist()], dtype=torch.int32)
    return {
        "indices": random.order(PAGES)[: sum(needed)].to(torch.int32),
        "indptr": indptr,
        "last": torch.tensor([(count - 1) % PAGE + 1 for count in NEW], dtype=torch.int32),
        "request": torch.repeat_interleave(torch.arange(len(NEW)), torch.tensor(NEW)).to(torch.int32),
        "position": torch.cat([torch.arange(count) for count in NEW]).to(torch.int32),
    }


def prepare(random: Random, dtype: torch.dtype) -> Tensors:
    return {
        **table(random),
        "key": random.normal(sum(NEW), HEADS, HEAD, dtype=dtype),
        "value": random.normal(sum(NEW), HEADS, HEAD, dtype=dtype),
        "keys": random.normal(PAGES, PAGE, HEADS, HEAD, dtype=dtype),
        "values": random.normal(PAGES, PAGE, HEADS, HEAD, dtype=dtype),
    }


def prepare_mla(random: Random, dtype: torch.dtype) -> Tensors:
    return {
        **table(random),
        "key": random.normal(sum(NEW), CKV, dtype=dtype),
        "value": random.normal(sum(NEW), KPE, dtype=dtype),
        "keys": random.normal(PAGES, PAGE, CKV, dtype=dtype),
        "values": random.normal(PAGES, PAGE, KPE, dtype=dtype),
    }


def append(t: Tensors) -> Tensors:
    import flashinfer

    flashinfer.page.append_paged_kv_cache(
        t["key"],
        t["value"],
        t["request"],
        t["position"],
        (t["keys"], t["values"]),
        t["indices"],
        t["indptr"],
        t["last"],
        kv_layout="NHD",
    )
    return {"keys": t["keys"], "values": t["values"]}


def append_mla(t: Tensors) -> Tensors:
    import flashinfer

    flashinfer.page.append_paged_mla_kv_cache(
        t["key"],
        t["value"],
        t["request"],
        t["position"],
        t["keys"],
        t["values"],
        t["indices"],
        t["indptr"],
        t["last"],
    )
    return {"keys": t["keys"], "values": t["values"]}


def reference(t: Tensors) -> Tensors:
    for token, (request, position) in enumerate(zip(t["request"].tolist(), t["position"].tolist(), strict=True)):
        page = int(t["indices"][int(t["indptr"][request]) + position // PAGE])
        t["keys"][page, position % PAGE] = t["key"][token]
        t["values"][page, position % PAGE] = t["value"][token]
    return {"keys": t["keys"], "values": t["values"]}


CASES = (
    Case("append_paged_kv_cache", (torch.float16, torch.bfloat16), prepare, append, reference),
    Case("append_paged_mla_kv_cache", (torch.float16, torch.bfloat16), prepare_mla, append_mla, reference),
)
