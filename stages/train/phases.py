"""The phases of a training run: prove, build the objective, update, write. All but the last on every rank.

Not here: the algorithms, each in a file of its own; processes, result and warnings (`pipeline.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cursorbench.pretrained import config_of
from stages.errors import InconclusiveError
from stages.linestate import OPTIMIZER_FILE
from stages.rewarded import rewarded_by
from stages.stage import Artifact, Output, RunContext
from stages.train import export
from stages.train.advantage import is_degenerate, updated_baselines
from stages.train.batch import Batch
from stages.train.config import TrainConfig
from stages.train.contributors import weigh_by
from stages.train.delta import Published
from stages.train.evidence import Evidence, batch_digest, check_tokenizers, gather
from stages.train.forward import Budget, score
from stages.train.load import refuse_small
from stages.train.models import Finished, Models, compute_dtype
from stages.train.moments import NEW, Moments, read_moments
from stages.train.mtp_head import MtpHead, head_of, require_fit
from stages.train.objective import Objective, build_objective
from stages.train.packable import require_length, require_plain_weights
from stages.train.proof import TOLERANCES, Tolerance
from stages.train.self_distillation import Distilled, distil
from stages.train.shard import whole_on_first
from stages.train.update import TokenData, Updated, run_update

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def loss_constant(batch: Batch, config: TrainConfig) -> float:
    """C of the loss: the trained tokens of one optimizer step, on average. One for the whole batch."""
    return batch.tokens / min(config.optimizer_steps, len(batch.episodes))


@dataclass(frozen=True)
class Drafting:
    """A trained multi-token prediction head, and what its training did."""

    head: MtpHead
    done: Distilled


class Phases:
    """One run's configuration, inputs and models. Its phases are called in the order they stand here."""

    def __init__(
        self,
        config: TrainConfig,
        inputs: Mapping[str, Artifact],
        extra: Mapping[str, Any],
        ctx: RunContext,
    ) -> None:
        self.config, self.ctx = config, ctx
        if config.mtp_passes:
            require_fit(inputs["parent"].path)
        self.experience, self.parent, self.anchor = inputs["experience"], inputs["parent"], inputs["anchor"]
        self.before = inputs["line_state"]
        self.rewarded_by = rewarded_by(self.experience)
        self.models = Models(config, self.parent, self.before.path, ctx.store, ctx.seed)
        self.state = self.models.state
        self.shared_keys = extra["shared_keys"]
        usual = [TOLERANCES[dtype] for dtype in (extra["engine_dtype"], compute_dtype(config))]
        self.tolerance = Tolerance(
            config.proof_mean_tolerance or max(each.mean for each in usual),
            config.proof_p99_tolerance or max(each.p99 for each in usual),
        )
        self.budget = Budget(
            config.micro_batch_tokens, config.logits_mib, self.models.threads, config.model_copies
        )

    def trained(self, batch: Batch) -> tuple[PreTrainedModel, Evidence, Objective, Updated]:
        """Everything up to the last step. The same on every rank."""
        self.check(batch)
        proven = self.gather(batch)
        refuse_small(proven.batch, self.experience, self.config)
        objective = self.objective(proven)
        model = self.models.policy()
        return model, proven, objective, self.update(model, proven, objective)

    def check(self, batch: Batch) -> None:
        """Raises IntegrityError or UsageError when the parent cannot be given these tokens."""
        check_tokenizers(batch, self.parent, self.ctx.store)
        config = config_of(self.parent.path)
        require_plain_weights(config, str(config.model_type))
        require_length(config, max(len(row.token_ids) for row in batch.rows))

    def gather(self, batch: Batch) -> Evidence:
        """The batch with its proven logprobs."""
        return gather(
            batch,
            self.parent,
            self.anchor,
            tolerance=self.tolerance,
            budget=self.budget,
            load=self.models.load,
            ctx=self.ctx,
        )

    def unproven(self, batch: Batch) -> Evidence:
        """The batch with its logprobs, whether or not they are those of the log."""
        load = self.models.load
        logp, entropy = score(load(self.parent), batch.rows, batch.tokens, self.budget)
        anchor = score(load(self.anchor), batch.rows, batch.tokens, self.budget)[0]
        return Evidence(batch, logp, anchor, entropy)

    def terms(self, proven: Evidence) -> Objective:
        """The terms of the loss."""
        table = self.state.baselines.get(self.rewarded_by, {})
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

    def update(self, model: PreTrainedModel, proven: Evidence, objective: Objective) -> Updated:
        """Train `model` in place.

        Raises InconclusiveError when a limit forbade the very first step, or ended the update before half of
        its steps: so steep an update is no smaller one of the same kind, and the gate need not try its luck.
        """
        config, batch = self.config, proven.batch
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
                hint="too far off-policy: collect again from the live checkpoint; too far from the anchor: "
                "go back to an earlier checkpoint, or `rtrl anchor`",
            )
        if updated.stopped and 2 * len(updated.steps) < updated.planned:
            raise InconclusiveError(
                f"the update was ended after {len(updated.steps)} of {updated.planned} optimizer steps: "
                f"{updated.stopped}",
                hint="lower train.learning_rate; where it is the anchor's limit, go back to an earlier "
                "checkpoint, or `rtrl anchor`",
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

    def drafting(self, finished: Finished, batch: Batch) -> Drafting | None:
        """The multi-token prediction head of the new checkpoint, trained; None where none is wanted.

        On rank 0 alone, whole: the head is small, and the model is not trained any more.
        """
        if not self.config.mtp_passes:
            return None
        model = finished.model.to(self.models.device)
        above = self.ctx.store.checkpoint_folder(self.parent)
        head, continued = head_of(model, above, self.ctx.seed)
        done = distil(
            model,
            head,
            batch.rows,
            self.config,
            budget=self.budget,
            seed=self.ctx.seed,
            continued=continued,
            log=self.ctx.log,
            progress=self.ctx.progress,
        )
        return Drafting(head, done)

    def write(
        self,
        finished: Finished,
        batch: Batch,
        updated: Updated,
        moments: Moments | None,
        drafting: Drafting | None,
        out_dir: Path,
    ) -> tuple[dict[str, Output], Published]:
        """Checkpoint and line state, and how the weights are published. On rank 0.

        Only the episodes that were used count as seen. Raises UsageError when nothing moved.
        """
        used = sorted(updated.used)
        episodes = [batch.episodes[index] for index in used]
        table = updated_baselines(
            batch.rewards[used],
            [episode.stratum for episode in episodes],
            self.state.baselines.get(self.rewarded_by, {}),
            self.config.baseline_half_life,
            weigh_by(episodes, self.config, self.shared_keys),
        )
        checkpoint, published = export.write_checkpoint(
            finished, self.parent, out_dir, self.config, self.ctx, drafting.head if drafting else None
        )
        export.refuse_unmoved(finished, out_dir / export.CHECKPOINT, self.config)
        state = export.write_line_state(
            finished,
            {"parent": self.parent, "line_state": self.before, "experience": self.experience},
            out_dir,
            baselines={**self.state.baselines, self.rewarded_by: table},
            consumed=[episode.episode_id for episode in episodes],
            moments=moments,
            config=self.config,
            store=self.ctx.store,
        )
        return {export.CHECKPOINT: checkpoint, export.LINE_STATE: state}, published
