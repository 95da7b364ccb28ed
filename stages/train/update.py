"""The update: one epoch over the batch in a few optimizer steps.

Episodes are dealt to the steps by a seeded permutation, each to exactly one. A step goes through its
rows in packed micro-batches, adds up gradients, clips their norm, and steps AdamW on float32 weights.
After every step a micro-checkpoint is written; a run that finds one goes on behind it.

Not here: where coefficients come from (`objective.py`), what a micro-batch is (`forward.py`).
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from stages.errors import IntegrityError
from stages.train import resume
from stages.train.batch import Batch, Row
from stages.train.config import TrainConfig
from stages.train.correction import correction_of
from stages.train.forward import Budget, assemble, logprobs, plan
from stages.train.guards import Watch, limit_exceeded, live
from stages.train.loss import policy_loss
from stages.train.moments import Moments, moments_of, restore
from stages.train.parallel import Replicas, copies_for

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from stages.stage import Progress, RunLog

Array = NDArray[np.float32]


@dataclass(frozen=True)
class TokenData:
    """What each of the batch's M tokens brings into the loss and the guards; all [M], nats.

    `anchor` is None when there is no KL to an anchor. `constant` is C of the loss.
    """

    logged: Array
    parent: Array
    anchor: Array | None
    coefficient: Array
    constant: float


@dataclass
class Updated:
    """What an update did. `used` are indices of the episodes that were trained on."""

    steps: list[dict[str, Any]] = field(default_factory=list)
    used: list[int] = field(default_factory=list)
    stopped: str = ""  # why it ended early, "" when it did not
    moments: Moments = field(default_factory=lambda: Moments(0, {}))


def deal(episodes: int, steps: int, seed: int) -> list[NDArray[np.int64]]:
    """Episode indices of each optimizer step: equal parts of a seeded permutation, none empty."""
    order = np.random.default_rng(seed).permutation(episodes)
    return np.array_split(order, min(steps, episodes))


def learning_rate(config: TrainConfig, moments_step: int) -> float:
    """The rate of the next step; rises linearly over `warmup_steps` while Adam's moments are new."""
    if moments_step >= config.warmup_steps:
        return config.learning_rate
    return config.learning_rate * (moments_step + 1) / config.warmup_steps


def run_update(
    model: PreTrainedModel,
    batch: Batch,
    data: TokenData,
    config: TrainConfig,
    *,
    moments: Moments,
    threads: int,
    seed: int,
    digest: str,
    scratch: Path,
    log: RunLog,
    progress: Progress,
) -> Updated:
    """Train `model` in place. Goes on from the micro-checkpoint in `scratch` if there is one of `digest`.

    Raises IntegrityError when loss or gradient is not finite; the last good state stays in `scratch`.
    """
    parameters = dict(model.named_parameters())
    optimizer = _adamw(list(parameters.values()), config)
    result = _resumed(model, scratch / resume.STEP, digest) or Updated(moments=moments)
    if result.steps:
        progress.message(f"going on after optimizer step {len(result.steps)} of an earlier attempt")
        log.write("train.resumed", steps=len(result.steps))
    restore(optimizer, parameters, result.moments)
    budget = Budget(config.micro_batch_tokens, config.logits_mib, threads, config.model_copies)
    parts = deal(len(batch.episodes), config.optimizer_steps, seed)
    progress.start("optimizer steps", len(parts))
    progress.advance(len(result.steps))
    with Replicas(model, copies_for(model, threads, config.model_copies)) as replicas:
        for number in range(len(result.steps), len(parts)):
            if result.stopped:
                break
            rate = learning_rate(config, result.moments.step)
            for group in optimizer.param_groups:
                group["lr"] = rate
            rows = _rows_of(batch, parts[number])
            figures = _step(replicas, optimizer, rows, data, config, budget, number)
            result.stopped = figures.pop("stopped")
            figures |= {"step": number + 1, "episodes": len(parts[number]), "learning_rate": rate}
            log.write("train.step", **figures, stopped=result.stopped)
            if not result.stopped:
                result.steps.append(figures)
                result.used += [int(index) for index in parts[number]]
                result.moments = moments_of(optimizer, parameters)
            _remember(scratch / resume.STEP, parameters, result, digest)
            progress.message(f"optimizer step {number + 1} of {len(parts)}: {live(figures)}")
            progress.advance(1)
    return result


def _adamw(parameters: list[torch.nn.Parameter], config: TrainConfig) -> torch.optim.AdamW:
    return torch.optim.AdamW(
        parameters,
        lr=config.learning_rate,
        betas=(config.adam_beta1, config.adam_beta2),
        eps=config.adam_eps,
        weight_decay=config.weight_decay,
    )


def _resumed(model: PreTrainedModel, kept: Path, digest: str) -> Updated | None:
    """Where an earlier attempt of `digest` stopped, its weights loaded into `model`; None: there was none."""
    if (found := resume.load(kept, digest)) is None:
        return None
    tensors, about = found
    names = [name for name, _ in model.named_parameters()]
    model.load_state_dict({name: tensors.pop(f"weight.{name}") for name in names}, strict=False)
    return Updated(about["steps"], about["used"], about["stopped"], Moments(about["step"], tensors))


def _rows_of(batch: Batch, episodes: NDArray[np.int64]) -> list[Row]:
    chosen = {int(index) for index in episodes}
    return [row for row in batch.rows if row.episode in chosen]


def _step(
    replicas: Replicas,
    optimizer: torch.optim.Optimizer,
    rows: list[Row],
    data: TokenData,
    config: TrainConfig,
    budget: Budget,
    number: int,
) -> dict[str, Any]:
    """One optimizer step over `rows`; its figures. With "stopped" not "", the step was not taken."""
    started = time.monotonic()

    def one(copy: PreTrainedModel, chosen: list[Row]) -> tuple[float, tuple[Any, ...]]:
        return _backward(copy, chosen, data, config, budget)

    replicas.zero_gradients()
    results = replicas.map(one, plan(rows, budget))
    replicas.add_gradients()
    total = sum(loss for loss, _ in results)
    parameters = replicas.models[0].parameters()
    norm = float(torch.nn.utils.clip_grad_norm_(parameters, config.max_grad_norm))
    if not (math.isfinite(total) and math.isfinite(norm)):
        raise IntegrityError(
            f"optimizer step {number + 1}: loss {total}, gradient norm {norm}; the run stops",
            hint="nothing was published; the last good state is kept. Look at the batch, lower the rate",
        )
    watch = Watch()
    for _, seen in results:
        watch.add(*seen)
    figures = watch.figures()
    stopped = limit_exceeded(figures, config)
    if not stopped:
        optimizer.step()
    seconds = time.monotonic() - started
    context = sum(len(row.token_ids) for row in rows)
    return figures | {
        "loss": total,
        "grad_norm": norm,
        "stopped": stopped,
        "seconds": seconds,
        "tokens_per_s": context / seconds,
    }


def _backward(
    model: PreTrainedModel, rows: list[Row], data: TokenData, config: TrainConfig, budget: Budget
) -> tuple[float, tuple[Any, ...]]:
    """Add the gradient of one micro-batch; (its part of the loss, what `Watch.add` wants)."""
    micro = assemble(rows, model.device)
    logp, entropy = logprobs(model, micro, budget)

    def column(values: Array) -> torch.Tensor:
        return torch.from_numpy(values[micro.flat]).to(model.device)

    logged = column(data.logged)
    sequence = np.repeat(np.arange(len(rows)), [len(row.targets) for row in rows])
    loss, weights = policy_loss(
        logp,
        logged,
        column(data.coefficient),
        torch.from_numpy(sequence).to(model.device),
        correction=correction_of(config),
        constant=data.constant,
    )
    loss.backward()
    anchor = column(data.anchor) if data.anchor is not None else None
    return float(loss.detach()), (logp.detach(), entropy, weights, logged, column(data.parent), anchor)


def _remember(path: Path, parameters: dict[str, torch.nn.Parameter], result: Updated, digest: str) -> None:
    tensors = {f"weight.{name}": value for name, value in parameters.items()} | dict(result.moments.tensors)
    about = {
        "batch": digest,
        "steps": result.steps,
        "used": result.used,
        "stopped": result.stopped,
        "step": result.moments.step,
    }
    resume.save(path, tensors, about)
