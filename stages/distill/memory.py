"""What distill reads of the line state and writes back: medians, the price of asking, behaviour histories.

Not for: baselines, weights and what was consumed, which are the trainer's and carried on untouched.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from stages import contributor_cap
from stages.contributor_cap import Weigh
from stages.distill import stabiliser
from stages.distill.signals import latency
from stages.distill.spec import RewardSpec
from stages.errors import IntegrityError
from stages.linestate import LineState
from stages.monitor.history import History
from stages.stage import Artifact

Floats = np.ndarray[Any, np.dtype[np.float64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]
Medians = dict[str, latency.Median]

_SIGNALS = ("latency", "latency_first_token")


def before_window(before: Artifact | None, line: str, medians_of: Artifact | None) -> LineState:
    """What the line remembers from before a window, of the line state given; nothing without one.

    A population begins with a line state of its parent's, whose windows are no history of its own people: it
    warms up anew, and gathers a band of its own. A state that does not say whose its windows are has those
    of the line that it is published on. `medians_of`: see `with_medians_of`.
    """
    state = LineState() if before is None else LineState.load(before.path)
    if before is not None and (state.line or before.line) != line:
        kept = stabiliser.without_band(state.stabiliser)
        state = msgspec.structs.replace(state, monitors={}, stabiliser=kept)
    return state if medians_of is None else with_medians_of(state, LineState.load(medians_of.path))


def medians(state: LineState) -> dict[str, Medians]:
    """Running medians by signal, then size class. Raises IntegrityError when the state holds others."""
    try:
        return msgspec.convert(state.latency, dict[str, Medians])
    except msgspec.ValidationError as error:
        raise IntegrityError(
            f"the line state's latencies cannot be read: {error}", hint="rtrl verify"
        ) from error


def with_medians_of(state: LineState, other: LineState) -> LineState:
    """The state, with the other one's medians of the size classes that it has none of."""
    mine, theirs = medians(state), medians(other)
    known = {signal: {**theirs.get(signal, {}), **mine.get(signal, {})} for signal in _SIGNALS}
    return msgspec.structs.replace(state, latency=msgspec.to_builtins(known))


def weigh_by(measured: pa.Table, shared_keys: Collection[str] = ()) -> Weigh:
    """What episodes count for in a median: no user and no key has more than a share, as of the edit rate."""
    return contributor_cap.weigh_by(
        measured["user"].combine_chunks(),
        measured["key_id"].combine_chunks(),
        user_cap=stabiliser.USER_CAP,
        key_cap=stabiliser.KEY_CAP,
        shared=shared_keys,
        least=stabiliser.LEAST,
    )


def latencies(measured: pa.Table, state: LineState, weigh: Weigh) -> dict[str, Floats]:
    """The two latency signals of a window, by the medians from before it."""
    sizes = latency.size_class(measured["request_tokens"].to_numpy())
    known = medians(state)
    return {
        signal: latency.log_ratio(times, sizes, known.get(signal, {}), cut, weigh)
        for signal, (times, cut) in _times(measured).items()
    }


def _times(measured: pa.Table) -> dict[str, tuple[Floats, Bools]]:
    """By signal the times [E], and which of them somebody cut; the first token had come by then."""
    cut = np.array(measured["latency.cut"].to_pylist(), dtype=np.bool_)
    return {
        "latency": (measured["total_ms"].to_numpy(), cut),
        "latency_first_token": (measured["first_token_ms"].to_numpy(), np.zeros_like(cut)),
    }


def heard(measured: pa.Table) -> Bools:
    """Which episodes say how the line behaves, [E]: not those of users forgotten since they were collected,
    whose edits and words nobody can read any more. All, when there are no others."""
    known = np.array([why != "forgotten" for why in measured["why_not"].to_pylist()], dtype=np.bool_)
    return known if known.any() else np.ones(len(known), dtype=np.bool_)


def news(measured: pa.Table, state: LineState) -> Bools:
    """Which of those that are `heard` no window before has counted, [E]: what was not trained on is read
    again for as long as its checkpoint is near, and would weigh double, or be all there is after a deploy."""
    windows = state.monitors.get("windows", ())
    if not windows or not (read_to := windows[-1].get("read_to")):
        return heard(measured)
    ripe, first = (measured[f"watched.{name}"].to_numpy() for name in ("ripe_at", "first_seq"))
    return np.asarray(heard(measured) & ~((ripe <= read_to[0]) & (first <= read_to[1])))


def dual(
    measured: pa.Table, state: LineState, spec: RewardSpec, shared_keys: Collection[str] = ()
) -> stabiliser.Dual | None:
    """The price of a question for this window, and its band; None without a stabiliser.

    By what is new in it; by all, where nothing is.
    """
    if spec.stabiliser is None or not spec.stabiliser.enabled:
        return None
    new = news(measured, state)
    counted = new if new.any() else heard(measured)
    whose = measured.select(["user", "key_id", "edited"]).filter(pa.array(counted))
    rate, episodes, caps = stabiliser.edit_rate(whose, shared_keys)
    return stabiliser.moved(state.stabiliser, rate, episodes, spec.stabiliser, caps)


def moved_medians(measured: pa.Table, state: LineState, spec: RewardSpec, weigh: Weigh) -> dict[str, Medians]:
    """The running medians after a window, by signal."""
    sizes = latency.size_class(measured["request_tokens"].to_numpy())
    known = medians(state)
    for signal, (times, cut) in _times(measured).items():
        mine = known.get(signal, {})
        known[signal] = latency.updated(times, sizes, mine, spec.latency.memory, cut, weigh)
    return known


def updated(
    state: LineState,
    medians_now: Mapping[str, Medians],
    dual_now: stabiliser.Dual | None,
    monitors: History,
    line: str,
) -> LineState:
    """The state after this window of the line."""
    return msgspec.structs.replace(
        state,
        latency=msgspec.to_builtins(medians_now),
        stabiliser=state.stabiliser if dual_now is None else dual_now.to_state(),
        monitors=monitors.to_state(),
        line=line,
    )


def behaviour(measured: pa.Table) -> dict[str, float | None]:
    """The distribution of behaviours of a window: what monitors watch, one number each."""

    def mean(name: str) -> float | None:
        values = measured[name].to_numpy()
        known = values[~np.isnan(values)] if values.dtype.kind == "f" else values
        return float(known.mean()) if len(known) else None

    turns = measured["n_generations"].to_numpy()
    calls = measured["n_calls"].to_numpy()
    invalid = measured["invalid_tool_calls"].to_numpy()
    told = ~np.isnan(invalid)  # of session logs it is not always
    return {
        "edit_rate": mean("edited"),
        "ask_rate": mean("clarified"),
        "invalid_calls": float(invalid[told].sum() / max(1, turns[told].sum())) if told.any() else None,
        "broken_episodes": float((invalid[told] > 0).mean()) if told.any() else None,
        "output_tokens": mean("output_tokens"),
        "turns": mean("n_generations"),
        "calls_per_turn": float(calls.sum() / max(1, turns.sum())),
        "silent_episodes": float((measured["n_reactions"].to_numpy() == 0).mean()) if len(turns) else None,
        "edit_persistence": mean("edit_persistence"),
        "dissatisfied_followup": mean("dissatisfied_followup"),
        "edit_rejected": mean("edit_rejected"),
    }
