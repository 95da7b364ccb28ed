"""Whether a model gives sequences in a pack what it gives each of them alone. Asked before the first score.

Packing replaces attention, hands over positions, and calls the output head by itself. A model in which a
token learns of others, or of its place, in another way would be scored and trained wrongly and nothing
would fail: state-space layers, linear attention, convolutions, ALiBi, positions counted by the model
itself, attention in chunks. So three short sequences are computed both ways, in float32 on the CPU,
with the weights at hand. What short ones cannot show is read from the configuration: windows that do
not reach the attention function, and rotary frequencies that change with the length.

Source: none; it is the definition of packing. Not here: packing (`packing.py`, `attention.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from stages.errors import RtrlError, UsageError
from stages.train import attention
from stages.train.logprobs import hidden_states, output_head
from stages.train.packing import pack

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

PROBE = "rtrl_probe"
LAYERS = {"full_attention", "sliding_attention"}  # kinds of layers that packing knows
TOLERANCE = 1e-3  # of the logits' root mean square: float32 noise is 1e-6 to 1e-5, a leak 0.01 to 2
_AT = 0.9  # quantile of the positions' differences: near ties of a router may send a few elsewhere
_HINT = "this architecture cannot be trained here: `rtrl export` and a trainer of your own (docs/train.md)"


def require_packable(model: PreTrainedModel) -> None:
    """Raise UsageError when packed sequences are not what each is alone. `model`: float32, on the CPU.

    Attention is that of packing before and after.
    """
    name = type(model).__name__
    require_known_layers(model.config, name)
    sequences = _sequences(int(model.config.get_text_config().vocab_size))
    with torch.no_grad():
        try:
            packed, windows = _packed(model, sequences)
        except RtrlError:
            raise
        except Exception as error:  # whatever a stranger's code does with what it does not expect
            raise UsageError(
                f"{name} does not run packed: {type(error).__name__}: {error}", hint=_HINT
            ) from error
        alone = _alone(model, sequences)
    if _slides(model.config.get_text_config()) and not windows - {None}:
        raise UsageError(f"{name} has a sliding window that it tells no attention function", hint=_HINT)
    off = (packed - alone).abs().amax(-1).quantile(_AT) / alone.square().mean().sqrt()
    if not float(off) <= TOLERANCE:
        raise UsageError(
            f"{name} gives other logits in a pack than alone (by {float(off):.2g} of their size)", hint=_HINT
        )


def require_known_layers(config: PreTrainedConfig, name: str) -> None:
    """Raise UsageError when the configuration of model `name` tells of kinds of layers beyond `LAYERS`."""
    kinds = set(getattr(config.get_text_config(), "layer_types", None) or LAYERS)
    if beyond := sorted(kinds - LAYERS):
        raise UsageError(f"{name} has layers of {', '.join(beyond)}, which packing does not know", hint=_HINT)


def require_plain_weights(config: PreTrainedConfig, name: str) -> None:
    """Raise UsageError when the weights of model `name` are quantised: no small step moves such a weight, and
    what is written would not be what its configuration says."""
    quantised: Any = getattr(config, "quantization_config", None)
    if quantised:
        how = quantised.get("quant_method", "") if isinstance(quantised, dict) else ""
        raise UsageError(
            f"{name} has quantised weights ({how or 'quantization_config'})",
            hint="begin with the model that they were made of: `rtrl init --model`",
        )


def require_length(config: PreTrainedConfig, longest: int) -> None:
    """Raise UsageError when, of sequences of up to `longest` tokens, one changes the positions of others."""
    text: Any = config.get_text_config()
    found = getattr(text, "rope_parameters", None) or {}
    for rope in found.values() if all(isinstance(each, dict) for each in found.values()) else [found]:
        kind = str(rope.get("rope_type", ""))
        limit = int(rope.get("original_max_position_embeddings") or text.max_position_embeddings)
        if ("dynamic" in kind or kind == "longrope") and longest > limit:
            raise UsageError(
                f"rotary positions of type {kind} change with the length beyond {limit} tokens; the longest "
                f"sequence has {longest}",
                hint=f"serve with engine.max_model_len at most {limit}",
            )


def _sequences(vocabulary: int) -> list[np.ndarray[Any, np.dtype[np.int32]]]:
    """Three, two of which begin alike."""
    rng = np.random.default_rng(0)
    first, second, third = (rng.integers(0, vocabulary, n).astype(np.int32) for n in (19, 24, 16))
    third[:7] = first[:7]
    return [first, second, third]


def _packed(model: PreTrainedModel, sequences: list[Any]) -> tuple[Tensor, set[int | None]]:
    """(logits [T, V] of all sequences' tokens, windows that the attention function was told)."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    windows: set[int | None] = set()

    def watched(*args: Any, **kwargs: Any) -> tuple[Tensor, None]:
        windows.add(kwargs.get("sliding_window"))
        return attention.packed_attention(*args, **kwargs)

    packed = pack(sequences)
    ALL_ATTENTION_FUNCTIONS.register(PROBE, watched)
    model.set_attn_implementation(PROBE)
    try:
        hidden = hidden_states(model, packed)
        return output_head(model)(hidden[torch.from_numpy(np.concatenate(packed.cells))]), windows
    finally:
        model.set_attn_implementation(attention.NAME)


def _alone(model: PreTrainedModel, sequences: list[Any]) -> Tensor:
    model.set_attn_implementation("sdpa")
    try:
        logits = [
            model(input_ids=torch.from_numpy(ids.astype(np.int64))[None], use_cache=False).logits[0].float()
            for ids in sequences
        ]
    finally:
        model.set_attn_implementation(attention.NAME)
    return torch.cat(logits)


def _slides(config: Any) -> bool:
    kinds = getattr(config, "layer_types", None)
    if kinds is not None:
        return "sliding_attention" in kinds
    return bool(getattr(config, "sliding_window", None)) and getattr(config, "use_sliding_window", True)
