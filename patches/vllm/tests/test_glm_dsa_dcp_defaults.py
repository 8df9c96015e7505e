"""DCP defaults of GLM DSA models, per platform and attention backend, with the platform patched."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import vllm.platforms
from vllm.config.attention import AttentionConfig
from vllm.config.cache import CacheConfig
from vllm.config.parallel import ParallelConfig
from vllm.model_executor.models.config import GlmMoeDsaForCausalLM
from vllm.platforms.interface import DeviceCapability, Platform, PlatformEnum


def platform(kind: PlatformEnum, capability: tuple[int, int]) -> Platform:
    class FakePlatform(Platform):
        _enum = kind

        @classmethod
        def get_device_capability(cls, device_id: int = 0) -> DeviceCapability:
            return DeviceCapability(*capability)

    return FakePlatform()


SM90 = platform(PlatformEnum.CUDA, (9, 0))
SM100 = platform(PlatformEnum.CUDA, (10, 0))
SM103 = platform(PlatformEnum.CUDA, (10, 3))
SM120 = platform(PlatformEnum.CUDA, (12, 0))
# gfx942 reports 9.4: an SM90 check that forgets the vendor takes it for Hopper.
GFX942 = platform(PlatformEnum.ROCM, (9, 4))


def dcp_options(
    on: Platform, *, parallel: dict[str, Any] | None = None, attention: dict[str, Any] | None = None
) -> tuple[str | None, bool | None]:
    """Comm backend and q replication after the model's hook and then the stock defaults, as VllmConfig calls them."""
    config = SimpleNamespace(
        cache_config=CacheConfig(),
        parallel_config=ParallelConfig(**(parallel or {})),
        attention_config=AttentionConfig(**(attention or {})),
        speculative_config=None,
    )
    with patch.object(vllm.platforms, "current_platform", on):
        GlmMoeDsaForCausalLM.verify_and_update_config(config)
    config.parallel_config.set_dcp_defaults()
    return config.parallel_config.dcp_comm_backend, config.parallel_config.dcp_q_replicate


def test_hopper_keeps_the_stock_defaults() -> None:
    assert dcp_options(SM90) == ("ag_rs", False)


def test_blackwell_gets_a2a_and_replication() -> None:
    assert dcp_options(SM100) == ("a2a", True)
    assert dcp_options(SM103) == ("a2a", True)
    assert dcp_options(SM120) == ("a2a", True)


def test_flashmla_sparse_keeps_the_stock_defaults_on_blackwell() -> None:
    assert dcp_options(SM100, attention={"backend": "FLASHMLA_SPARSE"}) == ("ag_rs", False)


def test_another_backend_on_blackwell_gets_a2a() -> None:
    assert dcp_options(SM100, attention={"backend": "FLASHINFER_MLA_SPARSE"}) == ("a2a", True)


def test_a_backend_for_the_mla_kind_goes_before_the_global_one() -> None:
    sparse = {"backend_per_kind": {"mla_attention": "FLASHMLA_SPARSE"}}
    assert dcp_options(SM100, attention=sparse) == ("ag_rs", False)
    other = {"backend": "FLASHMLA_SPARSE", "backend_per_kind": {"mla_attention": "FLASHINFER_MLA_SPARSE"}}
    assert dcp_options(SM100, attention=other) == ("a2a", True)


def test_options_of_the_user_win_on_hopper() -> None:
    assert dcp_options(SM90, parallel={"dcp_comm_backend": "a2a"}) == ("a2a", False)
    assert dcp_options(SM90, parallel={"dcp_q_replicate": True}) == ("ag_rs", True)


def test_options_of_the_user_win_on_blackwell() -> None:
    assert dcp_options(SM100, parallel={"dcp_comm_backend": "ag_rs"}) == ("ag_rs", True)
    assert dcp_options(SM100, parallel={"dcp_q_replicate": False}) == ("a2a", False)
    forced = {"backend": "FLASHMLA_SPARSE"}
    assert dcp_options(SM100, parallel={"dcp_comm_backend": "a2a"}, attention=forced) == ("a2a", False)


def test_rocm_is_unchanged() -> None:
    assert dcp_options(GFX942) == ("a2a", True)
