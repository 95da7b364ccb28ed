"""The outputs of an update: the child checkpoint and the line state that belongs to it.

Not here: publishing (the runner), the delta to the parent (`delta.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from stages import modelio, served_fingerprint
from stages.consumed import generation_of, listed_from, write_consumed
from stages.errors import UsageError
from stages.linestate import (
    ADAPTER_FILE,
    MASTERS_FILE,
    OPTIMIZER_FILE,
    Baseline,
    LineState,
    Masters,
)
from stages.stage import Artifact, Output, RunContext
from stages.train import adapter
from stages.train.config import TrainConfig
from stages.train.delta import Published, as_delta
from stages.train.moments import Moments, write_moments
from stages.train.mtp_head import write_head

if TYPE_CHECKING:
    from stages.registry.store import Store
    from stages.train.models import Finished
    from stages.train.mtp_head import MtpHead

CHECKPOINT = "checkpoint"
LINE_STATE = "line_state"


def write_checkpoint(
    finished: Finished,
    parent: Artifact,
    out_dir: Path,
    config: TrainConfig,
    ctx: RunContext,
    head: MtpHead | None = None,
) -> tuple[Output, Published]:
    """Write `out_dir/checkpoint`, its weights whole or as a delta to the parent; `head` beside them.

    Raises IntegrityError when a weight is not finite.
    """
    folder = out_dir / CHECKPOINT
    above = ctx.store.checkpoint_folder(parent)
    modelio.save_checkpoint(finished.model, folder, companions=above, dtype=config.export_dtype)
    if (adapted := finished.adapted) is not None:
        adapter.write_peft(folder / adapter.FOLDER, finished.adapter, adapted.shape, adapted.base)
    if head is not None:
        write_head(head, folder, config.export_dtype)
    served_fingerprint.write_fingerprint(folder, parent=above)
    meta = modelio.checkpoint_meta(folder, parent=parent.digest, generation=generation_of(parent) + 1)
    published = as_delta(folder, parent, ctx.store, config.delta_chain)
    ctx.log.write("train.weights", **published.as_dict())
    return Output("checkpoint", meta, published.base), published


def refuse_unmoved(finished: Finished, folder: Path, config: TrainConfig) -> None:
    """Raise UsageError when the checkpoint in `folder` says of each probe what its parent says.

    Not where what rounding took is kept, and adds up: in float32 masters, in an adapter.
    """
    probes = served_fingerprint.read_fingerprint(folder)["logprobs"]
    kept = finished.adapted is not None or config.export_dtype != "float32"
    if not kept and probes["child"] == probes["parent"]:
        raise UsageError(
            "the update changed no logprob of the fingerprint's probes: its steps are lost in rounding",
            hint=f"set train.learning_rate (now {config.learning_rate:g}) higher; no episode was used up",
        )


def write_line_state(
    finished: Finished,
    inputs: Mapping[str, Artifact],
    out_dir: Path,
    *,
    baselines: dict[str, dict[str, Baseline]],
    consumed: Iterable[str],
    config: TrainConfig,
    store: Store,
    moments: Moments | None = None,
) -> Output:
    """Write `out_dir/line_state`: of `inputs` the parent's line state with what this update changed.

    `baselines` is the whole table by reward; `consumed` are the episodes of this update; no
    file of moments is written for None.
    """
    parent, before = inputs["parent"], inputs["line_state"]
    folder = out_dir / LINE_STATE
    folder.mkdir(parents=True)
    masters = _write_masters(finished, folder, config)
    if moments is not None:
        write_moments(folder / OPTIMIZER_FILE, moments)
    state, since = LineState.load(before.path), listed_from(parent, _farthest(inputs, config, store))
    write_consumed(folder, consumed, generation=generation_of(parent), before=before.path, since=since)
    since = max(state.consumed_from, since)
    state = msgspec.structs.replace(state, baselines=baselines, masters=masters, consumed_from=since)
    state.save(folder)
    base = finished.adapted.base if finished.adapted is not None else None  # kept as long as this is
    return Output("line_state", {"checkpoint": f"output:{CHECKPOINT}", "stage": "train"}, base=base)


def _farthest(inputs: Mapping[str, Artifact], config: TrainConfig, store: Store) -> int:
    """From how far episodes are taken: to be trained on, or, where `collect` reaches farther, for figures."""
    told = [
        one.meta
        for each in inputs.values()
        if each.kind == "experience"
        for one in store.inputs_of(each.run_id)
    ]
    return max([config.max_lag, *(int(meta.get("max_lag", 0)) for meta in told)])


def _write_masters(finished: Finished, folder: Path, config: TrainConfig) -> Masters:
    """The float32 weights, unless the checkpoint has them: whole, or as an adapter and what it is on."""
    from safetensors.torch import save_file

    if (adapted := finished.adapted) is not None:
        adapter.write(folder / ADAPTER_FILE, finished.adapter, adapted.shape, adapted.base)
        if finished.base:
            with modelio.disk_errors():
                save_file({n: v.contiguous() for n, v in finished.base.items()}, folder / MASTERS_FILE)
        return ADAPTER_FILE
    if config.export_dtype == "float32":
        return "checkpoint"
    named = finished.model.named_parameters()
    weights = {name: value.detach().cpu().contiguous() for name, value in named}
    with modelio.disk_errors():
        save_file(weights, folder / MASTERS_FILE)
    return MASTERS_FILE
