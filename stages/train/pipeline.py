"""A training run from batch to outputs, in one process or several: what `rtrl train` and `--explain` call.

Not here: the phases (`phases.py`); the runner's view (`run.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch

from stages import exclusion
from stages.contributor_cap import BARELY
from stages.errors import DependencyDownError, IntegrityError, RtrlError
from stages.stage import Artifact, Outcome, RunContext
from stages.train import crew, exits, ranks, routing
from stages.train.advantage import is_degenerate
from stages.train.batch import Batch
from stages.train.config import TrainConfig
from stages.train.evidence import Evidence, batch_digest
from stages.train.load import refuse_small
from stages.train.models import compute_dtype, device_of, placement, process_count
from stages.train.objective import Objective
from stages.train.phases import Phases
from stages.train.update import Updated
from stages.wording import count, percent


def train(
    batch: Batch,
    table: dict[str, Any],
    config: TrainConfig,
    inputs: Mapping[str, Artifact],
    extra: Mapping[str, Any],
    out_dir: Path,
    ctx: RunContext,
) -> Outcome:
    """One update from `batch`; `table` describes it. Writes checkpoint and line state under `out_dir`.

    Raises IntegrityError (exit 12) when the batch is not what its checkpoint sampled, or when numbers
    stop being finite; InconclusiveError (exit 4) when it teaches nothing; DependencyDownError (exit 13)
    when there is not enough memory.
    """
    with _deterministic(), _joined(batch, config, inputs, extra, ctx), _in_memory():
        run = Phases(config, inputs, extra, ctx)
        model, proven, objective, updated = run.trained(batch)
        finished = run.models.finished(model)
        moments = run.whole_moments(updated)
        about = placement(run.models, ranks.count())
        assert finished is not None
        drafting = run.drafting(finished, proven.batch)
    outputs, published = run.write(finished, proven.batch, updated, moments, drafting, out_dir)
    audit = exits.audit(proven.batch, inputs["experience"], ctx.store)
    metrics = about | _metrics(table, proven, objective, updated)
    if drafting is not None:
        metrics["mtp"] = drafting.done.as_dict()
    return Outcome(
        outputs=outputs,
        metrics=metrics | {"audit": audit, "weights": published.as_dict()},
        warnings=_warnings(proven, objective, updated) + exclusion.warnings(audit),
    )


def follow_run(
    batch: Batch,
    config: TrainConfig,
    inputs: Mapping[str, Artifact],
    extra: Mapping[str, Any],
    ctx: RunContext,
) -> None:
    """The same on the other ranks, which write nothing."""
    with _deterministic(), _in_memory():
        run = Phases(config, inputs, extra, ctx)
        model, _, _, updated = run.trained(batch)
        run.models.finished(model)
        run.whole_moments(updated)


@contextmanager
def _joined(
    batch: Batch,
    config: TrainConfig,
    inputs: Mapping[str, Artifact],
    extra: Mapping[str, Any],
    ctx: RunContext,
) -> Iterator[None]:
    """With the other processes of the run; a small float32 model on a CPU trains without a group."""
    count, device = process_count(config), device_of(config)
    if count == 1 and not crew.from_torchrun() and _needs_no_group(config):
        yield
        return
    job = crew.Job(
        workspace=str(ctx.workspace.root),
        store=str(ctx.workspace.store_dir),
        scratch=str(ctx.scratch),
        run_id=ctx.run_id,
        seed=ctx.seed,
        config=config.model_dump(mode="json"),
        extra=dict(extra),
        inputs={role: artifact.digest for role, artifact in inputs.items()},
        batch=batch_digest(batch),
    )
    with crew.together(job, count, device, ctx.scratch):
        yield


def _needs_no_group(config: TrainConfig) -> bool:
    return compute_dtype(config) == "float32" and device_of(config) == "cpu"


def prepare(
    batch: Batch,
    config: TrainConfig,
    inputs: Mapping[str, Artifact],
    extra: Mapping[str, Any],
    ctx: RunContext,
) -> tuple[Evidence, Objective, list[str]]:
    """What `train` computes before its first step, and why it would refuse to take one. Trains nothing.

    In the dtype of a run, and in this process alone.
    """
    problems: list[str] = []
    group = nullcontext() if _needs_no_group(config) else crew.alone(device_of(config))
    with _deterministic(), group, _in_memory():
        run = Phases(config, inputs, extra, ctx)
        run.check(batch)
        try:
            proven = run.gather(batch)
        except IntegrityError as error:
            problems.append(error.message)
            proven = run.unproven(batch)
        try:
            refuse_small(proven.batch, inputs["experience"], config)
        except RtrlError as error:
            problems.append(error.message)
        objective = run.terms(proven)
    if why := is_degenerate(proven.batch.rewards, objective.advantage):
        problems.append(f"the batch teaches nothing: {why}")
    return proven, objective, problems


def _metrics(
    table: dict[str, Any], proven: Evidence, objective: Objective, updated: Updated
) -> dict[str, Any]:
    last = updated.steps[-1]
    return {
        "batch": table,
        "proof": proven.proof,
        **({"routing": proven.routing} if proven.routing else {}),
        "trained_episodes": len(updated.used),
        "advantage_mean": float(objective.advantage.mean()),
        "advantage_std": float(objective.advantage.std()),
        "baseline_mean": float(objective.baseline.mean()),
        "kl_penalty_std": float(np.std(objective.penalty)),
        "user_cap": objective.capped.user_cap,
        "users_capped": objective.capped.users,
        "key_cap": objective.capped.key_cap,
        "keys_capped": objective.capped.keys,
        "kept": objective.capped.kept,
        "kl_parent": last["kl_parent"],
        "kl_anchor": last["kl_anchor"],
        "entropy": last["entropy"],
        "entropy_parent": float(np.nanmean(proven.entropy)),
        "grad_norm": last["grad_norm"],
        "ess": min(step["ess"] for step in updated.steps),
        "tokens_per_s": float(np.mean([step["tokens_per_s"] for step in updated.steps])),
        "optimizer_steps": updated.steps,
        "stopped": updated.stopped,
    }


def _warnings(proven: Evidence, objective: Objective, updated: Updated) -> list[str]:
    found = []
    found += routing.warnings(proven.routing)
    if updated.stopped:
        found.append(f"the update ended early: {updated.stopped}")
    if (most := max((step["clipped"] for step in updated.steps), default=0.0)) > 0.5:
        found.append(f"train.correction limited {most:.0%} of the tokens of a step: its bounds are narrow")
    if users := len(objective.capped.users):
        found.append(
            f"{count(users, 'user')} reached the cap of {percent(objective.capped.user_cap)} of the gradient"
        )
    if keys := len(objective.capped.keys):
        found.append(
            f"{count(keys, 'API key')} reached the cap of {percent(objective.capped.key_cap)} of the gradient"
        )
    if objective.capped.relaxed > BARELY:
        found.append(
            f"nearly all use came from few: the caps were relaxed to keep {objective.capped.kept:.0%} of the "
            "gradient (`rtrl keys set NAME --shared` for a product's own key)"
        )
    if outliers := proven.batch.excluded.get("proof_outlier", 0):
        left = f"{count(outliers, 'episode')} left out"
        found.append(f"{left}: the logprobs are not those of their sampler")
    return found


@contextmanager
def _deterministic() -> Iterator[None]:
    """Deterministic torch; this setting and the number of threads are restored afterwards."""
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        torch.use_deterministic_algorithms(before[1])


@contextmanager
def _in_memory() -> Iterator[None]:
    """Torch's errors of memory that is not there are told with what makes a run need less."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        said = str(error).partition("\n")[0]
        known = isinstance(error, MemoryError | torch.OutOfMemoryError) or "DefaultCPUAllocator" in said
        if not known:
            raise
        raise DependencyDownError(
            f"there is not enough memory to train: {said or 'allocation failed'}",
            hint="lower train.micro_batch_tokens and train.logits_mib (on a CPU train.model_copies), compute "
            "layers again (train.activation_checkpointing), train an adapter or in more processes",
        ) from error
