"""The outputs of an update: the child checkpoint and the line state that belongs to it.

Not here: publishing (the runner), the delta to the parent (`delta.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from stages import modelio, served_fingerprint
from stages.linestate import (
    MASTERS_FILE,
    OPTIMIZER_FILE,
    Baseline,
    LineState,
    consumed_episodes,
    write_consumed,
)
from stages.stage import Artifact, Output, RunContext
from stages.train.config import TrainConfig
from stages.train.delta import Published, as_delta
from stages.train.moments import Moments, write_moments

if TYPE_CHECKING:
    from transformers import PreTrainedModel

CHECKPOINT = "checkpoint"
LINE_STATE = "line_state"


def write_checkpoint(
    model: PreTrainedModel, parent: Artifact, out_dir: Path, config: TrainConfig, ctx: RunContext
) -> tuple[Output, Published]:
    """Write `out_dir/checkpoint`, its weights whole or as a delta to the parent.

    Raises IntegrityError when a weight is not finite.
    """
    folder = out_dir / CHECKPOINT
    above = ctx.store.checkpoint_folder(parent)
    modelio.save_checkpoint(model, folder, companions=above, dtype=config.export_dtype)
    served_fingerprint.write_fingerprint(folder, parent=above)
    generation = int(parent.meta.get("generation", 0)) + 1
    meta = modelio.checkpoint_meta(folder, parent=parent.digest, generation=generation)
    published = as_delta(folder, parent, ctx.store, config.delta_chain)
    ctx.log.write("train.weights", **published.as_dict())
    return Output("checkpoint", meta, published.base), published


def write_line_state(
    model: PreTrainedModel,
    before: Artifact,
    out_dir: Path,
    *,
    baselines: dict[str, dict[str, Baseline]],
    consumed: Iterable[str],
    moments: Moments | None,
    config: TrainConfig,
) -> Output:
    """Write `out_dir/line_state`: the state `before` with what this update changed.

    `baselines` is the whole table by reward spec; `consumed` are the episodes of this update; no
    file of moments is written for None.
    """
    folder = out_dir / LINE_STATE
    folder.mkdir(parents=True)
    masters = "checkpoint" if config.export_dtype == "float32" else MASTERS_FILE
    if masters == MASTERS_FILE:
        from safetensors.torch import save_file

        weights = {name: value.detach().cpu().contiguous() for name, value in model.named_parameters()}
        with modelio.disk_errors():
            save_file(weights, folder / MASTERS_FILE)
    if moments is not None:
        write_moments(folder / OPTIMIZER_FILE, moments)
    write_consumed(folder, consumed_episodes(before.path) | set(consumed))
    state = msgspec.structs.replace(LineState.load(before.path), baselines=baselines, masters=masters)
    state.save(folder)
    return Output("line_state", {"checkpoint": f"output:{CHECKPOINT}", "stage": "train"})
