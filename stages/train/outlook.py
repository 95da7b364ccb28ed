"""Whether an architecture will be refused by `rtrl train`, told on the first day instead of after one of use.

`packable.py` asks the model with its own weights, which for a large one takes minutes and its memory. Here a
model of the same configuration with one or two layers, few words and random weights is asked. It may miss
what a deeper layer alone does, and says nothing where no such model can be made: the last word is train's.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from cursorbench.pretrained import causal_model_of, config_of
from stages.errors import UsageError
from stages.train import attention
from stages.train.packable import require_known_layers, require_packable, require_plain_weights

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

WORDS = 512  # vocabulary of the small model
LARGEST = 250_000_000  # parameters; 1 GB, and seconds to draw
SPREAD = 0.3  # standard deviation of its weights: with the usual 0.02 two layers hardly move a logit


def refusal(folder: Path) -> str | None:
    """What `rtrl train` will say to the model in this folder; None when nothing, or when it is not known."""
    try:
        config = config_of(folder)
    except Exception:  # noqa: BLE001 - custom code, a type of its own: whoever loads it next says so
        return None
    try:
        require_plain_weights(config, str(config.model_type))
        require_known_layers(config, str(config.model_type))
        model = _small(config, 2) or _small(config, 1)
        if model is not None:
            require_packable(model)
    except UsageError as error:
        return str(error)
    return None


def _small(config: PreTrainedConfig, layers: int) -> PreTrainedModel | None:
    """Such a model, float32, with packed attention; None when it is too large or computes nothing."""
    from transformers import AutoConfig

    try:
        small = AutoConfig.for_model(**_shrunk(config.to_dict(), layers))
        if sum(value.numel() for value in causal_model_of(small, "meta").parameters()) > LARGEST:
            return None
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = causal_model_of(small).float().eval()
        with torch.no_grad():
            model(input_ids=torch.arange(8)[None], use_cache=False)
        model.set_attn_implementation(attention.register())
    except Exception:  # noqa: BLE001 - what is left of a configuration need not be one
        return None
    return model


def _shrunk(config: dict[str, Any], layers: int) -> dict[str, Any]:
    """The configuration with so many layers and words. A list with one entry a layer keeps its kinds."""
    deep = next(config[name] for name in ("num_hidden_layers", "n_layer", "num_layers") if name in config)
    found = {
        name: _kept(value, layers) if isinstance(value, list) and len(value) == deep else value
        for name, value in config.items()
    }
    for name in ("num_hidden_layers", "n_layer", "num_layers"):
        if name in found:
            found[name] = min(layers, deep)
    for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
        found[name] = None
    if "initializer_range" in found:
        found["initializer_range"] = SPREAD
    found.pop("quantization_config", None)
    return found | {"vocab_size": WORDS, "dtype": "float32"}


def _kept(kinds: list[Any], layers: int) -> list[Any]:
    """As many entries, of different kinds where there are any: the rare ones are what is asked after."""
    different = [kind for n, kind in enumerate(kinds) if kind not in kinds[:n]]
    return (different + kinds)[:layers]
