"""Build kinds: which stage builds a component, what it is told, and what it would download if it could.

build.yaml says what each kind requires; this says how it is built.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from graft.errors import BadInput


@dataclass(frozen=True)
class Kind:
    """One build kind.

    stage:   the file of images/stages/ that builds it, without `build-`.
    told:    environment of every build of the kind; what the recipe says wins.
    sources: variable -> what its build downloads when the variable does not name a source tree.
    refused: lines (regular expressions) of its configure log that mean a part of it would be missing.
    sets:    name -> the modules that it stands for in a recipe's `modules`; a kind without sets compiles no modules.
    no_use:  keys of a component that its stage does nothing with.
    """

    stage: str
    is_python: bool = True
    told: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    refused: tuple[str, ...] = ()
    sets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    no_use: tuple[str, ...] = ()


KINDS: Mapping[str, Kind] = {
    # Out of `add_misc` in flashinfer/aot.py of flashinfer-python 0.7.0.post1: what is compiled for every architecture
    # and takes no choice of dtypes, head sizes or variants. The rest of that file has no module of one name.
    "flashinfer-aot": Kind(
        "flashinfer-aot",
        sets={
            "minimal": ("norm", "page", "rope"),
            "serving": ("cascade", "norm", "page", "quantization", "rope", "sampling", "topk"),
            "all": ("api_log_stats", "cascade", "mhc", "norm", "page", "quantization", "rope", "sampling", "topk"),
        },
        no_use=("accepts", "build_env", "family", "needs", "sources"),
    ),
    "python": Kind("python"),
    "make": Kind("make", is_python=False),
    "nccl": Kind("make", is_python=False),
    # Its setup.py would otherwise look for a wheel to download, and put a commit that is not there into the version.
    "deepgemm": Kind("python", told={"DG_FORCE_BUILD": "1", "DG_USE_LOCAL_VERSION": "0"}),
    # CMakeLists.txt and cmake/external_projects/ of vLLM 0.32.0. Its Rust front end is left out when there is no cargo.
    "vllm": Kind(
        "python",
        told={"VLLM_TARGET_DEVICE": "cuda", "VLLM_USE_PRECOMPILED": "0", "VLLM_SKIP_VERSION_SUFFIX": "1"},
        sources={
            "VLLM_CUTLASS_SRC_DIR": "github.com/nvidia/cutlass v4.7.1",
            "TRITON_KERNELS_SRC_DIR": "python/triton_kernels/triton_kernels of github.com/triton-lang/triton v3.5.1",
            "DEEPGEMM_SRC_DIR": "github.com/vllm-project/DeepGEMM 1e1842a833699298f7afc02eefb2ed168fff6938",
            "DEEPSELECT_SRC_DIR": "github.com/vllm-project/DeepSelect d96d33afe1fab0d6066da49cdc91e64c2bee65ea",
            "FMHA_SM100_SRC_DIR": "github.com/vllm-project/MSA 968061ab16cb14991a5c7d4c0e8eabf531be0dcf",
            "FLASH_MLA_SRC_DIR": "github.com/vllm-project/FlashMLA 0eee43b12f034b657133cf2afca6a72ebb6efccf",
            "FLASH_KDA_SRC_DIR": "github.com/vllm-project/FlashKDA 17a037d98da546deb4591e967cf961a43c034d8b",
            "QUTLASS_SRC_DIR": "github.com/IST-DASLab/qutlass e74319e3405ce6d71965732880f5dc1f52371f64",
            "TML_FA4_SRC_DIR": "github.com/vllm-project/tml-fa4 75765e76a9c2c012c1f6ecd64577eb646eb4d303",
            "VLLM_FLASH_ATTN_SRC_DIR": (
                "github.com/vllm-project/flash-attention 9cd61de38763d712bb6ce56e2a02cc2bf718c89f"
            ),
        },
        refused=(r"Not building .+ as ", r" will not compile: "),
    ),
}


def modules_of(kind: str | None, named: Iterable[str]) -> tuple[str, ...]:
    """The modules that a recipe names, each once: a set stands for those in it."""
    known = KINDS.get(kind or "")
    sets = known.sets if known is not None else {}
    return tuple(dict.fromkeys(module for name in named for module in sets.get(name, (name,))))


def kind_of(name: str) -> Kind:
    """Raises BadInput for a kind that nothing knows how to build."""
    if name not in KINDS:
        raise BadInput(
            f"build kind {name!r} is in build.yaml, and Graft does not know how to build it",
            where="build.yaml: builds",
            cure=f"it knows: {', '.join(KINDS)}",
        )
    return KINDS[name]
