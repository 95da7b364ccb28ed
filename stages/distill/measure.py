"""From episodes to columns: every signal that one episode tells by itself.

What needs the window as a whole (running medians, the price of asking, unknown terms) comes in `reward.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from cursorbench.sessions.agents import agent_of
from stages.distill.facts import Episode
from stages.distill.order import answered_at
from stages.distill.own import OwnSignal
from stages.distill.signals.completion_accepted import completion_accepted
from stages.distill.signals.dissatisfied_followup import followup, probabilities
from stages.distill.signals.edit_persistence import edit_persistence
from stages.distill.signals.edit_rejected import edit_rejected
from stages.distill.signals.edits import Edits, edits_of
from stages.distill.signals.followup.features import Followup
from stages.distill.signals.invalid_tool_calls import invalid_tool_calls
from stages.distill.signals.length_cost import Lengths, length_cost, mix
from stages.distill.signals.outcome import asks, asks_by_tool, edited, without_calls
from stages.distill.signals.task_outcome import task_outcome
from stages.distill.spec import RewardSpec
from stages.distill.strata import stratum
from stages.distill.watched import NO_REACTION, watched
from stages.distill.work import kind_of_work
from stages.parts import CUT
from stages.records import GROUP, TEXT_ONLY, Event

MEASURED = pa.schema(
    [
        ("episode_id", pa.string()),
        ("key_id", pa.string()),
        ("user", pa.string()),
        ("session", pa.string()),
        ("arm", pa.string()),
        ("checkpoint", pa.string()),
        ("lag", pa.int32()),
        ("at", pa.int64()),
        ("agent", pa.string()),
        ("model", pa.string()),
        ("repository", pa.string()),
        ("work", pa.string()),
        ("stratum", pa.string()),
        ("group", pa.string()),
        ("why_not", pa.string()),
        ("n_generations", pa.int32()),
        ("n_calls", pa.int32()),
        ("n_reactions", pa.int32()),  # events that say something about the answer
        ("output_tokens", pa.int64()),
        ("request_tokens", pa.int64()),
        ("total_ms", pa.float64()),
        ("first_token_ms", pa.float64()),
        ("latency.cut", pa.bool_()),  # it was stopped: `total_ms` is the least that it would have been
        ("edit_persistence_24h", pa.float64()),
        ("edit_persistence_7d", pa.float64()),
        ("edit_persistence", pa.float64()),
        ("edit_rejected", pa.float64()),
        ("dissatisfied_followup", pa.float64()),
        ("invalid_tool_calls", pa.float64()),
        ("clarified", pa.float64()),
        ("edited", pa.float64()),
        ("length_cost", pa.float64()),
        ("completion_accepted", pa.float64()),
        ("task_outcome", pa.float64()),
        # for the monitors alone; no signal can have such a name
        ("watched.ripe_at", pa.int64()),  # when the training horizon had passed, ms
        ("watched.first_seq", pa.int64()),  # of the spool
        ("watched.cell", pa.string()),  # which kind of request: work/language/size/length
        ("watched.calling_turns", pa.float64()),
        ("watched.parallel_turns", pa.float64()),  # with several calls at once
        ("watched.terminal_only", pa.float64()),
        ("watched.silent", pa.float64()),
        ("watched.lost_turns", pa.float64()),  # share of model calls, see `watched.lost_turns`
        ("watched.lines_added", pa.float64()),
        ("watched.lines_deleted", pa.float64()),
        ("watched.written_chars", pa.float64()),
        ("watched.comment_chars", pa.float64()),
        ("watched.functions", pa.float64()),
        ("watched.function_lines", pa.float64()),
    ]
)
_FROM_ROW = ("key_id", "user", "session", "arm", "checkpoint", "lag")


def columns_of(spec: RewardSpec) -> pa.Schema:
    """MEASURED, and a column for each of the team's own signals."""
    return pa.schema([*MEASURED, *((name, pa.float64()) for name in spec.own)])


def measure(
    episodes: Iterable[Episode], spec: RewardSpec, own: Sequence[OwnSignal] = ()
) -> tuple[pa.Table, dict[int, Followup]]:
    """What the episodes tell.

    Returns:
        One row of `columns_of(spec)` per episode, null where a signal is not known; and, by row, the
        follow-ups that text decides: their `dissatisfied_followup` is null until `with_followups`.
    """
    kept = list(episodes)
    columns: dict[str, Any] = {name: [e.row[name] for e in kept] for name in _FROM_ROW}
    columns["episode_id"] = [e.row["id"] for e in kept]
    columns["at"] = [e.row["first_at"] for e in kept]
    edits = [edits_of(e.events, answered_at(e.generations), _ms(spec.horizons.persistence_s)) for e in kept]
    columns["edited"] = [float(edited(of)) for of in edits]
    columns["clarified"] = clarified = _clarified(kept, columns["edited"])
    columns["work"] = works = kind_of_work([e.request for e in kept])
    per_episode = [_signals(e, spec, of, work) for e, of, work in zip(kept, edits, works, strict=True)]
    for name in _TOLD:
        columns[name] = [row[name] for row in per_episode]
    found = [_followup(e, spec, of, bool(ask)) for e, of, ask in zip(kept, edits, clarified, strict=True)]
    columns["dissatisfied_followup"] = [None if isinstance(value, Followup) else value for value in found]
    columns |= _numbers(kept, spec)
    of_monitors = watched(kept, edits, works, columns["request_tokens"])
    of_monitors |= {name: [e.row[name] for e in kept] for name in ("ripe_at", "first_seq")}
    columns |= {f"watched.{name}": column for name, column in of_monitors.items()}
    columns |= {signal.name: signal.values(kept) for signal in own}
    schema = columns_of(spec)
    arrays = [pa.array(columns[f.name], type=f.type) for f in schema]
    asked = {row: value for row, value in enumerate(found) if isinstance(value, Followup)}
    return pa.Table.from_arrays(arrays, schema=schema), asked


def with_followups(measured: pa.Table, asked: Mapping[int, Followup]) -> pa.Table:
    """The table with what the embedded model says of these rows' follow-ups."""
    name = "dissatisfied_followup"
    values = measured[name].to_pylist()
    for row, probability in zip(asked, probabilities(list(asked.values())), strict=True):
        values[row] = probability
    index = measured.schema.get_field_index(name)
    return measured.set_column(index, measured.schema.field(index), pa.array(values, type=pa.float64()))


LATER = {"edit_persistence_24h": 86_400_000, "edit_persistence_7d": 604_800_000}  # ms
_TOLD = (
    *("agent", "model", "repository", "stratum", "group", "why_not", "n_reactions"),
    *("edit_persistence", "edit_rejected", "completion_accepted", "task_outcome"),
    *LATER,
)


def _clarified(episodes: Sequence[Episode], edits: Sequence[float]) -> list[float]:
    """Which of the episodes ended in a question, code not changed."""
    rows = [row for row, value in enumerate(edits) if not value]
    found = [0.0] * len(edits)
    for row, asked in zip(rows, asks([_words(episodes[row]) for row in rows]), strict=True):
        found[row] = float(asked or asks_by_tool(episodes[row].generations[-1]["tool_calls"]))
    return found


def _words(episode: Episode) -> str:
    """What its last answer says beside its calls."""
    return without_calls(episode.said) if episode.generations[-1]["tool_calls"] else episode.said


def _followup(episode: Episode, spec: RewardSpec, edits: Edits, asked: bool) -> float | Followup | None:
    return followup(
        episode.events,
        episode.request,
        _words(episode),
        asked,
        edits.undone,
        answered_at(episode.generations),
        _ms(spec.horizons.followup_s),
    )


def _signals(episode: Episode, spec: RewardSpec, edits: Edits, work: str) -> dict[str, Any]:
    events = episode.events
    asked_at = answered_at(episode.generations)
    told = dict(episode.generations[0]["features"])
    return {
        "agent": agent_of(told.get("agent") or told.get("client", "")),
        "model": _first_told("model", episode),
        "repository": told.get("repository", ""),
        "stratum": stratum(episode.request, work, episode.generations[0]["tools_digest"], spec.strata),
        "group": _first_told(GROUP, episode),
        "why_not": episode.why_not,
        "n_reactions": sum(e.type not in NO_REACTION for e in events),
        "edit_persistence": edit_persistence(events, _ms(spec.horizons.persistence_s), edits),
        "edit_rejected": edit_rejected(edits),
        "completion_accepted": completion_accepted(events, asked_at, _ms(spec.horizons.completion_s)),
        "task_outcome": task_outcome(events, asked_at, _ms(spec.horizons.outcome_s)),
        **{name: _later(events, asked_at, horizon) for name, horizon in LATER.items()},
    }


def _first_told(name: str, episode: Episode) -> str:
    """A feature of the first generation that has it: some logs tell the model with the first text only."""
    told = (value for row in episode.generations for key, value in row["features"] if key == name and value)
    return next(told, "")


def _later(events: Sequence[Event], asked_at: int, horizon_ms: int) -> float | None:
    """Persistence at a metric horizon; None unless somebody measured it there."""
    delays = (event.data.get("horizon_s") for event in events if event.type == "edit_survival")
    if not any(isinstance(delay, int | float) and 1000 * delay >= horizon_ms for delay in delays):
        return None
    return edit_persistence(events, horizon_ms, edits_of(events, asked_at, horizon_ms))


def _ms(seconds: float) -> int:
    return round(1000 * seconds)


def _numbers(episodes: Sequence[Episode], spec: RewardSpec) -> dict[str, Any]:
    """Columns that follow from counts and times alone."""
    n = len(episodes)
    rows = [row for e in episodes for row in e.generations]
    counts = [len(e.generations) for e in episodes]
    of = np.repeat(np.arange(n), counts)
    column = {name: np.array([row[name] for row in rows], dtype=np.float64) for name in _NUMERIC}
    calls = np.array([len(row["tool_calls"]) for row in rows], dtype=np.float64)
    thought = (
        np.array([share for e in episodes for share in e.thinking], dtype=np.float64)
        * column["output_tokens"]
    )
    spoken = column["output_tokens"] - thought
    first = np.cumsum([0, *counts[:-1]], dtype=np.int64) if n else np.zeros(0, np.int64)
    texts = np.array([row["defect"] == TEXT_ONLY for row in rows], dtype=np.float64)
    lengths = Lengths(
        final=_sum(of, np.where(calls == 0, spoken, 0.0), n),
        call=_sum(of, np.where(calls > 0, spoken, 0.0), n),
        thinking=_sum(of, thought, n),
        tool=_sum(of, _read(_before(episodes), column["prompt_tokens"], column["output_tokens"]), n),
        calls=_sum(of, calls, n),
        turns=np.array(counts, dtype=np.float64),
    )
    return {
        "n_generations": counts,
        "n_calls": lengths.calls.astype(np.int64),
        "output_tokens": _sum(of, column["output_tokens"], n).astype(np.int64),
        "request_tokens": _request_tokens(episodes),
        "total_ms": _sum(of, column["duration_ms"], n),
        "first_token_ms": column["ttft_ms"][first],
        "latency.cut": [_cut(e) for e in episodes],
        "invalid_tool_calls": invalid_tool_calls(of, column["invalid_tool_calls"], n),
        "length_cost": np.where(
            _sum(of, texts, n) > 0,
            np.nan,  # a log's: how many tokens they were is not known
            length_cost(mix(lengths, spec.length_cost.weights()), spec.length_cost.k, spec.length_cost.q),
        ),
    }


_NUMERIC = ("prompt_tokens", "output_tokens", "duration_ms", "ttft_ms", "invalid_tool_calls")
_Floats = np.ndarray[Any, np.dtype[np.float64]]
_Ints = np.ndarray[Any, np.dtype[np.int64]]


def _sum(of: _Ints, values: _Floats, n: int) -> _Floats:
    return np.bincount(of, weights=values, minlength=n).astype(np.float64)


def _cut(episode: Episode) -> bool:
    """Whether somebody stopped the agent, or its last answer. Some clients hang up when they have a whole
    call: that is all that they wanted."""
    last = episode.generations[-1]
    stopped = any(event.type == "interrupted" for event in episode.events)
    return stopped or (last["finish_reason"] in CUT and not last["tool_calls"])


def _request_tokens(episodes: Sequence[Episode]) -> list[int]:
    """Prompt tokens of each episode's first model call that tells them: an engine that gives no answer, as
    the context is full or time is over, does not tell of the prompt either."""
    told = ((row["prompt_tokens"] for row in e.generations if row["prompt_tokens"]) for e in episodes)
    return [next(of, 0) for of in told]


def _before(episodes: Sequence[Episode]) -> _Ints:
    """For each generation, the one that it goes on from, else the one before it in the episode of those whose
    prompt is told; -1: none.

    Agents that work side by side in an episode have not read each other's prompts.
    """
    found: list[int] = []
    for episode in episodes:
        start, last = len(found), -1
        for n, row in enumerate(episode.generations, start):
            found.append(last)
            last = n if row["prompt_tokens"] else last
        for one, next_ in (pair for chain in episode.chains for pair in pairwise(chain)):
            found[start + next_] = start + one
    return np.array(found, dtype=np.int64)


def _read(before: _Ints, prompt: _Floats, output: _Floats) -> _Floats:
    """Tokens that came into the prompt since the generation `before` it, its output apart."""
    return np.where(before < 0, 0.0, np.maximum(0.0, prompt - prompt[before] - output[before]))
