"""`rtrl train --explain EPISODE`: what the loss would be made of, token by token. Trains nothing.

The whole batch is scored as before a first step, because baselines, the KL of the other episodes and the
caps on users and keys are the batch's; then the terms of one episode are shown. The ratios are those of
the first optimizer step; the later ones begin from weights that have moved.

Texts are of sampled tokens only and redacted (`token_text.py`). Not here: the terms (`objective.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from stages.episode_names import episode_of, no_such
from stages.errors import InputMissingError
from stages.train.batch import Batch, Row
from stages.train.config import TrainConfig
from stages.train.correction import correction_of
from stages.train.evidence import Evidence
from stages.train.load import load_batch
from stages.train.loss import token_losses
from stages.train.objective import Objective
from stages.train.phases import loss_constant
from stages.train.pipeline import prepare
from stages.train.token_text import shown_tokens
from stages.train.update import deal

if TYPE_CHECKING:
    from stages.stage import Artifact, RunContext


@dataclass(frozen=True)
class TokenTerms:
    """One trained token. Logprobs and `kl` in nats; `at` is its place in the sequence.

    `logp` is under the parent, `ratio` is exp(logp - logged), `weight` what the correction makes of it
    (`limited` when that is not the ratio itself), `kl` is k1 against the anchor, `penalty` its price in
    reward, `coefficient` = factor (advantage - penalty), `loss` = -weight coefficient logp / constant.
    """

    at: int
    text: str
    generation: str
    lag: int | None
    logged: float
    logp: float
    anchor: float
    ratio: float
    weight: float
    limited: bool
    kl: float
    advantage: float
    penalty: float
    coefficient: float
    loss: float


@dataclass(frozen=True)
class SequenceTerms:
    """Generations that extend one another's prefix. `context` tokens have no gradient: prompts, tool
    outputs, and what was masked."""

    generations: tuple[str, ...]
    context: int
    tokens: tuple[TokenTerms, ...]


@dataclass(frozen=True)
class Explanation:
    """The terms of one episode. `kl` is K_e in nats; `problems` say why a training run would refuse."""

    episode_id: str
    user: str
    stratum: str
    group: str
    reward: float
    baseline: float
    advantage: float
    kl: float
    factor: float
    correction: str
    constant: float
    optimizer_step: int
    optimizer_steps: int
    tokens: int
    loss: float
    problems: tuple[str, ...]
    sequences: tuple[SequenceTerms, ...]

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


def explain(
    name: str,
    config: TrainConfig,
    inputs: Mapping[str, Artifact],
    extra: Mapping[str, Any],
    ctx: RunContext,
) -> Explanation:
    """The terms of an episode of the batch that these inputs make.

    `name` is the episode's, or the id of one of its generations.

    Raises:
        InputMissingError: the experience does not hold the episode, or it is not trained on, and why.
        IntegrityError: tokens of another tokenizer, or damaged files.
    """
    episode_id = episode_of(ctx.store, inputs["experience"], name)
    batch = load_batch(inputs, config, ctx.workspace, ctx.store)
    _index(batch, episode_id, inputs, config, ctx)
    proven, objective, problems = prepare(batch, config, inputs, extra, ctx)
    index = _index(proven.batch, episode_id, inputs, config, ctx)
    return _explanation(index, proven, objective, tuple(problems), config, inputs, ctx.seed)


def _index(
    batch: Batch,
    episode_id: str,
    inputs: Mapping[str, Artifact],
    config: TrainConfig,
    ctx: RunContext,
) -> int:
    for index, episode in enumerate(batch.episodes):
        if episode.episode_id == episode_id:
            return index
    experience = inputs["experience"].ref
    alone = load_batch(inputs, config, ctx.workspace, ctx.store, only=episode_id)
    if not alone.seen:
        raise no_such(inputs["experience"], episode_id)
    why = next(iter(alone.excluded), "proof_outlier: its logprobs are not its sampler's")
    raise InputMissingError(
        f"episode {episode_id} of {experience} is not trained on: {why}",
        hint="--from-run RUN shows it as that run saw it; `rtrl distill --explain` shows its reward",
    )


def _explanation(
    index: int,
    proven: Evidence,
    objective: Objective,
    problems: tuple[str, ...],
    config: TrainConfig,
    inputs: Mapping[str, Artifact],
    seed: int,
) -> Explanation:
    batch, correction = proven.batch, correction_of(config)
    episode, mine = batch.episodes[index], batch.episode_of == index
    parent, logged = torch.from_numpy(proven.parent), torch.from_numpy(batch.logged)
    coefficient, sequence = torch.from_numpy(objective.coefficient), torch.from_numpy(batch.row_of)
    weights = correction.weights(parent - logged, coefficient, sequence)
    constant = loss_constant(batch, config)
    losses = token_losses(parent, weights.value, coefficient, constant=constant)
    bounded = correction.bounded(parent - logged, sequence).numpy()
    columns = _of_objective(objective, batch) | {
        "logged": batch.logged,
        "logp": proven.parent,
        "ratio": (parent - logged).exp().numpy(),
        "weight": weights.value.numpy(),
        "limited": weights.limited.numpy(),
        "loss": losses.numpy(),
    }
    parts = deal(len(batch.episodes), config.optimizer_steps, seed)
    return Explanation(
        episode_id=episode.episode_id,
        user=episode.user,
        stratum=episode.stratum,
        group=episode.group,
        reward=float(batch.rewards[index]),
        baseline=float(objective.baseline[index]),
        advantage=float(objective.advantage[index]),
        kl=float((bounded * objective.kl)[mine].sum()),
        factor=float(objective.capped.factor[index]),
        correction=correction.name,
        constant=constant,
        optimizer_step=next(number for number, part in enumerate(parts, 1) if index in part),
        optimizer_steps=len(parts),
        tokens=int(mine.sum()),
        loss=float(losses.numpy()[mine].astype(np.float64).sum()),
        problems=problems,
        sequences=tuple(
            _sequence(row, batch, columns, proven, inputs["parent"])
            for row in batch.rows
            if row.episode == index
        ),
    )


def _of_objective(objective: Objective, batch: Batch) -> dict[str, Any]:
    """What the objective says of each token of the batch."""
    return {
        "kl": objective.kl,
        "advantage": objective.advantage[batch.episode_of],
        "penalty": objective.penalty,
        "coefficient": objective.coefficient,
    }


def _sequence(
    row: Row, batch: Batch, columns: Mapping[str, Any], proven: Evidence, parent: Artifact
) -> SequenceTerms:
    texts = shown_tokens(parent.path, row.token_ids.tolist())
    tokens = []
    for at, flat, generation, sampler in zip(row.targets, row.flat, row.generation, row.sampler, strict=True):
        values: dict[str, Any] = {name: column[flat].item() for name, column in columns.items()}
        tokens.append(
            TokenTerms(
                at=int(at),
                text=texts[at],
                generation=row.generations[generation].id,
                lag=batch.lags[batch.samplers[sampler]],
                anchor=float(proven.anchor[flat]),
                **values,
            )
        )
    return SequenceTerms(
        tuple(each.id for each in row.generations), len(row.token_ids) - len(tokens), tuple(tokens)
    )
