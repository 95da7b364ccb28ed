"""Which configurations are of one model, whoever wrote them: an engine takes weights only under its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stages import modelio
from stages.engine import identity
from stages.engine.identity import UpdateImpossibleError, identity_of, require_same_model
from stages.errors import IntegrityError
from stages.init import init_model
from stages.train.outside.likeness import check_config
from tests.stages.train.tiny import tiny_model, write_tokenizer

# As transformers 4 wrote the model of `tiny_model`, and as the Hub has Qwen2's.
OF_THE_HUB: dict[str, Any] = {
    "architectures": ["Qwen2ForCausalLM"],
    "attention_dropout": 0.0,
    "hidden_act": "silu",
    "hidden_size": 32,
    "initializer_range": 0.3,
    "intermediate_size": 48,
    "max_position_embeddings": 256,
    "max_window_layers": 28,
    "model_type": "qwen2",
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "sliding_window": 32768,
    "temperature": 0.7,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.43.1",
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": 72,
}
HUB_SHAPE = {"vocab_size": 72, "rope_theta": 1e6}  # its tokenizer class adds a token
SCALED = {"rope_type": "linear", "factor": 2.0}
OTHERS: list[dict[str, Any]] = [
    {"rope_theta": 10000.0},
    {"rope_scaling": SCALED},
    {"num_hidden_layers": 3},
    {"vocab_size": 73},
    {"num_attention_heads": 2},
    {"num_key_value_heads": 1},
    {"tie_word_embeddings": True},
    {"rms_norm_eps": 1e-5},
    {"use_sliding_window": True, "max_window_layers": 1},
    {"quantization_config": {"quant_method": "fp8"}},
    {"of_a_version_to_come": 1},
    {"architectures": ["Qwen2ForSequenceClassification"]},
    {"model_type": "llama", "architectures": ["LlamaForCausalLM"]},
]


def folder_of(folder: Path, config: Any) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def of_the_hub(folder: Path, **more: Any) -> Path:
    """A whole model folder whose configuration transformers 4 wrote."""
    tiny_model(**HUB_SHAPE).bfloat16().save_pretrained(folder)
    write_tokenizer(folder)
    (folder / "config.json").write_text(json.dumps(OF_THE_HUB | more))
    return folder


@pytest.mark.parametrize("more", [{}, {"rope_scaling": SCALED}], ids=["plain", "scaled"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_child_of_a_model_of_the_hub_is_of_its_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any], dtype: modelio.ExportDtype
) -> None:
    """Cycle after cycle, and an engine need not import transformers to see it."""
    parent = init_model(tmp_path / "ws", of_the_hub(tmp_path / "hub", **more)).checkpoint.path
    assert (parent / "config.json").read_bytes() == (tmp_path / "hub/config.json").read_bytes()
    above = parent
    for name in ("child", "grandchild"):
        model = modelio.load_model(above)
        modelio.save_checkpoint(model, tmp_path / name, companions=above, dtype=dtype)
        assert modelio.read_config(tmp_path / name)["dtype"] == dtype
        assert "torch_dtype" not in modelio.read_config(tmp_path / name)
        assert check_config(tmp_path / name, parent, 256) == []
        above = tmp_path / name
    assert modelio.load_model(above).config.rope_parameters["rope_theta"] == 1e6
    monkeypatch.setattr(identity, "as_read", None)
    for name in ("child", "grandchild"):
        require_same_model(identity_of(parent), tmp_path / name)
        require_same_model(identity_of(tmp_path / name), parent)


@pytest.mark.parametrize("more", [{}, {"rope_scaling": SCALED}], ids=["plain", "scaled"])
def test_what_another_version_wrote_of_it_is_the_same_model(tmp_path: Path, more: dict[str, Any]) -> None:
    hub = of_the_hub(tmp_path / "hub", **more)
    modelio.load_model(hub).save_pretrained(tmp_path / "now")
    write_tokenizer(tmp_path / "now")
    written = modelio.read_config(tmp_path / "now")
    assert "rope_theta" not in written
    assert written["layer_types"] == ["full_attention"] * 2
    require_same_model(identity_of(hub), tmp_path / "now")
    require_same_model(identity_of(tmp_path / "now"), hub)
    assert check_config(tmp_path / "now", hub, 256) == []


@pytest.mark.parametrize("change", OTHERS, ids=[",".join(change) for change in OTHERS])
def test_another_model_is_refused_however_it_is_written(tmp_path: Path, change: dict[str, Any]) -> None:
    hub = folder_of(tmp_path / "hub", OF_THE_HUB)
    other = folder_of(tmp_path / "other", OF_THE_HUB | change)
    now = tmp_path / "now"
    tiny_model(**HUB_SHAPE).save_pretrained(now)
    require_same_model(identity_of(now), hub)
    for started_with, found in ((hub, other), (other, hub), (now, other), (other, now)):
        with pytest.raises(UpdateImpossibleError, match=r"^config\.json of"):
            require_same_model(identity_of(started_with), found)


def test_a_model_within_the_model_has_a_dtype_of_its_own(tmp_path: Path) -> None:
    text = {"model_type": "gemma3_text", "torch_dtype": "bfloat16", "num_hidden_layers": 2}
    config = {"model_type": "gemma3", "text_config": text, "quantization_config": {"dtype": "int8"}}
    hub = folder_of(tmp_path / "hub", config)
    same = config | {"text_config": text | {"torch_dtype": "float32"}}
    require_same_model(identity_of(hub), folder_of(tmp_path / "same", same))
    for name, change in {
        "deeper": {"text_config": text | {"num_hidden_layers": 3}},
        "quantised": {"quantization_config": {"dtype": "int4"}},
    }.items():
        with pytest.raises(UpdateImpossibleError):
            require_same_model(identity_of(hub), folder_of(tmp_path / name, config | change))


@pytest.mark.parametrize(
    "config",
    [
        {"hidden_size": 32},
        {"model_type": "of_tomorrow", "hidden_size": 32},
        OF_THE_HUB | {"hidden_size": "32"},
    ],
    ids=["no type", "unknown type", "no number"],
)
def test_what_transformers_does_not_read_is_compared_as_it_is_written(tmp_path: Path, config: Any) -> None:
    one = folder_of(tmp_path / "one", config)
    require_same_model(identity_of(one), folder_of(tmp_path / "same", config | {"torch_dtype": "float16"}))
    with pytest.raises(UpdateImpossibleError):
        require_same_model(identity_of(one), folder_of(tmp_path / "other", config | {"rope_scaling": None}))
    with pytest.raises(IntegrityError, match="is of no model that can be loaded"):
        check_config(one, one, 256)


def test_a_gateway_has_no_torch_for_it() -> None:
    code = (
        "import sys, stages.engine.identity as _; sys.exit(bool({'torch', 'transformers'} & {*sys.modules}))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
