"""A window of distill as a cycle of the monitors: columns, users, kinds of request, reward, what users told.

The training reward is without the price of asking, which moves by itself: a price that eases off would be a
reward that rises while nothing changes. It is held against user signals that are not in it (with a weight),
metric horizons among them, and against all user signals: weaker evidence, and often the only there is.
Not for: what is watched and when it is called (`stages/monitor/`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stages.distill.config import DistillConfig
from stages.distill.measure import MEASURED
from stages.distill.own import OwnSignal
from stages.distill.spec import PRICE, RewardSpec
from stages.distill.watched import HANDS
from stages.exits import exit_of
from stages.monitor.behaviours import BEHAVIOURS, USER_SIGNALS, contentment
from stages.monitor.charts import Rules, Updated, update
from stages.monitor.cycle import Cycle
from stages.monitor.history import History
from stages.rewarded import rewarded_with
from stages.stage import Artifact, Outcome

Floats = NDArray[np.float64]
LEAST_TOLD = 20  # episodes, or a mean of them says nothing
_TOLD = {name for name in MEASURED.names if "." not in name}
_OF_EDITS = ", refusals of edits"


def cycle_of(
    measured: pa.Table,
    reward: Floats,
    spec: RewardSpec,
    checkpoint: str,
    line: str = "",
    why_not: Sequence[str] = (),
    own: Sequence[OwnSignal] = (),
    read_to: tuple[int, int] | None = None,
) -> Cycle:
    """The cycle of these episodes (`measure.columns_of`) of a line.

    `reward` [E] is without the price of asking (`Rewards.unpriced`), nan for none. `why_not` gives the
    exit that each left by, "" for none; without it nothing is known of exits. An episode that stays and lost
    some of its model calls is left out by so much. `own` are the team's signals in the reward; `read_to` is
    as `Window` has it.
    """
    wanted = {name for each in BEHAVIOURS.values() for name in (each.over, each.under) if name != "1"}
    columns = {}
    for name in sorted(wanted | {*USER_SIGNALS}):
        if name != "left_out":
            column = measured[name] if name in _TOLD else measured[f"watched.{name}"]
            columns[name] = column.to_numpy().astype(np.float64)
    if why_not:
        lost = measured["watched.lost_turns"].to_numpy()
        whole = (float(exit_of(why).by in HANDS) if why else None for why in why_not)
        columns["left_out"] = np.array(
            [part if left is None else left for left, part in zip(whole, lost, strict=True)]
        )
    said = _said(columns)
    return Cycle(
        at=int(measured["at"].to_numpy().max()),
        checkpoint=checkpoint,
        columns=columns,
        users=measured["user"].to_pylist(),
        cells=measured["watched.cell"].to_pylist(),
        spec=_rewarded_by(spec, own),
        reward=reward,
        user=_held_out(said, spec),
        told=contentment(said, USER_SIGNALS),
        line=line,
        read_to=read_to,
    )


def _rewarded_by(spec: RewardSpec, own: Sequence[OwnSignal]) -> str:
    """Which reward it is, and by what it is held: not `rewarded_with` alone. In windows from before the price
    was in the rewards, and who saw no change had refused none: they are not compared with those of today."""
    priced = spec.stabiliser is not None and spec.stabiliser.enabled
    found = rewarded_with(spec.digest, {signal.name: signal.digest for signal in own})
    return f"{found} less {PRICE}{_OF_EDITS}" if priced else f"{found}{_OF_EDITS}"


def updated(state: dict[str, Any], cycle: Cycle, config: DistillConfig) -> Updated:
    """The line's monitors after this cycle."""
    rules = Rules(alarms=config.alarm_rate, warm_up=config.warm_up, windows=config.history)
    return update(History.of_state(state), cycle, rules)


def unchanged(state: dict[str, Any]) -> Updated:
    """The line's monitors after a window in which nothing is new."""
    return Updated(History.of_state(state), [], [])


def read_to(interactions: Artifact) -> tuple[int, int] | None:
    """Up to where the episodes of interactions were mature and captured, see `history.Window`."""
    window = interactions.meta.get("window")
    return (int(window["now"]), int(window["last_seq"])) if window else None


def with_monitors(outcome: Outcome, found: Updated) -> Outcome:
    """What the monitors say of this cycle among the run's metrics and warnings."""
    return replace(
        outcome,
        metrics={**outcome.metrics, "monitor": told(found)},
        warnings=[*outcome.warnings, *warnings(found), *found.notes],
    )


def told(found: Updated) -> dict[str, Any]:
    """For the run's metrics: alarms and notes, nothing of the history."""
    alarms = [
        {"id": a.id, "behaviour": a.behaviour, "direction": a.direction, "text": a.text} for a in found.alarms
    ]
    return {"alarms": alarms, "notes": found.notes}


def warnings(found: Updated) -> list[str]:
    """An alarm is said where it arises; it blocks the gate until somebody acknowledges it."""
    return [
        f"alarm {a.id}: {a.text}; the gate waits for `rtrl monitor ack {a.id} --reason ...`"
        for a in found.alarms
    ]


def _said(columns: dict[str, Floats]) -> dict[str, Floats]:
    """The columns as users told them: where no code was changed nobody had anything to refuse, and the 0 of
    `edit_rejected` is nobody's word. A line of completions has nothing else."""
    rejected = columns["edit_rejected"]
    shown = (columns["edited"] > 0) | (rejected > 0)
    return {**columns, "edit_rejected": np.where(shown, rejected, np.nan)}


def _held_out(columns: dict[str, Floats], spec: RewardSpec) -> Floats | None:
    """What users told by signals without a weight, [E]; None where under `LEAST_TOLD` episodes have any."""
    trained = {name for name, signal in spec.signals.items() if signal.weight}
    names = {name: sign for name, sign in USER_SIGNALS.items() if name not in trained}
    if not names:
        return None
    found = contentment(columns, names)
    return found if (~np.isnan(found)).sum() >= LEAST_TOLD else None
