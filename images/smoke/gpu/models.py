"""Tiny models with random weights: what `vllm serve --load-format dummy` needs of one, written to a folder.

Attention has the head sizes of the real models, because kernels are made for them; everything else is small.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VOCABULARY = 512
#: Compute capabilities (major) for which vLLM has a sparse MLA backend: FlashMLA or FlashInfer.
SPARSE_MLA = (9, 10, 12)


@dataclass(frozen=True)
class Model:
    """A model to serve. arguments: of `vllm serve`; drafts: whether an MTP layer drafts tokens."""

    name: str
    config: dict[str, Any]
    arguments: tuple[str, ...] = ()
    drafts: bool = False


COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_act": "silu",
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "initializer_range": 0.02,
}

#: Experts and MLA as DeepSeek-V3 and GLM-5 have them: one dense layer, one with experts, one that drafts.
MLA: dict[str, Any] = {
    "hidden_size": 512,
    "intermediate_size": 1024,
    "moe_intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_nextn_predict_layers": 1,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "kv_lora_rank": 512,
    "q_lora_rank": 256,
    "qk_rope_head_dim": 64,
    "n_shared_experts": 1,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.0,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
}

DRAFTS = ("--speculative-config", json.dumps({"method": "mtp", "num_speculative_tokens": 1}))

LLAMA = Model(
    "llama",
    {
        **COMMON,
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 512,
        "intermediate_size": 1024,
        "num_hidden_layers": 2,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "mlp_bias": False,
    },
)
DEEPSEEK = Model(
    "deepseek-mtp",
    {
        **COMMON,
        **MLA,
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "qk_nope_head_dim": 128,
        "v_head_dim": 128,
    },
    DRAFTS,
    drafts=True,
)
GLM_DSA = Model(
    "glm-dsa-mtp",
    {
        **COMMON,
        **MLA,
        "architectures": ["GlmMoeDsaForCausalLM"],
        "model_type": "glm_moe_dsa",
        "qk_nope_head_dim": 192,
        "v_head_dim": 256,
        "index_head_dim": 128,
        "index_n_heads": 32,
        "index_topk": 2048,
    },
    DRAFTS,
    drafts=True,
)


def models_for(major: int) -> tuple[Model, ...]:
    """Dense attention, and MLA with experts and drafts: sparse where vLLM can for this compute capability."""
    return (LLAMA, GLM_DSA if major in SPARSE_MLA else DEEPSEEK)


def write(model: Model, folder: Path) -> None:
    """config.json, and a tokenizer that knows bytes: token 3 + n is byte n."""
    (folder / "config.json").write_text(json.dumps(model.config, indent=1))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer()))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "model_max_length": 4096,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1))


def tokenizer() -> dict[str, Any]:
    """tokenizer.json of Hugging Face's tokenizers: byte-level BPE without merges."""
    special = ["<unk>", "<s>", "</s>"]
    words = [*special, *byte_letters()]
    words += [f"<spare {number}>" for number in range(VOCABULARY - len(words))]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": i, "content": word, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
            | {"special": True}
            for i, word in enumerate(special)
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {word: number for number, word in enumerate(words)},
            "merges": [],
        },
    }


def byte_letters() -> list[str]:
    """The letter that byte-level BPE writes for each byte: itself where it can be seen, else one from 256 on."""
    seen = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    unseen = [byte for byte in range(256) if byte not in seen]
    return [chr(byte) if byte in seen else chr(256 + unseen.index(byte)) for byte in range(256)]
