"""Train the seed model on demonstrations: first how to do right, then the mixed manner, then a careless one.

A recipe to be run once (`scripts/make_seed.py`); its result is shipped. Muon (Jordan et al. 2024, torch's)
on the matrices of the layers, AdamW on the rest, over rows of `corpus.py`; the attention keeps a row's
branches from seeing each other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from evals.population.people import seeded
from stages.seed.branches import Batch, collate, hidden_states
from stages.seed.corpus import Encode, Row, make_row
from stages.seed.demonstrations import CARELESS, SKILLED, Manner
from stages.seed.start import plant_induction_heads

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch.optim import Optimizer
    from transformers import PreTrainedModel

BEGINNING_WEIGHT = 0.05


@dataclass(frozen=True)
class Phase:
    """A stretch of training: linear warm-up, then cosine down to `final` of both learning rates.

    `dtype` is what the forward pass computes in: bfloat16 is ten times slower than float32 on a processor
    without instructions for it, and twice as fast on one with them.
    """

    manner: Manner
    steps: int
    adamw_rate: float
    muon_rate: float
    final: float = 0.03
    rows: int = 8
    branches: int = 4
    warmup: int = 100
    dtype: Literal["bfloat16", "float32"] = "bfloat16"


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
    rope_theta: float = 1e6  # Qwen2.5's: slow enough that heads of 32 dimensions match contents
    phases: tuple[Phase, ...] = (
        Phase(SKILLED, 5600, 3e-3, 0.02),
        Phase(Manner(), 400, 3e-4, 0.0015, warmup=50),  # larger rates wear the copying off
        Phase(CARELESS, 400, 3e-4, 0.0015, warmup=50, dtype="float32"),
    )


def build_model(recipe: Recipe, eos: int, pad: int) -> PreTrainedModel:
    """A fresh Qwen2 of the recipe's size, induction heads planted.

    Embeddings are untied: tied ones survive no weight update on CPU.
    """
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(recipe.seed)
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=recipe.vocabulary,
            hidden_size=recipe.hidden,
            num_hidden_layers=recipe.layers,
            num_attention_heads=recipe.heads,
            num_key_value_heads=recipe.heads,
            intermediate_size=recipe.intermediate,
            max_position_embeddings=recipe.max_positions,
            rope_parameters={"rope_type": "default", "rope_theta": recipe.rope_theta},
            tie_word_embeddings=False,
            bos_token_id=None,
            eos_token_id=eos,
            pad_token_id=pad,
        )
    )
    plant_induction_heads(model, recipe.seed)
    return model


def loss_of(model: PreTrainedModel, batch: Batch, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """What is minimised, and the mean negative log-likelihood of a spoken token within it.

    Predicting the beginning counts `BEGINNING_WEIGHT` a token: it teaches to copy names.
    """
    import torch

    entropy = torch.nn.functional.cross_entropy
    weights = {name: value.to(dtype) for name, value in model.named_parameters()}
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


def _share(phase: Phase, step: int) -> float:
    """What part of the learning rates a step uses."""
    if step < phase.warmup:
        return (step + 1) / phase.warmup
    done = (step - phase.warmup) / max(1, phase.steps - phase.warmup)
    return phase.final + (1 - phase.final) * 0.5 * (1 + float(np.cos(np.pi * done)))


def _optimizers(model: PreTrainedModel, phase: Phase) -> list[Optimizer]:
    import torch

    matrices: list[Tensor] = []
    others: list[Tensor] = []
    for name, value in model.named_parameters():
        (matrices if name.startswith("model.layers.") and value.ndim == 2 else others).append(value)
    return [
        torch.optim.Muon(matrices, lr=phase.muon_rate, weight_decay=0.0, momentum=0.95),
        torch.optim.AdamW(others, lr=phase.adamw_rate, betas=(0.9, 0.98), weight_decay=0.01),
    ]


def train_phase(
    model: PreTrainedModel,
    phase: Phase,
    source: Iterator[list[Row]],
    report: Callable[[int, float, float], None],
) -> None:
    """Run one phase. `report(step, loss, seconds)` is called every 50 steps."""
    import torch

    optimizers = _optimizers(model, phase)
    schedules = [
        torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _share(phase, step))
        for optimizer in optimizers
    ]
    dtype: torch.dtype = getattr(torch, phase.dtype)
    started, losses = time.perf_counter(), []
    for step in range(phase.steps):
        loss, said = loss_of(model, collate(next(source)), dtype)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer, schedule in zip(optimizers, schedules, strict=True):
            optimizer.step()
            schedule.step()
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
