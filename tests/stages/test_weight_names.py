"""A line's first checkpoint has the tensors that its children will have; no value changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from stages import modelio, weight_names
from stages.errors import IntegrityError
from stages.init import init_model
from tests.stages.train.moe import ARCHITECTURES, moe_model
from tests.stages.train.strangers import TRAINED, stranger
from tests.stages.train.tiny import tiny_model, write_checkpoint

Weights = dict[str, torch.Tensor]


def of_the_hub(weights: Weights) -> Weights:
    """openai-community/gpt2: no prefix, and causal masks."""
    plain = {name.removeprefix("transformer."): value for name, value in weights.items()}
    return plain | {f"h.{n}.attn.bias": torch.ones(1, 1, 8, 8).tril() for n in range(2)}


def of_an_old_llama(weights: Weights) -> Weights:
    return weights | {f"model.layers.{n}.self_attn.rotary_emb.inv_freq": torch.ones(4) for n in range(2)}


def with_both_ends(weights: Weights) -> Weights:
    return weights | {"lm_head.weight": weights["model.embed_tokens.weight"].clone()}


@pytest.mark.parametrize(
    ("name", "change"),
    [("gpt2", of_the_hub), ("llama-tied", of_an_old_llama), ("qwen3-tied", with_both_ends)],
)
@pytest.mark.parametrize("shards", ["1GB", "8KB"])
def test_what_came_otherwise_has_the_names_of_its_children(
    name: str, change: Callable[[Weights], Weights], shards: str, tmp_path: Path
) -> None:
    model = stranger(*TRAINED[name]).half()
    model.save_pretrained(tmp_path, max_shard_size=shards)
    before = dict(modelio.tensors(tmp_path))
    came = change(before)
    files = modelio.weight_files(tmp_path)
    of_file = {tensor: path for path in files for tensor in load_file(path)}
    extra = {tensor: of_file.get(f"transformer.{tensor}", files[-1]) for tensor in came} | of_file
    for path in files:
        save_file({one: value for one, value in came.items() if extra[one] == path}, path, {"format": "pt"})
    if len(files) > 1:
        index = {"metadata": {}, "weight_map": {one: extra[one].name for one in came}}
        (tmp_path / modelio.INDEX_FILE).write_text(json.dumps(index))
    changed = weight_names.as_written(tmp_path)
    assert set(came) - set(before) <= set(changed)
    found = dict(modelio.tensors(tmp_path))
    assert found.keys() == before.keys()
    assert all(value.dtype == torch.float16 and value.equal(before[one]) for one, value in found.items())
    again = modelio.load_model(tmp_path)
    modelio.save_checkpoint(again, tmp_path / "child", companions=tmp_path, dtype="float32")
    assert dict(modelio.tensors(tmp_path / "child")).keys() == found.keys()
    assert weight_names.as_written(tmp_path) == []


@pytest.mark.parametrize("name", [*TRAINED, *ARCHITECTURES])
def test_what_transformers_writes_is_left_as_it_is(name: str, tmp_path: Path) -> None:
    model = stranger(*TRAINED[name]) if name in TRAINED else moe_model(architecture=name)
    model.save_pretrained(tmp_path)
    before = (tmp_path / "model.safetensors").read_bytes()
    assert weight_names.as_written(tmp_path) == []
    assert (tmp_path / "model.safetensors").read_bytes() == before


def test_a_head_of_its_own_stays_to_be_refused(tmp_path: Path) -> None:
    stranger(*TRAINED["llama-tied"]).save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    weights = load_file(path)
    save_file(weights | {"lm_head.weight": weights["model.embed_tokens.weight"] + 1}, path, {"format": "pt"})
    assert weight_names.as_written(tmp_path) == []


def test_init_says_what_was_renamed(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "model", model=stranger(*TRAINED["gpt2"]))
    path = folder / "model.safetensors"
    save_file(of_the_hub(load_file(path)), path, {"format": "pt"})
    made = init_model(tmp_path / "ws", folder)
    assert "no value changed" in made.warnings[0]
    assert dict(modelio.tensors(made.checkpoint.path)).keys() == stranger(
        *TRAINED["gpt2"]
    ).state_dict().keys() - {"lm_head.weight"}


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
def test_quantised_weights_that_no_configuration_names_are_refused(
    dtype: torch.dtype, tmp_path: Path
) -> None:
    """They load, as the numbers that they are: a line began with another model than anybody had."""
    folder = write_checkpoint(tmp_path / "model", model=tiny_model(vocab_size=80))
    path = folder / "model.safetensors"
    name = "model.layers.1.mlp.up_proj.weight"
    save_file(load_file(path) | {name: torch.ones(48, 32).to(dtype)}, path, {"format": "pt"})
    with pytest.raises(IntegrityError, match=f"weight {name} is (I8|F8_E4M3), and config.json has no"):
        init_model(tmp_path / "ws", folder)
    assert not (tmp_path / "ws").exists()
