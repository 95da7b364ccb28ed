"""Train the seed model on demonstrations: first how to do right, then the mixed manner.

A recipe to be run once (`scripts/make_seed.py`); its result is shipped. Plain AdamW on rows of
`corpus.py`; the attention mask keeps a row's branches from seeing each other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from evals.population.people import seeded
from stages.seed.branches import Batch, collate, hidden_states
from stages.seed.corpus import Encode, Row, make_row
from stages.seed.demonstrations import SKILLED, Manner

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

BEGINNING_WEIGHT = 0.05


@dataclass(frozen=True)
class Phase:
    """A stretch of training: linear warm-up, then cosine from `learning_rate` to `final_rate`."""

    manner: Manner
    steps: int
    learning_rate: float
    final_rate: float
    rows: int = 16
    branches: int = 4
    warmup: int = 100


@dataclass(frozen=True)
class Recipe:
    """Everything the seed model depends on besides the code and the library versions."""

    seed: int = 0
    vocabulary: int = 1024
    hidden: int = 128
    layers: int = 4
    heads: int = 4
    intermediate: int = 384
    max_positions: int = 1024
    phases: tuple[Phase, ...] = (
        Phase(SKILLED, 4500, 2e-3, 1e-4),
        Phase(Manner(), 360, 1e-3, 5e-5, warmup=20),
    )


def build_model(recipe: Recipe, eos: int, pad: int) -> PreTrainedModel:
    """A fresh Qwen2 of the recipe's size, embeddings untied (tied ones survive no weight update on CPU)."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(recipe.seed)
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=recipe.vocabulary,
            hidden_size=recipe.hidden,
            num_hidden_layers=recipe.layers,
            num_attention_heads=recipe.heads,
            num_key_value_heads=recipe.heads,
            intermediate_size=recipe.intermediate,
            max_position_embeddings=recipe.max_positions,
            tie_word_embeddings=False,
            bos_token_id=None,
            eos_token_id=eos,
            pad_token_id=pad,
        )
    )


def loss_of(model: PreTrainedModel, batch: Batch) -> tuple[Tensor, Tensor]:
    """What is minimised, and the mean negative log-likelihood of a spoken token within it.

    Predicting the beginning counts `BEGINNING_WEIGHT` a token: it teaches to copy names.
    """
    import torch

    entropy = torch.nn.functional.cross_entropy
    weights = {name: value.to(torch.bfloat16) for name, value in model.named_parameters()}
    hidden = hidden_states(model, weights, batch)
    head = weights["lm_head.weight"]
    shared = batch.beginning.shape[1]
    own = hidden[:, shared:].view(*batch.branches.shape, -1)
    spoken = batch.spoken[:, :, 1:]
    said = entropy(
        (own[:, :, :-1][spoken] @ head.T).float(), batch.branches[:, :, 1:][spoken], reduction="sum"
    )
    there = torch.arange(1, shared) < batch.lengths[:, None]
    read = entropy(
        (hidden[:, : shared - 1][there] @ head.T).float(), batch.beginning[:, 1:][there], reduction="sum"
    )
    count = spoken.sum()
    return (said + BEGINNING_WEIGHT * read) / count, said.detach() / count


def _rate(phase: Phase, step: int) -> float:
    if step < phase.warmup:
        return phase.learning_rate * (step + 1) / phase.warmup
    done = (step - phase.warmup) / max(1, phase.steps - phase.warmup)
    return phase.final_rate + (phase.learning_rate - phase.final_rate) * 0.5 * (
        1 + float(np.cos(np.pi * done))
    )


def train_phase(
    model: PreTrainedModel,
    phase: Phase,
    source: Iterator[list[Row]],
    report: Callable[[int, float, float], None],
) -> None:
    """Run one phase. `report(step, loss, seconds)` is called every 50 steps."""
    import torch

    optimizer = torch.optim.AdamW(
        model.parameters(), lr=phase.learning_rate, betas=(0.9, 0.98), weight_decay=0.01
    )
    started, losses = time.perf_counter(), []
    for step in range(phase.steps):
        for group in optimizer.param_groups:
            group["lr"] = _rate(phase, step)
        batch = collate(next(source))
        loss, said = loss_of(model, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(float(said))
        if (step + 1) % 50 == 0:
            report(step + 1, float(np.mean(losses)), time.perf_counter() - started)
            losses.clear()


def batches_of(phase: Phase, seed: int, encode: Encode) -> Iterator[list[Row]]:
    """The phase's batches: rows of like length together, which saves a fifth of the work as padding."""
    random = seeded("seed-demonstrations", seed)
    while True:
        drawn = [make_row(random, phase.branches, phase.manner, encode) for _ in range(8 * phase.rows)]
        pool = sorted(drawn, key=lambda row: row.length)
        batches = [pool[at : at + phase.rows] for at in range(0, len(pool), phase.rows)]
        random.shuffle(batches)
        yield from reversed(batches)
