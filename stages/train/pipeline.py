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

from stages import modelio
from stages.errors import InconclusiveError, IntegrityError, RtrlError
from stages.linestate import MASTERS_FILE, OPTIMIZER_FILE, LineState
from stages.stage import Artifact, Outcome, Output, RunContext
from stages.train import attention, export
from stages.train.advantage import is_degenerate, updated_baselines
from stages.train.batch import Batch
from stages.train.config import TrainConfig
from stages.train.delta import Published
from stages.train.evidence import Evidence, batch_digest, check_tokenizers, gather
from stages.train.forward import Budget, score
from stages.train.load import refuse_small
from stages.train.moments import NEW, read_moments
from stages.train.objective import Objective, build_objective
from stages.train.parallel import copies_for
from stages.train.proof import TOLERANCES, Tolerance
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
    with _deterministic():
        run = _Run(config, inputs, extra, ctx)
        check_tokenizers(batch, run.parent, ctx.store)
        proven = run.gather(batch)
        refuse_small(proven.batch, inputs["experience"], config)
        objective = run.objective(proven)
        model = run.policy()
        updated = run.update(model, proven, objective)
        outputs, published = run.write(model, proven.batch, updated, out_dir)
    return Outcome(
        outputs=outputs,
        metrics=_metrics(table, proven, objective, updated) | {"weights": published.as_dict()},
        warnings=_warnings(proven, objective, updated),
    )


def prepare(
    batch: Batch,
    config: TrainConfig,
    inputs: Mapping[str, Artifact],
    extra: Mapping[str, Any],
    ctx: RunContext,
) -> tuple[Evidence, Objective, list[str]]:
    """What `train` computes before its first step, and why it would refuse to take one. Trains nothing."""
    problems: list[str] = []
    with _deterministic():
        run = _Run(config, inputs, extra, ctx)
        check_tokenizers(batch, run.parent, ctx.store)
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


def loss_constant(batch: Batch, config: TrainConfig) -> float:
    """C of the loss: the trained tokens of one optimizer step, on average. One for the whole batch."""
    return batch.tokens / min(config.optimizer_steps, len(batch.episodes))


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
        self.state_folder = inputs["line_state"].path
        self.before = inputs["line_state"]
        self.state = LineState.load(self.state_folder)
        self.spec = str(self.experience.meta["spec"])
        found = "cuda" if torch.cuda.is_available() else "cpu"
        self.device = found if config.device == "auto" else config.device
        self.shared_keys = extra["shared_keys"]
        self.threads = config.threads or torch.get_num_threads()
        self.attention = attention.register()
        usual = TOLERANCES[extra["engine_dtype"]]
        self.tolerance = Tolerance(
            config.proof_mean_tolerance or usual.mean, config.proof_p99_tolerance or usual.p99
        )
        self.budget = Budget(config.micro_batch_tokens, config.logits_mib, self.threads, config.model_copies)
        self._parent_model: PreTrainedModel | None = None

    def load(self, checkpoint: Artifact) -> PreTrainedModel:
        """The model of a checkpoint in float32, with packed attention."""
        if checkpoint.digest == self.parent.digest and self._parent_model is not None:
            return self._parent_model
        folder = self.ctx.store.checkpoint_folder(checkpoint)
        model = modelio.load_model(folder, attention=self.attention, device=self.device)
        if checkpoint.digest == self.parent.digest:
            self._parent_model = model
        torch.set_num_threads(
            max(1, self.threads // copies_for(model, self.threads, self.config.model_copies))
        )
        return model

    def gather(self, batch: Batch) -> Evidence:
        """The batch with its proven logprobs."""
        return gather(
            batch,
            self.parent,
            self.anchor,
            tolerance=self.tolerance,
            budget=self.budget,
            load=self.load,
            ctx=self.ctx,
        )

    def unproven(self, batch: Batch) -> Evidence:
        """The batch with its logprobs, whether or not they are those of the log."""
        logp, entropy = score(self.load(self.parent), batch.rows, batch.tokens, self.budget)
        anchor = score(self.load(self.anchor), batch.rows, batch.tokens, self.budget)[0]
        return Evidence(batch, logp, anchor, entropy)

    def terms(self, proven: Evidence) -> Objective:
        """The terms of the loss."""
        table = self.state.baselines.get(self.spec, {})
        return build_objective(
            proven.batch, proven.parent, proven.anchor, table, self.config, self.shared_keys
        )

    def objective(self, proven: Evidence) -> Objective:
        """The terms of the loss. Raises InconclusiveError when all advantages are equal."""
        objective = self.terms(proven)
        if why := is_degenerate(proven.batch.rewards, objective.advantage):
            raise InconclusiveError(
                f"the batch teaches nothing: {why}",
                hint="`rtrl distill --explain EPISODE` shows where a reward comes from; else collect more",
            )
        return objective

    def policy(self) -> PreTrainedModel:
        """What is trained: the parent's model, taken over, with the float32 master weights."""
        model = self.load(self.parent)
        self._parent_model = None
        if self.state.masters == MASTERS_FILE:
            modelio.load_masters(model, self.state_folder / MASTERS_FILE)
        return model

    def update(self, model: PreTrainedModel, proven: Evidence, objective: Objective) -> Updated:
        """Train `model` in place. Raises InconclusiveError when a limit forbade the very first step."""
        config, batch = self.config, proven.batch
        carried = self.state_folder / OPTIMIZER_FILE
        updated = run_update(
            model,
            batch,
            TokenData(
                logged=batch.logged,
                parent=proven.parent,
                anchor=proven.anchor,
                coefficient=objective.coefficient,
                constant=loss_constant(batch, config),
            ),
            config,
            moments=read_moments(carried) if config.carry_moments and carried.is_file() else NEW,
            threads=self.threads,
            seed=self.ctx.seed,
            digest=batch_digest(batch),
            scratch=self.ctx.scratch,
            log=self.ctx.log,
            progress=self.ctx.progress,
        )
        if not updated.steps:
            raise InconclusiveError(
                f"no optimizer step was taken: {updated.stopped}",
                hint="too far off-policy: collect again from the live checkpoint; too far from the anchor: "
                "go back to an earlier checkpoint, or `rtrl anchor`",
            )
        return updated

    def write(
        self, model: PreTrainedModel, batch: Batch, updated: Updated, out_dir: Path
    ) -> tuple[dict[str, Output], Published]:
        """Checkpoint and line state, and how the weights are published.

        Only the episodes that were used count as seen.
        """
        used = sorted(updated.used)
        table = updated_baselines(
            batch.rewards[used],
            [batch.episodes[index].stratum for index in used],
            self.state.baselines.get(self.spec, {}),
            self.config.baseline_half_life,
        )
        checkpoint, published = export.write_checkpoint(model, self.parent, out_dir, self.config, self.ctx)
        state = export.write_line_state(
            model,
            self.before,
            out_dir,
            baselines={**self.state.baselines, self.spec: table},
            consumed=[batch.episodes[index].episode_id for index in used],
            moments=updated.moments if self.config.carry_moments else None,
            config=self.config,
        )
        return {export.CHECKPOINT: checkpoint, export.LINE_STATE: state}, published


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
    if (most := max((step["clipped"] for step in updated.steps), default=0.0)) > 0.5:
        found.append(f"train.correction limited {most:.0%} of the tokens of a step: its bounds are narrow")
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
