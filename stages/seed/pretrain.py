"""Train the seed model on demonstrations: first how to do right, then the mixed manner.

A recipe to be run once (`scripts/make_seed.py`); its result is shipped. Plain AdamW on rows of
`corpus.py`; the attention mask keeps a row's branches from seeing each other.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from evals.population.people import seeded
from stages.seed.corpus import Encode, Row, rows
from stages.seed.demonstrations import SKILLED, Manner

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Phase:
    """A stretch of training: linear warm-up, then cosine from `learning_rate` to `final_rate`."""

    manner: Manner
    steps: int
    learning_rate: float
    final_rate: float
    rows: int = 48
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
        Phase(SKILLED, 3000, 3e-3, 1e-3),
        Phase(Manner(), 2000, 1e-3, 5e-5),
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


def collate(batch: Sequence[Row]) -> dict[str, Any]:
    """Pad rows to one length T: tokens, position [B, T]; mask [B, 1, T, T] bool; weight [B, T]."""
    import torch

    length = max(len(row.tokens) for row in batch)

    def padded(name: str, fill: int) -> Tensor:
        columns = [
            np.pad(getattr(row, name), (0, length - len(row.tokens)), constant_values=fill) for row in batch
        ]
        return torch.from_numpy(np.stack(columns))

    branch = padded("branch", -1).long()
    earlier = torch.ones(length, length, dtype=torch.bool).tril()
    keys, queries = branch[:, None, :], branch[:, :, None]
    mask = earlier & ((keys == 0) | (keys == queries))
    return {
        "tokens": padded("tokens", 0).long(),
        "position": padded("position", 0).long(),
        "mask": mask[:, None],
        "weight": padded("weight", 0),
    }


def loss_of(model: PreTrainedModel, batch: dict[str, Any]) -> Tensor:
    """Weighted mean negative log-likelihood of the tokens with a weight.

    A branch's first token is predicted from the end of the shared beginning, which need not stand right
    before it; such tokens are the request's and carry no weight.
    """
    import torch

    bias = torch.zeros(batch["mask"].shape).masked_fill_(~batch["mask"], float("-inf"))
    hidden = model.model(
        input_ids=batch["tokens"], attention_mask=bias, position_ids=batch["position"], use_cache=False
    ).last_hidden_state
    weight = batch["weight"][:, 1:]
    chosen = weight > 0
    logits = model.lm_head(hidden[:, :-1][chosen]).float()
    losses = torch.nn.functional.cross_entropy(logits, batch["tokens"][:, 1:][chosen], reduction="none")
    weights = weight[chosen]
    return (losses * weights).sum() / weights.sum()


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
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(model, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(float(loss.detach()))
        if (step + 1) % 50 == 0:
            report(step + 1, float(np.mean(losses)), time.perf_counter() - started)
            losses.clear()


def batches_of(phase: Phase, seed: int, encode: Encode) -> Iterator[list[Row]]:
    """The phase's batches: rows of like length together, which saves a fifth of the work as padding."""
    source = rows(seed, phase.branches, phase.manner, encode)
    order = seeded("seed-batches", seed)
    while True:
        pool = sorted(itertools.islice(source, 16 * phase.rows), key=lambda row: len(row.tokens))
        batches = [pool[at : at + phase.rows] for at in range(0, len(pool), phase.rows)]
        order.shuffle(batches)
        yield from batches
