"""FP8 indexer weights of both MTP models, with weight and scale in one load_weights call and in two."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import nn
from vllm.model_executor.model_loader.mtp_validation import disable_mtp_completeness_check
from vllm.model_executor.models.deepseek_mtp import DeepSeekMTP
from vllm.models.deepseek_v32.nvidia.mtp import DeepseekV32MTP

MODELS = (DeepSeekMTP, DeepseekV32MTP)
LAYERS = (2, 3)
SCALES = {2: 2.0, 3: 0.5}
ROWS, COLUMNS = 2, 4


class Indexer(nn.Module):
    """The fused wk + weights_proj parameter; `loads` counts what its loader was given."""

    def __init__(self) -> None:
        super().__init__()
        self.wk_weights_proj = nn.Linear(COLUMNS, ROWS, bias=False)
        self.wk_weights_proj.requires_grad_(False)
        self.loads: list[tuple[torch.Tensor, int]] = []
        self.wk_weights_proj.weight.weight_loader = lambda _param, tensor, shard: self.loads.append((tensor, shard))


def make_model(cls: type[nn.Module]) -> nn.Module:
    """A model of `cls` with nothing but two MTP layers' indexers: its constructor would need a GPU and a group."""
    model = cls.__new__(cls)
    nn.Module.__init__(model)
    model.config = SimpleNamespace(
        model_type="deepseek_v32",
        num_hidden_layers=LAYERS[0],
        num_nextn_predict_layers=len(LAYERS),
        n_routed_experts=1,
        n_shared_experts=1,
    )
    model.is_fused_shared_expert_enabled = False
    model.model = nn.Module()
    model.model.mtp_start_layer_idx = LAYERS[0]
    model.model.num_mtp_layers = len(LAYERS)
    model.model.layers = nn.ModuleDict()
    for layer in LAYERS:
        block = nn.Module()
        block.mtp_block = nn.Module()
        block.mtp_block.self_attn = nn.Module()
        block.mtp_block.self_attn.indexer = Indexer()
        model.model.layers[str(layer)] = block
    return model


def weight(layer: int) -> tuple[str, torch.Tensor]:
    name = f"model.layers.{layer}.self_attn.indexer.wk.weight"
    return name, torch.full((ROWS, COLUMNS), 3.0).to(torch.float8_e4m3fn)


def scale(layer: int) -> tuple[str, torch.Tensor]:
    name = f"model.layers.{layer}.self_attn.indexer.wk.weight_scale_inv"
    return name, torch.full((1, 1), SCALES[layer])


def load(model: nn.Module, *calls: list[tuple[str, torch.Tensor]]) -> set[str]:
    loaded: set[str] = set()
    for call in calls:
        with disable_mtp_completeness_check():
            loaded |= model.load_weights(call)
    return loaded


def parameter(layer: int) -> str:
    return f"model.layers.{layer}.mtp_block.self_attn.indexer.wk_weights_proj.weight"


def assert_loaded_once(model: nn.Module, layer: int) -> None:
    loads = model.model.layers[str(layer)].mtp_block.self_attn.indexer.loads
    assert len(loads) == 1, f"{type(model).__name__}: layer {layer} was loaded {len(loads)} times"
    tensor, shard = loads[0]
    assert shard == 0
    assert tensor.dtype is torch.bfloat16
    assert torch.equal(tensor, torch.full((ROWS, COLUMNS), 3.0 * SCALES[layer], dtype=torch.bfloat16))


def test_weight_then_scale_in_two_calls() -> None:
    for cls in MODELS:
        model = make_model(cls)
        loaded = load(model, [weight(2)], [scale(2)])
        assert_loaded_once(model, 2)
        assert loaded == {parameter(2)}


def test_scale_then_weight_in_two_calls() -> None:
    for cls in MODELS:
        model = make_model(cls)
        loaded = load(model, [scale(2)], [weight(2)])
        assert_loaded_once(model, 2)
        assert loaded == {parameter(2)}


def test_pairs_of_two_layers_are_not_mixed() -> None:
    for cls in MODELS:
        model = make_model(cls)
        loaded = load(model, [weight(2), scale(3)], [weight(3)], [scale(2)])
        assert_loaded_once(model, 2)
        assert_loaded_once(model, 3)
        assert loaded == {parameter(2), parameter(3)}


def test_two_models_do_not_share_a_buffer() -> None:
    for cls in MODELS:
        one, other = make_model(cls), make_model(cls)
        load(one, [weight(2)])
        assert load(other, [scale(2)]) == set()


def test_one_complete_call_behaves_as_before() -> None:
    for cls in MODELS:
        model = make_model(cls)
        loaded = load(model, [weight(2), scale(2), scale(3), weight(3)])
        assert_loaded_once(model, 2)
        assert_loaded_once(model, 3)
        assert loaded == {parameter(2), parameter(3)}


def test_a_complete_pair_can_be_loaded_again() -> None:
    for cls in MODELS:
        model = make_model(cls)
        load(model, [weight(2), scale(2)])
        assert load(model, [weight(2)]) == set()
        assert load(model, [scale(2)]) == {parameter(2)}


def test_a_checkpoint_without_an_mtp_layer_is_still_refused() -> None:
    for cls in MODELS:
        model = make_model(cls)
        refused = ""
        try:
            model.load_weights([weight(2), scale(2)])
        except ValueError as error:
            refused = str(error)
        assert "layer 3" in refused, f"{cls.__name__} accepted a checkpoint without layer 3"
