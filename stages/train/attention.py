"""Block-diagonal causal attention over packed sequences, as an attention function of transformers.

    out_t = sum over s <= t of the same sequence: softmax(q_t k_s * scaling) v_s

Two paths. The cost of both is that of the sequences, not of the square of the pack (4,096 packed tokens
of 170-token sequences under one dense mask would cost 24 times as much attention):

    sdpa           sequences of like length are looked up as the rows of a rectangle and go through
                   torch's fused causal attention together; padding cells lie to the right of the real
                   ones, where causality hides them. A shared prefix is looked up in each of their rows.
    flash          FlashAttention over sequences of any length, end to end (CUDA, half precision): the pack
                   itself asks, each sequence with the tokens that it added, and sees all of its own. Not
                   where values are narrower than keys (multi-head latent attention).

flash comes from the `flash_attn` package where it is installed, else from torch (2.10 or later).

Exact for any model whose attention is causal, with or without a sliding window; grouped-query heads
included. Not for: models with attention biases, sinks or soft-capped scores (refused).
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from stages.errors import UsageError
from stages.train.packing import Pack, Ragged, Rectangle

NAME = "rtrl_packed"
Path = Literal["sdpa", "torch-flash", "flash-attn"]
_UNSUPPORTED = ("position_bias", "s_aux", "softcap")


def register(*, compiled: bool = False) -> str:
    """Make the function known to transformers; returns the name to load a model with.

    `compiled`: layers are compiled, and go around attention, for no two packs look alike.
    """
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    function = torch.compiler.disable(packed_attention) if compiled else packed_attention
    ALL_ATTENTION_FUNCTIONS.register(NAME, function)
    return NAME


def path_for(device: str, dtype: torch.dtype) -> Path:
    """Which path computes attention for tensors on `device` in `dtype`."""
    if device != "cuda" or dtype not in (torch.bfloat16, torch.float16):
        return "sdpa"
    return _flash_source()


@cache
def _flash_source() -> Path:
    """Where FlashAttention comes from on this machine; "sdpa" when from nowhere."""
    if torch.version.cuda is None or torch.cuda.get_device_capability() < (8, 0):
        return "sdpa"
    if importlib.util.find_spec("flash_attn") is not None:
        return "flash-attn"
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return "sdpa"
    return "torch-flash" if "enable_gqa" in inspect.signature(varlen_attn).parameters else "sdpa"


def packed_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    pack: Pack | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """query [1, H, N, D], key [1, G, N, D], value [1, G, N, E] (G divides H) -> [1, N, H, E], and no weights.

    `pack` is handed through the model's forward call. Raises UsageError for what it cannot compute.
    """
    wanted = [name for name in _UNSUPPORTED if kwargs.get(name) is not None]
    if wanted or attention_mask is not None or pack is None:
        raise UsageError(
            f"{type(module).__name__} needs attention with {', '.join(wanted) or 'a mask'}, "
            "which packed training does not compute",
            hint="this architecture cannot be trained yet",
        )
    q, k, v = (tensor[0].transpose(0, 1) for tensor in (query, key, value))  # tokens first
    path = path_for(q.device.type, q.dtype)
    if path != "sdpa" and q.shape[-1] == v.shape[-1]:
        return _flash(q, k, v, pack.ragged, scaling, sliding_window, path)[None], None
    blocks = [_attend(q, k, v, rectangle, scaling, sliding_window) for rectangle in pack.rectangles]
    return torch.cat(blocks).index_select(0, pack.restore)[None], None


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    rectangle: Rectangle,
    scaling: float | None,
    sliding_window: int | None,
) -> Tensor:
    """query [N, H, D], value [N, G, E] -> outputs [n, H, E] of the cells that the rectangle owns."""
    batch, length = rectangle.rows.shape
    lookup = rectangle.rows.flatten()
    q, k, v = (
        tensor.index_select(0, lookup).view(batch, length, *tensor.shape[1:]).transpose(1, 2)
        for tensor in (query, key, value)
    )
    mask = None
    if sliding_window is not None and length > sliding_window:
        age = torch.arange(length, device=query.device)
        age = age[:, None] - age[None, :]
        mask = (age >= 0) & (age < sliding_window)
    out = scaled_dot_product_attention(
        q, k, v, mask, is_causal=mask is None, scale=scaling, enable_gqa=q.shape[1] != k.shape[1]
    )
    flat = out.transpose(1, 2).flatten(0, 1)
    return flat.index_select(0, rectangle.owned)


def _flash(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    ragged: Ragged,
    scaling: float | None,
    sliding_window: int | None,
    path: Path,
) -> Tensor:
    """query [N, H, D], key and value [N, G, D] -> [N, H, D].

    Where a sequence asks with fewer tokens than it sees, both kernels align the ends.
    """
    k, v = key.index_select(0, ragged.keys), value.index_select(0, ragged.keys)
    ends = (ragged.query_ends, ragged.key_ends, ragged.longest_query, ragged.longest_key)
    window = (-1, 0) if sliding_window is None else (sliding_window - 1, 0)
    if path == "flash-attn":
        flash = importlib.import_module("flash_attn").flash_attn_varlen_func
        out: Tensor = flash(query, k, v, *ends, softmax_scale=scaling, causal=True, window_size=window)
        return out
    from torch.nn.attention.varlen import varlen_attn

    grouped = query.shape[1] != key.shape[1]
    found: Any = varlen_attn(query, k, v, *ends, scale=scaling, window_size=window, enable_gqa=grouped)
    return found
