"""The update: one epoch over the batch in a few optimizer steps.

Episodes are dealt to the steps by a seeded permutation, each to exactly one. A step goes through its
rows in packed micro-batches, adds up gradients, clips their norm, and steps AdamW on float32 weights.
After every step a micro-checkpoint is written; a run that finds one goes on behind it. Weights that
are frozen (the base under an adapter) are neither stepped nor saved.

Every process of a run calls this, with the same arguments; the micro-batches are dealt to them.

Not here: where coefficients come from (`objective.py`), what a micro-batch is (`forward.py`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stages import faults
from stages.errors import IntegrityError
from stages.train import ranks, resume
from stages.train.batch import Batch, Row
from stages.train.config import TrainConfig
from stages.train.correction import correction_of
from stages.train.forward import Budget, assemble, cost, logprobs, plan
from stages.train.guards import Watch, limit_exceeded, live
from stages.train.loss import policy_loss
from stages.train.moments import Moments, empty_moments, moments_of, restore
from stages.train.parallel import Replicas, placed
from stages.train.routing import decisions_of
from stages.train.shard import Sharded, whole

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from stages.stage import Progress, RunLog

Array = NDArray[np.float32]


@dataclass(frozen=True)
class TokenData:
    """What each of the batch's M tokens brings into the loss and the guards; all [M], nats.

    `constant` is C of the loss.
    """

    logged: Array
    parent: Array
    anchor: Array
    coefficient: Array
    constant: float


@dataclass
class Updated:
    """What an update did, of so many `planned` steps. `used` are indices of the episodes trained on."""

    steps: list[dict[str, Any]] = field(default_factory=list)
    used: list[int] = field(default_factory=list)
    stopped: str = ""  # why it ended early, "" when it did not
    moments: Moments = field(default_factory=lambda: Moments(0, {}))
    planned: int = 0


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
    parameters = {name: value for name, value in model.named_parameters() if value.requires_grad}
    optimizer = _adamw(list(parameters.values()), config)
    result = _begun(parameters, scratch, digest, moments, log, progress)
    restore(optimizer, parameters, result.moments)
    budget = Budget(config.micro_batch_tokens, config.logits_mib, threads, config.model_copies)
    parts = deal(len(batch.episodes), config.optimizer_steps, seed)
    result.planned = len(parts)
    progress.start("optimizer steps", len(parts))
    progress.advance(len(result.steps))
    with placed(model, threads, config.model_copies) as workers:
        for number in range(len(result.steps), len(parts)):
            if result.stopped:
                break
            rate = learning_rate(config, result.moments.step)
            for group in optimizer.param_groups:
                group["lr"] = rate
            rows = _rows_of(batch, parts[number])
            if not ranks.is_first():
                faults.point(f"train.rank{ranks.rank()}.step.before")
            figures = _step(workers, optimizer, rows, data, config, budget, number)
            result.stopped = figures.pop("stopped")
            figures |= {"step": number + 1, "episodes": len(parts[number]), "learning_rate": rate}
            log.write("train.step", **figures, stopped=result.stopped)
            if not result.stopped:
                result.steps.append(figures)
                result.used += [int(index) for index in parts[number]]
                result.moments = moments_of(optimizer, parameters)
            if config.micro_checkpoints and (number + 1) % config.micro_checkpoints == 0:
                _remember(scratch, parameters, result, digest)
            progress.message(f"optimizer step {number + 1} of {len(parts)}: {live(figures)}")
            progress.advance(1)
    return result


def _begun(
    parameters: dict[str, torch.nn.Parameter],
    scratch: Path,
    digest: str,
    moments: Moments,
    log: RunLog,
    progress: Progress,
) -> Updated:
    """What an earlier attempt did, with its parameters; else nothing yet."""
    result = _resumed(parameters, scratch, digest) or Updated(moments=moments)
    if result.steps:
        progress.message(f"going on after optimizer step {len(result.steps)} of an earlier attempt")
        log.write("train.resumed", steps=len(result.steps))
    return result


def _adamw(parameters: list[torch.nn.Parameter], config: TrainConfig) -> torch.optim.AdamW:
    return torch.optim.AdamW(
        parameters,
        lr=config.learning_rate,
        betas=(config.adam_beta1, config.adam_beta2),
        eps=config.adam_eps,
        weight_decay=config.weight_decay,
    )


def _resumed(parameters: Mapping[str, Tensor], scratch: Path, digest: str) -> Updated | None:
    """Where an earlier attempt of `digest` stopped, its weights put into `parameters`; None: nowhere."""
    weights = {f"weight.{name}": torch.empty_like(value) for name, value in parameters.items()}
    moments = empty_moments(parameters)
    if (about := resume.load_step(scratch, digest, {**weights, **moments})) is None:
        return None
    with torch.no_grad():
        for name, value in parameters.items():
            value.copy_(weights[f"weight.{name}"])
    return Updated(about["steps"], about["used"], about["stopped"], Moments(about["step"], moments))


def _rows_of(batch: Batch, episodes: NDArray[np.int64]) -> list[Row]:
    chosen = {int(index) for index in episodes}
    return [row for row in batch.rows if row.episode in chosen]


def _step(
    workers: Replicas | Sharded,
    optimizer: torch.optim.Optimizer,
    rows: list[Row],
    data: TokenData,
    config: TrainConfig,
    budget: Budget,
    number: int,
) -> dict[str, Any]:
    """One optimizer step over `rows`; its figures. With "stopped" not "", the step was not taken."""
    started = time.monotonic()

    def one(copy: PreTrainedModel, chosen: list[Row], weight: float) -> tuple[float, Watch]:
        return _backward(copy, chosen, data, config, budget, weight)

    workers.zero_gradients()
    results = workers.map(one, plan(rows, budget), cost)
    workers.add_gradients()
    total = sum(loss for loss, _ in results)
    norm = _clip(workers.model, config.max_grad_norm)
    if not (math.isfinite(total) and math.isfinite(norm)):
        raise IntegrityError(
            f"optimizer step {number + 1}: loss {total}, gradient norm {norm}; the run stops",
            hint="nothing was published; the last good state is kept. Look at the batch, lower the rate",
        )
    watch = Watch()
    for _, seen in results:
        watch.extend(seen)
    figures = watch.figures()
    stopped = limit_exceeded(figures, config)
    if not stopped:
        optimizer.step()
        _refuse_broken(workers.model, number)
    seconds = time.monotonic() - started
    context = sum(len(row.token_ids) for row in rows)
    return figures | {
        "loss": total,
        "grad_norm": norm,
        "stopped": stopped,
        "seconds": seconds,
        "tokens_per_s": context / seconds,
    }


def _clip(model: PreTrainedModel, limit: float) -> float:
    """Scale the gradients down to the global norm `limit`; the norm that they had."""
    parameters = [each for each in model.parameters() if each.grad is not None]
    norm = whole(torch.nn.utils.get_total_norm([each.grad for each in parameters if each.grad is not None]))
    torch.nn.utils.clip_grads_with_norm_(parameters, limit, norm)
    return float(norm)


def _refuse_broken(model: PreTrainedModel, number: int) -> None:
    """Raises IntegrityError when a weight is not finite; the micro-checkpoint before then stays the last."""
    weights = [each.detach() for each in model.parameters() if each.requires_grad]
    if not math.isfinite(float(whole(torch.nn.utils.get_total_norm(weights)))):
        raise IntegrityError(
            f"optimizer step {number + 1} made weights that are not finite; the run stops",
            hint="nothing was published; the last good state is kept. Lower the rate, or the weight decay",
        )


def _backward(
    model: PreTrainedModel,
    rows: list[Row],
    data: TokenData,
    config: TrainConfig,
    budget: Budget,
    weight: float,
) -> tuple[float, Watch]:
    """Add `weight` times the gradient of one micro-batch; (its part of the loss, its tokens' figures)."""
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
    (loss if weight == 1 else loss * weight).backward()
    watch = Watch()
    watch.add(logp.detach(), entropy, weights, logged, column(data.parent), column(data.anchor))
    watch.routing.append(decisions_of(micro.pack.replay))
    return float(loss.detach()), watch


def _remember(scratch: Path, parameters: Mapping[str, Tensor], result: Updated, digest: str) -> None:
    """A micro-checkpoint. Before the first step there are no moments yet: that they are 0 is kept."""
    tensors = {f"weight.{name}": value for name, value in parameters.items()}
    tensors |= result.moments.tensors or empty_moments(parameters)
    about = {
        "batch": digest,
        "steps": result.steps,
        "used": result.used,
        "stopped": result.stopped,
        "step": result.moments.step,
    }
    resume.save_step(scratch, len(result.steps) + bool(result.stopped), tensors, about)
