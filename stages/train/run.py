"""`rtrl train`: one update of the policy from one experience.

    inputs   experience, line_state (distilled with it), parent (the live checkpoint), anchor
    outputs  checkpoint, line_state

This module is what the runner sees; the work is in `pipeline.py`, which imports torch and is
imported when a run begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from stages.gateway.keys import ApiKeys
from stages.stage import Artifact, Kind, Outcome, RunContext
from stages.train.config import TrainConfig

if TYPE_CHECKING:
    from stages.registry.store import Store
    from stages.workspace import Workspace


class TrainStage:
    """See `stages/stage.py`."""

    name = "train"
    config = TrainConfig
    takes: tuple[Kind, ...] = ("experience", "checkpoint", "line_state")
    explain: str = ""  # the episode that `plan` explains, in place of the batch

    def resolve(self, workspace: Workspace, store: Store, refs: Mapping[str, str]) -> dict[str, Artifact]:
        """Input artifacts by role, see `inputs.py`."""
        from stages.train.inputs import resolve_inputs

        settings = workspace.settings
        return resolve_inputs(store, settings.workspace.line, refs, settings.train.max_lag)

    def extra(self, workspace: Workspace, store: Store, config: BaseModel) -> Mapping[str, Any]:
        """What else decides: the dtype the engine serves in (the tolerance of the on-policy proof), and
        which API keys are shared by many people (the caps)."""
        return {
            "engine_dtype": workspace.settings.engine.dtype,
            "shared_keys": ApiKeys.shared_ids(workspace.keys_dir),
        }

    def plan(
        self,
        config: BaseModel,
        inputs: Mapping[str, Artifact],
        extra: Mapping[str, Any],
        ctx: RunContext,
    ) -> Mapping[str, Any]:
        """The batch table of `--dry-run`: what would be trained on, what not and why.

        With `explain` the terms of that episode instead.
        """
        assert isinstance(config, TrainConfig)
        if self.explain:
            from stages.train.explain import explain

            return explain(self.explain, config, inputs, extra, ctx).to_dict()
        from stages.train.load import batch_table, load_batch

        return {"batch": batch_table(load_batch(inputs, config, ctx.workspace, ctx.store))}

    def run(
        self,
        config: BaseModel,
        inputs: Mapping[str, Artifact],
        extra: Mapping[str, Any],
        out_dir: Path,
        ctx: RunContext,
    ) -> Outcome:
        """One update. Refuses (exit 4, 5) a batch that cannot teach, stops (exit 12) on a wrong premise."""
        from stages.train.load import batch_table, load_batch, refuse_small

        assert isinstance(config, TrainConfig)
        batch = load_batch(inputs, config, ctx.workspace, ctx.store)
        table = batch_table(batch)
        ctx.log.write("train.batch", **table)
        refuse_small(batch, inputs["experience"], config)
        from stages.train.pipeline import train

        return train(batch, table, config, inputs, extra, out_dir, ctx)


STAGE = TrainStage()
