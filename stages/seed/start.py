"""Starting weights with induction heads in them, so that the seed model copies from its first step.

From random weights a model this small learns to copy after thousands of steps, and on random tokens not at
all; with these, a hundred steps do (docs/lab-notes.md). The circuit is that of Elhage et al. 2021, "A
Mathematical Framework for Transformer Circuits", and Olsson et al. 2022, "In-context Learning and Induction
Heads": a head that looks one token back, and later heads that look for a token after one like this one and
say it. Training changes all of it freely. Not for models with fewer than four layers.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Generator, Tensor
    from torch.nn import Module
    from transformers import PreTrainedModel

EMBEDDING_STD = 0.3
HEAD_SCALE = 0.3  # of the output embedding over the input embedding it starts as
WRITE_SCALE = 0.6  # of what a look-back head writes: as large as an embedding
MATCH_SCALE = 2.0  # of queries and keys that match contents
LOOK_BACK_BIAS = 6.5
LOOK_BACK_PAIRS = 3  # rotary pairs with the highest frequencies, which tell neighbours apart
SLOW = 0.01  # rotary pairs below this frequency, radians a token, hardly turn within a prompt

# (layer, head, which look-back head's writing its keys are read from)
MATCHING = ((1, 0, 0), (2, 1, 1), (2, 0, 0), (3, 0, 0))


def _orthogonal(size: int, generator: Generator) -> Tensor:
    import torch

    return torch.linalg.qr(torch.randn(size, size, generator=generator))[0]


def plant_induction_heads(model: PreTrainedModel, seed: int) -> None:
    """Overwrite the embeddings and six heads of a fresh Qwen2. Deterministic in `seed`."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    config = model.config
    hidden = config.hidden_size
    size = hidden // config.num_attention_heads
    theta = config.rope_parameters["rope_theta"]
    frequency = [theta ** (-2 * pair / size) for pair in range(size // 2)]
    slow = [pair for pair, turn in enumerate(frequency) if turn < SLOW]
    dims = torch.tensor([*slow, *(pair + size // 2 for pair in slow)])
    read = _orthogonal(hidden, generator)[:size]
    turned = [_orthogonal(hidden, generator) for _ in range(2)]  # where each look-back head writes
    with torch.no_grad():
        embedding = model.model.embed_tokens.weight
        embedding.normal_(0.0, EMBEDDING_STD, generator=generator)
        model.lm_head.weight.copy_(embedding * HEAD_SCALE)
        for head, turn in enumerate(turned):
            attention, rows = model.model.layers[0].self_attn, slice(head * size, (head + 1) * size)
            _look_back(attention, rows, frequency, lag=head + 1)
            attention.v_proj.weight[rows] = read
            attention.o_proj.weight[:, rows] = turn @ read.T * WRITE_SCALE
        for layer, head, source in MATCHING:
            attention, rows = model.model.layers[layer].self_attn, slice(head * size, (head + 1) * size)
            attention.q_proj.weight[rows] = 0.0
            attention.k_proj.weight[rows] = 0.0
            attention.q_proj.weight[dims + head * size] = MATCH_SCALE * read[: len(dims)]
            attention.k_proj.weight[dims + head * size] = MATCH_SCALE * read[: len(dims)] @ turned[source].T
            said = _orthogonal(hidden, generator)[:size]
            attention.v_proj.weight[rows] = said
            attention.o_proj.weight[:, rows] = said.T


def _look_back(attention: Module, rows: slice, frequency: list[float], lag: int) -> None:
    """Make the head attend `lag` tokens back: constant query and key, the key turned by `lag` positions."""
    import torch

    size = rows.stop - rows.start
    query, key = torch.zeros(size), torch.zeros(size)
    for pair in range(LOOK_BACK_PAIRS):
        query[pair] = LOOK_BACK_BIAS
        key[pair] = LOOK_BACK_BIAS * math.cos(frequency[pair] * lag)
        key[pair + size // 2] = LOOK_BACK_BIAS * math.sin(frequency[pair] * lag)
    attention.q_proj.weight[rows] *= 0.1
    attention.k_proj.weight[rows] *= 0.1
    attention.q_proj.bias[rows] = query
    attention.k_proj.bias[rows] = key
