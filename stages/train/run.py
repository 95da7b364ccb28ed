"""`rtrl train`: one update of the policy from one experience, or the import of one made elsewhere.

    inputs   experience, line_state (distilled with it), parent (the live checkpoint), anchor
    outputs  checkpoint, line_state

This module is what the runner sees; the work is in `pipeline.py`, which imports torch and is
imported when a run begins, and for imports in `outside/adopt.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from stages.errors import UsageError
from stages.gateway.keys import ApiKeys
from stages.stage import Artifact, Kind, Outcome, RunContext
from stages.train.config import TrainConfig

if TYPE_CHECKING:
    from stages.registry.store import Store
    from stages.workspace import Workspace


class TrainStage:
    """See `stages/stage.py`. With `import_dir` a folder trained elsewhere is adopted instead.

    Attributes:
        import_dir: a Hugging Face folder. `parent` (a reference) is what it was trained from, `consumed`
            (references) the experiences it was trained on.
    """

    name = "train"
    config: type[BaseModel] = TrainConfig
    takes: tuple[Kind, ...] = ("experience", "checkpoint", "line_state")
    explain: str = ""  # the episode that `plan` explains, in place of the batch
    import_dir: Path | None = None
    parent: str = ""
    consumed: Sequence[str] = ()

    def resolve(self, workspace: Workspace, store: Store, refs: Mapping[str, str]) -> dict[str, Artifact]:
        """Input artifacts by role, see `inputs.py` and `outside/adopt.py`."""
        from stages.train.inputs import resolve_inputs

        settings = workspace.settings
        if self.import_dir is not None:
            from stages.train.outside.adopt import resolve_import

            if not self.parent:
                raise UsageError("--import needs --parent", hint="name the checkpoint it was trained from")
            return resolve_import(store, settings.workspace.line, self.parent, self.consumed, refs)
        if self.parent or self.consumed:
            raise UsageError("--parent and --consumed belong to --import", hint="name a parent with --input")
        return resolve_inputs(store, settings.workspace.line, refs, settings.train.max_lag)

    def extra(self, workspace: Workspace, store: Store, config: BaseModel) -> Mapping[str, Any]:
        """What else decides: the dtype the engine serves in (the tolerance of the on-policy proof), and
        which API keys are shared by many people (the caps); of an import what is in its folder."""
        shared_keys = ApiKeys.shared_ids(workspace.keys_dir)
        if self.import_dir is not None:
            from stages.train.outside.weights import folder_digest

            return {"imported": folder_digest(self.import_dir), "shared_keys": shared_keys}
        return {"engine_dtype": workspace.settings.engine.dtype, "shared_keys": shared_keys}

    def plan(
        self,
        config: BaseModel,
        inputs: Mapping[str, Artifact],
        extra: Mapping[str, Any],
        ctx: RunContext,
    ) -> Mapping[str, Any]:
        """The batch table of `--dry-run`: what would be trained on, what not and why; an import's checks.

        With `explain` the terms of that episode instead.
        """
        if "imported" in extra:
            from stages.train.outside.adopt import plan_import

            if self.explain:
                raise UsageError(
                    "a run that imported a model has no loss to explain", hint="name another run"
                )
            return plan_import(self._folder(), inputs, ctx)
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
        if "imported" in extra:
            from stages.train.outside.adopt import import_checkpoint

            return import_checkpoint(self._folder(), config, inputs, extra, out_dir, ctx)
        batch = load_batch(inputs, config, ctx.workspace, ctx.store)
        table = batch_table(batch)
        ctx.log.write("train.batch", **table)
        for generation, reason in batch.quarantined.items():
            ctx.log.write("train.quarantined", generation=generation, reason=reason)
        refuse_small(batch, inputs["experience"], config)
        from stages.train.pipeline import train

        return train(batch, table, config, inputs, extra, out_dir, ctx)

    def _folder(self) -> Path:
        """The folder to import. Raises UsageError when a run that imported one is repeated without."""
        if self.import_dir is None:
            raise UsageError("the run imported a folder", hint="name it: --import DIR --from-run RUN")
        return self.import_dir


STAGE = TrainStage()
