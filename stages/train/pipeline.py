"""A training run from batch to outputs: prove it on-policy, build the objective, update, write.

Not here: the algorithms, each in a file of its own; the runner's view (`run.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from stages.errors import InconclusiveError
from stages.linestate import OPTIMIZER_FILE
from stages.stage import Artifact, Outcome, Output, RunContext
from stages.train import crew, export, ranks
from stages.train.advantage import is_degenerate, updated_baselines
from stages.train.batch import Batch
from stages.train.config import TrainConfig
from stages.train.evidence import Evidence, batch_digest, check_tokenizers, gather
from stages.train.forward import Budget
from stages.train.load import refuse_small
from stages.train.models import (
    Finished,
    Models,
    compute_dtype,
    device_of,
    placement,
    process_count,
)
from stages.train.moments import NEW, Moments, read_moments
from stages.train.objective import Objective, build_objective
from stages.train.proof import TOLERANCES, Tolerance
from stages.train.shard import whole_on_first
from stages.train.update import TokenData, Updated, run_update

if TYPE_CHECKING:
    from transformers import PreTrainedModel


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
    stop being finite; InconclusiveError (exit 4) when it teaches nothing.
    """
    with _deterministic(), _joined(batch, config, inputs, extra, ctx):
        run = _Run(config, inputs, extra, ctx)
        model, proven, objective, updated = run.trained(batch)
        finished = run.models.finished(model)
        moments = run.whole_moments(updated)
        about = placement(run.models, ranks.count())
    assert finished is not None
    outputs = run.write(finished, proven.batch, updated, moments, out_dir)
    return Outcome(
        outputs=outputs,
        metrics=about | _metrics(table, proven, objective, updated),
        warnings=_warnings(proven, objective, updated),
    )


def follow_run(
    batch: Batch,
    config: TrainConfig,
    inputs: Mapping[str, Artifact],
    extra: Mapping[str, Any],
    ctx: RunContext,
) -> None:
    """The same on the other ranks, which write nothing."""
    with _deterministic():
        run = _Run(config, inputs, extra, ctx)
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
    if count == 1 and not crew.from_torchrun() and compute_dtype(config) == "float32" and device == "cpu":
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


class _Run:
    """One run's configuration, inputs and device, and the parent's model, loaded once."""

    def __init__(
        self,
        config: TrainConfig,
        inputs: Mapping[str, Artifact],
        extra: Mapping[str, Any],
        ctx: RunContext,
    ) -> None:
        self.config, self.ctx = config, ctx
        self.experience, self.parent, self.anchor = inputs["experience"], inputs["parent"], inputs["anchor"]
        self.before = inputs["line_state"]
        self.spec = str(self.experience.meta["spec"])
        self.models = Models(config, self.parent, self.before.path, ctx.store, ctx.seed)
        self.state = self.models.state
        self.shared_keys = extra["shared_keys"]
        usual = [TOLERANCES[dtype] for dtype in (extra["engine_dtype"], compute_dtype(config))]
        self.tolerance = Tolerance(
            config.proof_mean_tolerance or max(each.mean for each in usual),
            config.proof_p99_tolerance or max(each.p99 for each in usual),
        )

    def trained(self, batch: Batch) -> tuple[PreTrainedModel, Evidence, Objective, Updated]:
        """Everything up to the last step. The same on every rank."""
        check_tokenizers(batch, self.parent, self.ctx.store)
        proven = self.gather(batch)
        refuse_small(proven.batch, self.experience, self.config)
        objective = self.objective(proven)
        model = self.models.policy()
        return model, proven, objective, self.update(model, proven, objective)

    def gather(self, batch: Batch) -> Evidence:
        """The batch with its proven logprobs."""
        return gather(
            batch,
            self.parent,
            self.anchor,
            tolerance=self.tolerance,
            budget=Budget(
                self.config.micro_batch_tokens,
                self.config.logits_mib,
                self.models.threads,
                self.config.model_copies,
            ),
            load=self.models.load,
            ctx=self.ctx,
        )

    def objective(self, proven: Evidence) -> Objective:
        """The terms of the loss. Raises InconclusiveError when all advantages are equal."""
        table = self.state.baselines.get(self.spec, {})
        objective = build_objective(
            proven.batch, proven.parent, proven.anchor, table, self.config, self.shared_keys
        )
        if why := is_degenerate(proven.batch.rewards, objective.advantage):
            raise InconclusiveError(
                f"the batch teaches nothing: {why}",
                hint="`rtrl distill --explain EPISODE` shows where a reward comes from; else collect more",
            )
        return objective

    def update(self, model: PreTrainedModel, proven: Evidence, objective: Objective) -> Updated:
        """Train `model` in place. Raises InconclusiveError when a limit forbade the very first step."""
        config, batch = self.config, proven.batch
        updated = run_update(
            model,
            batch,
            TokenData(
                logged=batch.logged,
                parent=proven.parent,
                anchor=proven.anchor,
                coefficient=objective.coefficient,
                constant=batch.tokens / min(config.optimizer_steps, len(batch.episodes)),
            ),
            config,
            moments=self.carried_moments(),
            threads=self.models.threads,
            seed=self.ctx.seed,
            digest=batch_digest(batch),
            scratch=self.ctx.scratch,
            log=self.ctx.log,
            progress=self.ctx.progress,
        )
        if not updated.steps:
            raise InconclusiveError(
                f"no optimizer step was taken: {updated.stopped}",
                hint="the batch is too far off-policy; collect again from the live checkpoint",
            )
        return updated

    def carried_moments(self) -> Moments:
        """Adam's moments of the run before; new ones where other weights are trained than then."""
        path = self.before.path / OPTIMIZER_FILE
        if not self.config.carry_moments or not path.is_file() or self.models.other_weights:
            return NEW
        return read_moments(path)

    def whole_moments(self, updated: Updated) -> Moments | None:
        """Those after the update, put together, on rank 0."""
        if not self.config.carry_moments:
            return None
        tensors = updated.moments.tensors
        return Moments(updated.moments.step, whole_on_first(tensors) if self.models.sharded else tensors)

    def write(
        self, finished: Finished, batch: Batch, updated: Updated, moments: Moments | None, out_dir: Path
    ) -> dict[str, Output]:
        """Checkpoint and line state; only the episodes that were used count as seen."""
        used = sorted(updated.used)
        table = updated_baselines(
            batch.rewards[used],
            [batch.episodes[index].stratum for index in used],
            self.state.baselines.get(self.spec, {}),
            self.config.baseline_half_life,
        )
        return {
            export.CHECKPOINT: export.write_checkpoint(finished, self.parent, out_dir, self.config),
            export.LINE_STATE: export.write_line_state(
                finished,
                self.before,
                out_dir,
                baselines={**self.state.baselines, self.spec: table},
                consumed=[batch.episodes[index].episode_id for index in used],
                moments=moments,
                config=self.config,
            ),
        }


def _metrics(
    table: dict[str, Any], proven: Evidence, objective: Objective, updated: Updated
) -> dict[str, Any]:
    last = updated.steps[-1]
    return {
        "batch": table,
        "proof": proven.proof,
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
    if updated.stopped:
        found.append(f"the update ended early: {updated.stopped}")
    if count := len(objective.capped.users):
        found.append(f"{count} users reached the cap of {objective.capped.user_cap:.0%} of the gradient")
    if count := len(objective.capped.keys):
        found.append(f"{count} API keys reached the cap of {objective.capped.key_cap:.0%} of the gradient")
    if objective.capped.relaxed:
        found.append(
            f"nearly all use came from few: the caps were relaxed to keep {objective.capped.kept:.0%} of the "
            "gradient (`rtrl keys set NAME --shared` for a product's own key)"
        )
    if outliers := proven.batch.excluded.get("proof_outlier", 0):
        found.append(f"{outliers} episodes were left out because their logprobs are not their sampler's")
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
