"""The forward pass of a Qwen2 over rows with a shared beginning, for CPU training.

Attention in which every branch sees the beginning and itself: queries of a branch against the keys of the
beginning and against its own, one softmax over both. Several times as fast on CPUs as a dense mask over
the whole row. Equal to the model's own forward pass on each sequence by itself (tested).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from stages.seed.corpus import Row

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from transformers import PreTrainedModel

NEVER = -1e4  # added to a score that must not count


class Batch(NamedTuple):
    """Rows padded to one shape: beginning [B, P] with lengths [B]; branches, spoken [B, K, L]."""

    beginning: Tensor
    lengths: Tensor
    branches: Tensor
    spoken: Tensor


def collate(rows: Sequence[Row]) -> Batch:
    """Pad with zeros."""
    import torch

    count, most = len(rows), max(len(row.branches) for row in rows)
    first = np.zeros((count, max(len(row.beginning) for row in rows)), np.int64)
    shape = (count, most, max(len(ids) for row in rows for ids in row.branches))
    ids, spoken = np.zeros(shape, np.int64), np.zeros(shape, bool)
    for i, row in enumerate(rows):
        first[i, : len(row.beginning)] = row.beginning
        for k, (tokens, says) in enumerate(zip(row.branches, row.spoken, strict=True)):
            ids[i, k, : len(tokens)], spoken[i, k, : len(tokens)] = tokens, says
    lengths = torch.tensor([len(row.beginning) for row in rows])
    return Batch(torch.from_numpy(first), lengths, torch.from_numpy(ids), torch.from_numpy(spoken))


def _rotary(model: PreTrainedModel, batch: Batch, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin [B, P + K L, 1, D] of the positions the tokens have in their own sequences."""
    import torch

    count, shared = batch.beginning.shape
    _, most, length = batch.branches.shape
    config = model.config
    size = config.hidden_size // config.num_attention_heads
    frequency = 1.0 / (config.rope_parameters["rope_theta"] ** (torch.arange(0, size, 2).float() / size))
    here = (batch.lengths[:, None, None] + torch.arange(length)).expand(count, most, length)
    position = torch.cat([torch.arange(shared).expand(count, shared), here.reshape(count, -1)], 1)
    angle = position[..., None] * frequency
    angle = torch.cat([angle, angle], -1)[:, :, None]
    return angle.cos().to(dtype), angle.sin().to(dtype)


def _turned(x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
    import torch

    half = x.shape[-1] // 2
    return x * rotary[0] + torch.cat([-x[..., half:], x[..., :half]], -1) * rotary[1]


def _attend(q: Tensor, k: Tensor, v: Tensor, batch: Batch) -> Tensor:
    """q, k, v [B, P + K L, H, D] (q scaled) to [B, P + K L, H D]."""
    import torch

    count, shared = batch.beginning.shape
    _, most, length = batch.branches.shape
    heads, size = q.shape[2:]

    def causal(n: int) -> Tensor:
        return torch.full((n, n), NEVER, dtype=q.dtype).triu(1)

    q_first, k_first, v_first = (x[:, :shared].transpose(1, 2) for x in (q, k, v))
    first = torch.softmax(q_first @ k_first.transpose(-1, -2) + causal(shared), -1) @ v_first
    q_own, k_own, v_own = (
        x[:, shared:].reshape(count, most, length, heads, size).permute(0, 3, 1, 2, 4) for x in (q, k, v)
    )
    absent = (torch.arange(shared) >= batch.lengths[:, None]) * torch.tensor(NEVER, dtype=q.dtype)
    flat = q_own.reshape(count, heads, most * length, size)
    to_first = (flat @ k_first.transpose(-1, -2) + absent[:, None, None]).view(
        count, heads, most, length, shared
    )
    weights = torch.softmax(torch.cat([to_first, q_own @ k_own.transpose(-1, -2) + causal(length)], -1), -1)
    from_first = weights[..., :shared].reshape(count, heads, most * length, shared) @ v_first
    own = from_first.view(count, heads, most, length, size) + weights[..., shared:] @ v_own
    return torch.cat(
        [
            first.transpose(1, 2).reshape(count, shared, -1),
            own.permute(0, 2, 3, 1, 4).reshape(count, most * length, -1),
        ],
        1,
    )


def hidden_states(model: PreTrainedModel, weights: Mapping[str, Tensor], batch: Batch) -> Tensor:
    """The last hidden state [B, P + K L, hidden], normalised; `weights` are the model's, all of one dtype."""
    import torch

    functional = torch.nn.functional
    config = model.config
    heads = config.num_attention_heads
    size = config.hidden_size // heads
    embedding = weights["model.embed_tokens.weight"]
    rotary = _rotary(model, batch, embedding.dtype)
    x = torch.cat([batch.beginning, batch.branches.flatten(1)], 1)
    h = functional.embedding(x, embedding)

    def norm(h: Tensor, name: str) -> Tensor:
        return functional.rms_norm(h, (h.shape[-1],), weights[f"{name}.weight"], config.rms_norm_eps)

    for layer in range(config.num_hidden_layers):
        name = f"model.layers.{layer}"
        n = norm(h, f"{name}.input_layernorm")
        q, k, v = (
            functional.linear(
                n, weights[f"{name}.self_attn.{p}_proj.weight"], weights[f"{name}.self_attn.{p}_proj.bias"]
            ).view(*n.shape[:2], heads, size)
            for p in "qkv"
        )
        attended = _attend(_turned(q, rotary) * size**-0.5, _turned(k, rotary), v, batch)
        h = h + functional.linear(attended, weights[f"{name}.self_attn.o_proj.weight"])
        n = norm(h, f"{name}.post_attention_layernorm")
        gate, up, down = (weights[f"{name}.mlp.{p}_proj.weight"] for p in ("gate", "up", "down"))
        h = h + functional.linear(
            functional.silu(functional.linear(n, gate)) * functional.linear(n, up), down
        )
    return norm(h, "model.norm")
