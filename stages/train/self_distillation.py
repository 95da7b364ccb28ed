"""Training of the multi-token prediction head: it learns to say what the model itself would say next.

    L = mean over trained tokens t of  KL( p(. | t_{<t}) || q(. | t_{<t-1}, h_{t-2}) )      nats

p is the model after the update, frozen, at temperature 1; q the head, which looks one token less far
(`mtp_head.py`). The batch is that of the update. The head never changes what the model answers: an
engine verifies what it drafts. How good it is, is told as the share of drafts an engine would accept,

    acceptance = mean over t of  sum_v min(p(v), q(v))         (Leviathan et al. 2023, arXiv 2211.17192)

before and after, on every tenth row, which is not trained on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from stages.errors import IntegrityError
from stages.train.batch import Row
from stages.train.config import TrainConfig
from stages.train.forward import Budget, plan
from stages.train.logprobs import Head, hidden_states, output_head, rows_within
from stages.train.mtp_head import MtpHead
from stages.train.packing import pack

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from stages.stage import Progress, RunLog

HELD_OUT = 10  # every tenth row


@dataclass(frozen=True)
class Distilled:
    """What the training of the head did. Shares of drafts accepted are None without held-out rows."""

    tokens: int
    steps: int
    kl_first: float
    kl_last: float
    acceptance_before: float | None
    acceptance_after: float | None
    continued: bool

    def as_dict(self) -> dict[str, Any]:
        """For the run's result."""
        return asdict(self)


def distil(
    model: PreTrainedModel,
    head: MtpHead,
    rows: Sequence[Row],
    config: TrainConfig,
    *,
    budget: Budget,
    seed: int,
    continued: bool,
    log: RunLog,
    progress: Progress,
) -> Distilled:
    """Train `head` in place, `config.mtp_passes` times over the rows; `model` is not changed.

    Raises IntegrityError when the loss is not finite.
    """
    held = rows[HELD_OUT - 1 :: HELD_OUT]
    chosen = [row for index, row in enumerate(rows) if index % HELD_OUT != HELD_OUT - 1]
    batches = _batches(chosen, budget)
    optimizer = torch.optim.Adam(head.parameters(), lr=config.mtp_learning_rate)
    random = np.random.default_rng(seed)
    means: list[tuple[float, int]] = []
    with _frozen(model):
        before = acceptance(model, head, held, budget)
        progress.start("multi-token prediction", config.mtp_passes * len(batches))
        for _ in range(config.mtp_passes):
            for index in random.permutation(len(batches)):
                found = _step(model, head, batches[index], optimizer, config.max_grad_norm, budget)
                if found[1]:
                    means.append(found)
                    log.write("train.mtp", step=len(means), kl=found[0], tokens=found[1])
                progress.advance(1)
        if batches:  # of what is published, which no step has used yet
            with torch.no_grad():
                _loss(model, head, batches[-1], budget)
        after = acceptance(model, head, held, budget)
    each = max(1, len(means) // max(1, config.mtp_passes))
    return Distilled(
        tokens=sum(count for _, count in means),
        steps=len(means),
        kl_first=_mean(means[:each]),
        kl_last=_mean(means[-each:]),
        acceptance_before=before,
        acceptance_after=after,
        continued=continued,
    )


def acceptance(model: PreTrainedModel, head: MtpHead, rows: Sequence[Row], budget: Budget) -> float | None:
    """Share of the head's drafts that an engine sampling at temperature 1 would accept; None of none."""
    overlap, count = 0.0, 0
    with torch.no_grad():
        for batch in _batches(rows, budget):
            student, teacher = _states(model, head, batch)
            for first in range(0, len(student), per := _rows(model, budget)):
                p, q = (
                    output_head(model)(states[first : first + per]).softmax(-1)
                    for states in (teacher, student)
                )
                overlap += float(torch.minimum(p, q).sum())
            count += len(student)
    return overlap / count if count else None


def divergence(student: Tensor, teacher: Tensor, head: Head, *, block_rows: int) -> Tensor:
    """Sum over n rows of KL(p || q), nats: hidden states [n, H] through `head`; p carries no gradient.

    At most `block_rows` rows of logits exist at a time.
    """
    total = student.new_zeros(())
    for first in range(0, len(student), block_rows):
        block = (student[first : first + block_rows], teacher[first : first + block_rows], head)
        if torch.is_grad_enabled() and len(student) > block_rows:
            total = total + checkpoint(_block, *block, use_reentrant=False, preserve_rng_state=False)
        else:
            total = total + _block(*block)
    return total


def _block(student: Tensor, teacher: Tensor, head: Head) -> Tensor:
    with torch.no_grad():
        p = head(teacher).log_softmax(-1)
    q = head(student).log_softmax(-1)
    return (p.exp() * (p - q)).sum()


def _batches(rows: Sequence[Row], budget: Budget) -> list[list[Row]]:
    """Micro-batches of rows with something to learn, in each of which all rows begin with one token.

    The head is packed by the tokens after the first, and rows that differ in that alone must not share.
    """
    found: list[list[Row]] = []
    useful = [row for row in rows if (row.targets >= 2).any()]
    for start in sorted({int(row.token_ids[0]) for row in useful}):
        found += plan([row for row in useful if row.token_ids[0] == start], budget)
    return found


def _states(model: PreTrainedModel, head: MtpHead, rows: Sequence[Row]) -> tuple[Tensor, Tensor]:
    """(m, h), both [n, H]: what the head and the model predict the rows' n trained tokens from."""
    device = next(model.parameters()).device
    trunk = pack([row.token_ids[:-1] for row in rows])
    with torch.no_grad():
        hidden = hidden_states(model, trunk.to(device))
    shifted = pack([row.token_ids[1:-1] for row in rows])
    place = np.empty(shifted.tokens, dtype=np.int64)
    student, teacher = [], []
    for row, mine, theirs in zip(rows, shifted.cells, trunk.cells, strict=True):
        place[mine] = theirs[: len(mine)]
        targets = row.targets[row.targets >= 2]
        student.append(mine[targets - 2])
        teacher.append(theirs[targets - 1])
    out = head(model, hidden.index_select(0, torch.from_numpy(place).to(device)), shifted.to(device))
    indices = [torch.from_numpy(np.concatenate(each)).to(device) for each in (student, teacher)]
    return out.index_select(0, indices[0]), hidden.index_select(0, indices[1])


def _step(
    model: PreTrainedModel,
    head: MtpHead,
    rows: Sequence[Row],
    optimizer: torch.optim.Optimizer,
    max_norm: float,
    budget: Budget,
) -> tuple[float, int]:
    """(mean KL in nats, tokens) of one step."""
    loss, count = _loss(model, head, rows, budget)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(head.parameters(), max_norm)
    optimizer.step()
    return float(loss.detach()), count


def _loss(model: PreTrainedModel, head: MtpHead, rows: Sequence[Row], budget: Budget) -> tuple[Tensor, int]:
    """(mean KL in nats, tokens). Raises IntegrityError when it is not finite."""
    student, teacher = _states(model, head, rows)
    count = len(student)
    loss = divergence(student, teacher, output_head(model), block_rows=_rows(model, budget)) / count
    if not torch.isfinite(loss):
        raise IntegrityError(
            "the loss of the multi-token prediction head is not finite", hint="lower train.mtp_learning_rate"
        )
    return loss, count


def _rows(model: PreTrainedModel, budget: Budget) -> int:
    return rows_within(budget.logits_mib, int(model.config.get_text_config().vocab_size))


def _mean(means: Sequence[tuple[float, int]]) -> float:
    tokens = sum(count for _, count in means)
    return sum(mean * count for mean, count in means) / tokens if tokens else 0.0


@contextmanager
def _frozen(model: PreTrainedModel) -> Iterator[None]:
    """No weight of `model` gathers a gradient."""
    wanted = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in wanted:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in wanted:
            parameter.requires_grad_(True)
