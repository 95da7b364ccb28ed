"""Micro-batches of a batch's rows, and the forward pass over one of them.

The one path by which any checkpoint (parent, anchor, sampler, the policy in training) gives the
logprobs of the batch's trained tokens.

Not here: gradients and optimizer (`update.py`), what the distribution is (`sampling.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stages.routing import Routing
from stages.train.batch import Row
from stages.train.logprobs import hidden_states, output_head, rows_within, token_logprobs
from stages.train.packing import Pack, micro_batches, pack
from stages.train.parallel import placed
from stages.train.routing import Decisions, decisions_of
from stages.train.sampling import Penalty, Processing, has_penalties
from stages.train.shard import through

if TYPE_CHECKING:
    from transformers import PreTrainedModel


Scored = tuple[NDArray[np.int64], Tensor, Tensor, Decisions]


@dataclass(frozen=True)
class Budget:
    """What a pass over the rows may use: packed tokens and mebibytes of float32 logits at a time, CPU
    threads, and copies of the model."""

    tokens: int
    logits_mib: int
    threads: int = 1
    copies: int = 1


@dataclass(frozen=True)
class MicroBatch:
    """Rows packed together, and their n trained tokens.

    Attributes:
        pack: the inputs; a row's last token predicts nothing and is left out.
        predictors: [n] positions in the pack whose hidden state predicts the token.
        targets: [n] token ids.
        processing: how each token's distribution came from the logits.
        flat: [n] indices of the tokens in the batch's flat order.
    """

    pack: Pack
    predictors: Tensor
    targets: Tensor
    processing: Processing
    flat: NDArray[np.int64]


def plan(rows: Sequence[Row], budget: Budget) -> list[list[Row]]:
    """Rows of each micro-batch; rows that begin alike are in the same one."""
    inputs = [row.token_ids[:-1] for row in rows]
    batches = micro_batches(inputs, budget.tokens, _routings(rows))
    return [[rows[index] for index in chosen] for chosen in batches]


def _routings(rows: Sequence[Row]) -> list[Routing | None]:
    """Of the rows' inputs."""
    return [row.routing and row.routing.cut(len(row.token_ids) - 1) for row in rows]


def assemble(rows: Sequence[Row], device: str | torch.device = "cpu") -> MicroBatch:
    """The micro-batch of `rows`, its tensors on `device`."""
    packed = pack([row.token_ids[:-1] for row in rows], routings=_routings(rows))
    samplings, penalties, first = [], [], 0
    for row in rows:
        samplings += [row.generations[index].sampling for index in row.generation]
        penalties += _penalties(row, first, device)
        first += len(row.targets)
    predictors = [cells[row.targets - 1] for cells, row in zip(packed.cells, rows, strict=True)]
    targets = np.concatenate([row.token_ids[row.targets] for row in rows]).astype(np.int64)
    return MicroBatch(
        pack=packed.to(device),
        predictors=torch.from_numpy(np.concatenate(predictors)).to(device),
        targets=torch.from_numpy(targets).to(device),
        processing=Processing.of(samplings, penalties).to(device),
        flat=np.concatenate([row.flat for row in rows]),
    )


def _penalties(row: Row, first: int, device: str | torch.device) -> list[Penalty]:
    """Penalties of the row's generations; its tokens are numbered from `first` in the micro-batch."""
    found = []
    for index in np.unique(row.generation):
        info = row.generations[index]
        if has_penalties(info.sampling):
            mine = np.flatnonzero(row.generation == index)
            positions = row.targets[mine]
            ids = torch.from_numpy(row.token_ids.astype(np.int64)).to(device)
            found.append(
                Penalty(
                    targets=torch.from_numpy(first + mine).to(device),
                    steps=torch.from_numpy(positions - info.output_start).to(device),
                    prompt=ids[: info.output_start],
                    outputs=ids[info.output_start : positions[-1]],
                    sampling=info.sampling,
                )
            )
    return found


def logprobs(model: PreTrainedModel, batch: MicroBatch, budget: Budget) -> tuple[Tensor, Tensor]:
    """(logp [n], entropy [n]) in nats of the micro-batch's tokens under `model`."""

    def work(one: PreTrainedModel) -> tuple[Tensor, Tensor]:
        hidden = hidden_states(one, batch.pack).index_select(0, batch.predictors)
        rows = rows_within(budget.logits_mib, int(one.config.get_text_config().vocab_size))
        return token_logprobs(hidden, batch.targets, output_head(one), batch.processing, block_rows=rows)

    return through(model, work)


def cost(rows: Sequence[Row]) -> int:
    """Of a micro-batch, to compare it with another: its tokens."""
    return sum(len(row.token_ids) for row in rows)


def score(
    model: PreTrainedModel,
    rows: Sequence[Row],
    tokens: int,
    budget: Budget,
    decisions: Decisions | None = None,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """(logp, entropy) of the rows' tokens under `model`, both [tokens] in flat order; NaN elsewhere.

    Routing decisions that were replayed are counted in `decisions`.
    """
    logp = np.full(tokens, np.nan, dtype=np.float32)
    entropy = np.full(tokens, np.nan, dtype=np.float32)

    def one(copy: PreTrainedModel, chosen: list[Row], _: float) -> Scored:
        batch = assemble(chosen, copy.device)
        values, entropies = logprobs(copy, batch, budget)
        return batch.flat, values.cpu(), entropies.cpu(), decisions_of(batch.pack.replay)

    with torch.no_grad(), placed(model, budget.threads, budget.copies) as workers:
        for flat, values, entropies, counted in workers.map(one, plan(rows, budget), cost):
            logp[flat] = values.numpy()
            entropy[flat] = entropies.numpy()
            if decisions is not None:
                decisions.add(counted)
    return logp, entropy
