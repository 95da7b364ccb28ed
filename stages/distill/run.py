"""`distill`: reads signals off interactions and makes one reward per episode: an `experience` artifact.

Also writes the line state after the window (running medians, the price of asking, behaviour histories).
Tokens stay in the interactions; the experience says which generations are trained as one sequence.
Not for: advantages and baselines (`train`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pydantic import BaseModel

from stages import exclusion, schemas, tables
from stages.distill import exits, memory, monitored, own
from stages.distill.cautions import cautions
from stages.distill.config import DistillConfig
from stages.distill.judged import judged_followups, with_judge
from stages.distill.monitored import cycle_of
from stages.distill.score import Scored, score
from stages.distill.shards import Measured, Shard, measure_all
from stages.distill.spec import PRICE, RewardSpec, load, parse
from stages.distill.waiting import require_horizon
from stages.errors import InconclusiveError, UsageError
from stages.gateway.keys import ApiKeys
from stages.linestate import LineState
from stages.monitor.charts import Updated
from stages.refs import line_state_named
from stages.stage import Artifact, Kind, Outcome, Output, RunContext

if TYPE_CHECKING:
    from stages.registry.store import Store
    from stages.workspace import Workspace

_METRICS = 50  # names of metrics that are told

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass
class DistillStage:
    """See the module. Inputs: interactions, and the line state of the checkpoint they are for.

    Interactions read from session logs are for no checkpoint: there is no line state, before or after.

    Attributes:
        medians_of: a line state whose latency medians are taken of the size classes that the line has met
            nothing of. Without it such a class is held against its own window, so that two arms would each
            be held against themselves.
    """

    medians_of: Artifact | None = None
    name: str = "distill"
    config: type[BaseModel] = DistillConfig
    takes: tuple[Kind, ...] = ("interactions", "line_state")

    def check(self, workspace: Workspace) -> None:
        """Whether the spec is there, with a team's own signals, and collect waits as long as it."""
        spec, _ = load(workspace.settings.distill.spec, workspace.root)
        own.load(spec, workspace.root)
        require_horizon(spec, workspace.settings.collect.horizon_s, "collect.horizon_s is")

    def resolve(self, workspace: Workspace, store: Store, refs: Mapping[str, str]) -> dict[str, Artifact]:
        """The newest interactions of the line unless named, and the line state they go with."""
        line = workspace.settings.workspace.line
        interactions = store.resolve(refs.get("interactions", "interactions@latest"), line)
        if not interactions.meta["checkpoint"]:
            if "line_state" in refs:
                raise UsageError(
                    f"{interactions.ref} is of session logs, which go with no line state",
                    hint="leave it away",
                )
            return {"interactions": interactions}
        checkpoint = interactions.meta["checkpoint"]
        state = (
            line_state_named(store, refs["line_state"], line, checkpoint)
            if "line_state" in refs
            else store.line_state_of(checkpoint)
        )
        return {"interactions": interactions, "line_state": state}

    def extra(self, workspace: Workspace, store: Store, config: BaseModel) -> Mapping[str, Any]:
        """The reward spec itself, so that a repeated run uses the recorded one, and which keys are shared."""
        assert isinstance(config, DistillConfig)
        spec, text = load(config.spec, workspace.root)
        facts: dict[str, Any] = {"spec": {"digest": spec.digest, "text": text}}
        facts["shared_keys"] = ApiKeys.shared_ids(workspace.keys_dir)
        if self.medians_of is not None:
            facts["medians_of"] = self.medians_of.digest
        if signals := own.load(spec, workspace.root):
            facts["own"] = {s.name: {"function": s.function, "digest": s.digest} for s in signals}
        return facts

    def run(
        self,
        config: BaseModel,
        inputs: Mapping[str, Artifact],
        extra: Mapping[str, Any],
        out_dir: Path,
        ctx: RunContext,
    ) -> Outcome:
        """Measure part by part, then score the window as a whole."""
        assert isinstance(config, DistillConfig)
        text = extra["spec"]["text"]
        spec = parse(text, config.spec)
        signals = own.load(spec, ctx.workspace.root)
        own.require_same(signals, extra.get("own", {}))
        interactions = inputs["interactions"]
        require_horizon(
            spec, float(interactions.meta["horizon_s"]), f"{interactions.ref} was collected with a horizon of"
        )
        folder = out_dir / "experience"
        whole = _measure_all(interactions, extra, config, folder, ctx)
        measured, judged = judged_followups(whole.episodes, whole.questions, config.judge, ctx.workspace)
        if not measured.num_rows:
            raise InconclusiveError(
                f"{interactions.ref} holds no episode", hint="more use is needed; then `rtrl collect`"
            )
        before, line = inputs.get("line_state"), ctx.workspace.settings.workspace.line
        state = memory.before_window(before, line, self.medians_of)
        scored = score(measured, state, spec, extra.get("shared_keys", ()))
        audit = exits.audit(measured, scored, spec, interactions, whole.lost)
        ctx.log.write("distill.exclusion", rows=audit)
        exclusion.refuse(audit)
        table = _experience(measured, scored, spec)
        tables.write(folder / schemas.EPISODES_FILE, table)
        quarantine = pa.Table.from_pylist(whole.quarantine, schema=schemas.QUARANTINE)
        tables.write(folder / schemas.QUARANTINE_FILE, quarantine)
        (folder / schemas.SPEC_FILE).write_text(text, encoding="utf-8")
        watched = None
        if before is not None:
            watched = _watched(measured, scored, state, spec, signals, interactions, line, config)
            after = memory.updated(state, scored.medians, scored.dual, watched.history, line)
            after.save(out_dir / "line_state", carry=before.path)
        window = memory.behaviour(measured.filter(pa.array(memory.heard(measured))))
        found = _outcome(interactions, spec, signals, table, scored, audit, window)
        found = _said(found, whole.unused, cautions(spec.signals, scored, measured))
        if watched is not None:
            found = monitored.with_monitors(found, watched)
        return with_judge(found, config.judge, judged) if judged else found


def _watched(
    measured: pa.Table,
    scored: Scored,
    state: LineState,
    spec: RewardSpec,
    signals: Sequence[own.OwnSignal],
    interactions: Artifact,
    line: str,
    config: DistillConfig,
) -> Updated:
    """The monitors after this window: as they were, where nothing in it is new."""
    new = memory.news(measured, state)
    if not new.any():
        return monitored.unchanged(state.monitors)
    told, reward = measured.filter(pa.array(new)), scored.rewards.unpriced[new]
    exits_of = np.array(scored.why_not, dtype=object)[new].tolist()
    whose, read_to = (interactions.meta["checkpoint"], line), monitored.read_to(interactions)
    cycle = cycle_of(told, reward, spec, *whose, exits_of, signals, read_to)
    return monitored.updated(state.monitors, cycle, config)


def _measure_all(
    interactions: Artifact, extra: Mapping[str, Any], config: DistillConfig, folder: Path, ctx: RunContext
) -> Measured:
    """Every part as one; the sequences are written on the way, and not in it."""
    shards = [
        Shard(
            part,
            interactions.digest,
            extra["spec"]["text"],
            ctx.workspace.root,
            ctx.workspace.keys_dir,
            judged=bool(config.judge.url),
            metrics=interactions.meta.get("metrics", {}),
            own=extra.get("own", {}),
        )
        for part in tables.parts(interactions.path)
    ]
    ctx.progress.start("distill: reading signals", int(interactions.meta["counts"]["episodes"]))
    measured: list[pa.Table] = []
    nothing = schemas.SEQUENCES.empty_table()
    whole = Measured(nothing, nothing, [])
    with tables.TableWriter(folder / schemas.SEQUENCES_FILE, schemas.SEQUENCES) as sequences:
        for found in measure_all(shards, config.engine, config.workers):
            measured.append(found.episodes)
            whole.quarantine.extend(found.quarantine)
            whole.lost.update(found.lost)
            whole.questions.extend(found.questions)
            whole.unused.update(found.unused)
            sequences.write(found.sequences)
            ctx.progress.advance(found.episodes.num_rows)
    return replace(whole, episodes=pa.concat_tables(measured).combine_chunks())


def _experience(measured: pa.Table, scored: Scored, spec: RewardSpec) -> pa.Table:
    schema = schemas.experience_episodes((*spec.names, PRICE))
    n = measured.num_rows
    nothing = np.full(n, np.nan)
    values, terms = scored.values, scored.rewards.terms
    columns: dict[str, Any] = {name: measured[name] for name in schema.names if name in measured.column_names}
    columns |= {name: _nullable(values[name]) for name in spec.names}
    columns[PRICE] = _nullable(values["clarified"] if PRICE in terms else nothing)
    columns |= {f"term_{name}": _nullable(terms.get(name, nothing)) for name in (*spec.names, PRICE)}
    columns |= {
        "reward": _nullable(scored.rewards.reward),
        "trainable": [not reason for reason in scored.why_not],
        "why_not": scored.why_not,
    }
    arrays = []
    for field in schema:
        column = columns[field.name]
        column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        arrays.append(column if isinstance(column, pa.Array) else pa.array(column, type=field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def _nullable(column: Floats) -> pa.Array:
    return pa.array(column, type=pa.float64(), from_pandas=True)  # nan becomes null


def _outcome(
    interactions: Artifact,
    spec: RewardSpec,
    functions: Sequence[own.OwnSignal],
    table: pa.Table,
    scored: Scored,
    audit: list[dict[str, Any]],
    window: Mapping[str, Any],
) -> Outcome:
    signals = [
        {"signal": name, "known": len(table) - table[name].null_count, "mean": _mean(table[name].to_numpy())}
        for name in spec.names
    ]
    counts = {"episodes": table.num_rows, "trainable": sum(not reason for reason in scored.why_not)}
    checkpoint = interactions.meta["checkpoint"]
    meta = {
        "schema": schemas.EXPERIENCE_SCHEMA,
        "interactions": [interactions.digest],
        "spec": spec.digest,
        "spec_name": spec.name,
        "own": {signal.name: {"function": signal.function, "digest": signal.digest} for signal in functions},
        "checkpoint": checkpoint,
        "counts": counts,
        "price": scored.dual and scored.dual.price,
        "stabiliser": scored.dual and scored.dual.told(),
        "audit": audit,
    }
    metrics = {
        **counts,
        "reward": _mean(scored.rewards.reward),
        "price": scored.dual and scored.dual.price,
        "stabiliser": scored.dual and scored.dual.told(),
        "signals": signals,
        "behaviour": dict(window),
        **(scored.dual.in_words() if scored.dual else {}),
        "strata": scored.strata,
        "audit": audit,
    }
    outputs = {"experience": Output("experience", meta)}
    if checkpoint:
        outputs["line_state"] = Output("line_state", {"checkpoint": checkpoint, "stage": "distill"})
    return Outcome(outputs=outputs, metrics=metrics, warnings=exclusion.warnings(audit))


def _said(found: Outcome, unused: Counter[str], warnings: list[str]) -> Outcome:
    """With these warnings first, and last of which metrics the feedback was left out, as the settings do not
    tell what they are."""
    found = replace(found, warnings=[*warnings, *found.warnings])
    if not unused:
        return found
    named = dict(unused.most_common(_METRICS))
    warning = (
        f"{unused.total()} feedback not used, of {', '.join(named)}: say in [collect.metrics] what it is, "
        "then collect and distill again"
    )
    metrics = {**found.metrics, "feedback_not_used": named}
    return replace(found, metrics=metrics, warnings=[*found.warnings, warning])


def _mean(column: Floats) -> float | None:
    known = column[~np.isnan(column)]
    return float(known.mean()) if len(known) else None


STAGE = DistillStage()
