"""Which architectures may be packed: asked of the model itself, and answered before a number is wrong."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

from stages import modelio
from stages.errors import UsageError
from stages.train import attention
from stages.train.config import TrainConfig
from stages.train.logprobs import hidden_states
from stages.train.models import prepare
from stages.train.outlook import _shrunk, refusal
from stages.train.packable import require_length, require_packable
from stages.train.packing import pack
from tests.stages.train.strangers import REFUSED, TRAINED, configured, stranger
from tests.stages.train.world import TrainWorld


@pytest.mark.parametrize("name", TRAINED)
def test_what_packing_computes_is_accepted_and_published_as_it_came(name: str, tmp_path: Path) -> None:
    """Both dtypes: the parent's tensors and no other (a tied head once), every bit; transformers loads it."""
    model = stranger(*TRAINED[name])
    model.save_pretrained(tmp_path)
    model = modelio.load_model(tmp_path, attention=attention.register())
    require_packable(model)
    assert model.config._attn_implementation == attention.NAME
    parent = load_file(tmp_path / "model.safetensors")
    for dtype in ("float32", "bfloat16"):
        child = tmp_path / dtype
        modelio.save_checkpoint(model, child, companions=tmp_path, dtype=dtype)
        found = load_file(child / "model.safetensors")
        assert found.keys() == parent.keys()
        assert all(value.equal(parent[name].to(getattr(torch, dtype))) for name, value in found.items())
        _, info = AutoModelForCausalLM.from_pretrained(child, output_loading_info=True)
        assert not any(info.values())


@pytest.mark.parametrize("why", REFUSED)
def test_what_packing_does_not_compute_is_refused_by_name(why: str) -> None:
    model_type, changes, message = REFUSED[why]
    model = stranger(model_type, changes)
    model.set_attn_implementation(attention.register())
    with pytest.raises(UsageError, match=message):
        require_packable(model)


def test_a_model_with_a_list_of_attentions_of_its_own_is_no_damaged_one(tmp_path: Path) -> None:
    shape = {"vocab_size": 64, "n_embd": 32, "n_layer": 1, "n_head": 4, "rotary_dim": 4, "n_positions": 64}
    AutoModelForCausalLM.from_config(AutoConfig.for_model("gptj", **shape)).save_pretrained(tmp_path)
    with pytest.raises(UsageError, match="not packed"):
        modelio.load_model(tmp_path, attention=attention.register())


@pytest.mark.parametrize("why", REFUSED)
def test_what_will_be_refused_is_told_by_the_configuration_alone(why: str, tmp_path: Path) -> None:
    model_type, changes, message = REFUSED[why]
    configured(model_type, changes).save_pretrained(tmp_path)
    assert re.search(message, refusal(tmp_path) or "")


def test_quantised_weights_are_refused_by_the_configuration_alone(world: TrainWorld, tmp_path: Path) -> None:
    """transformers may load them as floats; what is written then is not what the configuration says."""
    quantised = configured(*TRAINED["llama-tied"])
    quantised.quantization_config = {"quant_method": "fp8"}
    quantised.save_pretrained(tmp_path)
    assert "quantised weights (fp8)" in (refusal(tmp_path) or "")
    model = world.model(world.live)
    model.config.quantization_config = {"quant_method": "fp8"}
    world.promote(world.checkpoint(0, model=model).digest)
    world.experience(world.episodes(8))
    with pytest.raises(UsageError, match=r"quantised weights \(fp8\)"):
        world.train()


@pytest.mark.parametrize("name", TRAINED)
def test_what_will_be_trained_is_not_told_otherwise(name: str, tmp_path: Path) -> None:
    configured(*TRAINED[name]).save_pretrained(tmp_path)
    assert refusal(tmp_path) is None


def test_what_lies_deeper_or_is_large_or_unheard_of_is_left_to_the_run(tmp_path: Path) -> None:
    """The rarer kind of layer is among the two that are asked; without a model there is no answer."""
    kinds = ["full_attention"] * 5 + ["sliding_attention"]
    window = {"num_hidden_layers": 6, "layer_types": kinds, "sliding_window": 8}
    assert _shrunk(configured("qwen3", window).to_dict(), 2)["layer_types"] == [kinds[0], kinds[5]]
    configured("qwen3", {"hidden_size": 100_000, "intermediate_size": 100_000}).save_pretrained(tmp_path)
    assert refusal(tmp_path) is None
    (tmp_path / "config.json").write_text('{"model_type": "nobodys"}')
    assert refusal(tmp_path) is None


def test_a_run_asks_before_it_scores(world: TrainWorld, monkeypatch: Any) -> None:
    """A leak between the sequences of a pack, in a model whose configuration says nothing of it."""
    world.experience(world.episodes(8))
    from transformers.models.qwen2.modeling_qwen2 import Qwen2MLP

    plain = Qwen2MLP.forward
    monkeypatch.setattr(Qwen2MLP, "forward", lambda self, x: plain(self, x + x.cumsum(1).roll(1, 1)))
    with pytest.raises(UsageError, match="other logits in a pack than alone"):
        world.train()


def test_rotary_positions_that_change_with_the_length_are_refused_where_they_would() -> None:
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
    config = AutoConfig.for_model("llama", max_position_embeddings=64, rope_parameters=rope)
    require_length(config, 64)
    with pytest.raises(UsageError, match="beyond 64 tokens; the longest sequence has 65"):
        require_length(config, 65)
    require_length(AutoConfig.for_model("llama", max_position_embeddings=64), 65)
    factors = {
        "rope_type": "longrope",
        "short_factor": [1.0] * 4,
        "long_factor": [2.0] * 4,
        "rope_theta": 1e4,
    }
    shape = {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 4}
    phi = AutoConfig.for_model(
        "phi3",
        original_max_position_embeddings=32,
        max_position_embeddings=64,
        rope_parameters=factors,
        **shape,
    )
    with pytest.raises(UsageError, match="longrope change with the length beyond 32"):
        require_length(phi, 33)


def test_layers_that_are_computed_again_drop_nothing_out() -> None:
    """OPT's layers drop out by themselves, whatever modules they hold."""
    model = stranger("opt", {"ffn_dim": 48, "word_embed_proj_dim": 32, "dropout": 0.5})
    model.set_attn_implementation(attention.register())
    packed = pack([np.arange(20, dtype=np.int32), np.arange(30, 40, dtype=np.int32)])
    before = hidden_states(model, packed)
    prepare(model, TrainConfig(activation_checkpointing="on"))
    assert hidden_states(model, packed).equal(before)


def test_a_model_without_checkpointing_is_told_so() -> None:
    model = stranger("jetmoe", {"num_local_experts": 2})
    prepare(model, TrainConfig())
    with pytest.raises(UsageError, match="JetMoeForCausalLM cannot compute its layers again"):
        prepare(model, TrainConfig(activation_checkpointing="on"))
