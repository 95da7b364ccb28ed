"""A window's columns as numbers to decide on: who, when, which episode, which event is about what.

Whole-array work on what `columns.py` read: a million episodes are some three million generations.
Not for: deciding what is taken (`plan.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stages.collect.columns import Columns
from stages.populations import Whose
from stages.records import EVENT_TYPES

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

EVENT_CODE = {name: code for code, name in enumerate(EVENT_TYPES)}


@dataclass(frozen=True)
class Scan:
    """Generations (G), events (V) and episodes (E) of a window, as they were committed.

    Times in ms. `g_*` arrays have length G, `v_*` length V. `v_generation` is the row of the event's
    generation, -1 when it is not in the window; `v_elsewhere`: it is there, and another line's. `g_base` is
    the row of the prompt's base, -1 for none there; `g_goes_on` the episode a request says it follows, or -1.
    `generations` and `events` are the whole columns (`columns.GENERATIONS`, `columns.EVENTS`).
    """

    generations: pa.Table
    events: pa.Table
    g_seq: Ints
    g_episode: Ints
    g_session: Ints
    g_user: Ints
    g_samplers: Ints
    g_arm: Ints
    g_at: Ints
    g_invalid: Ints
    g_output: Ints
    g_prefix: Ints
    g_base: Ints
    g_no_train: Bools
    g_retried: Bools
    g_goes_on: Ints
    v_seq: Ints
    v_generation: Ints
    v_type: Ints
    v_at: Ints
    v_own_key: Bools
    v_elsewhere: Bools
    episodes: list[str]
    users: list[str]
    arms: list[str]
    samplers: list[frozenset[str]]
    sessions: int
    other_lines: int  # generations of other lines, skipped


def scan(columns: Columns, whose: Whose) -> Scan:
    """The columns of a window; generations that are another line's to learn from are counted and skipped."""
    mine = _mine(columns.generations, whose)
    g, v = columns.generations.filter(mine), columns.events
    episode, episodes = _codes(g["episode"])
    user, users = _codes(g["user"])
    arm, arms = _codes(g["arm"])
    sampler, samplers = _codes(g["samplers"])
    session = _together(_codes(g["key_id"])[0], user, _codes(g["session"])[0])
    rows = _positions(v["generation_id"], g["id"])
    anywhere = _positions(v["generation_id"], columns.generations["id"])
    return Scan(
        generations=g,
        events=v,
        g_seq=_ints(g["seq"]),
        g_episode=episode,
        g_session=session,
        g_user=user,
        g_samplers=sampler,
        g_arm=arm,
        g_at=_ints(g["at"]),
        g_invalid=_ints(g["invalid_tool_calls"]),
        g_output=_ints(g["output_tokens"]),
        g_prefix=_ints(g["prompt_prefix"]),
        g_base=_positions(g["prompt_base"], g["id"]),
        g_no_train=np.asarray(g["no_train"], dtype=np.bool_),
        g_retried=np.asarray(g["retried"], dtype=np.bool_),
        g_goes_on=_positions(g["goes_on"], pa.chunked_array([episodes], type=pa.string())),
        v_seq=_ints(v["seq"]),
        v_generation=rows,
        v_type=_types(v["type"]),
        v_at=_ints(v["at"]),
        v_own_key=_own_key(g["key_id"], v["key_id"], rows),
        v_elsewhere=(rows < 0) & (anywhere >= 0),
        episodes=episodes,
        users=users,
        arms=arms,
        samplers=[frozenset(digests.split()) for digests in samplers],
        sessions=int(session.max(initial=-1)) + 1,
        other_lines=columns.generations.num_rows - g.num_rows,
    )


def _mine(generations: pa.Table, whose: Whose) -> pa.ChunkedArray:
    of = generations["population"]
    mine = pc.is_valid(generations["line"])  # all
    if whose.lines is not None:
        mine = pc.is_in(generations["line"], value_set=pa.array(whose.lines))
    if whose.labels is not None:
        mine = pc.and_(mine, pc.is_in(of, value_set=pa.array(whose.labels)))
    if whose.without:
        mine = pc.and_(mine, pc.invert(pc.is_in(of, value_set=pa.array(whose.without))))
    return mine


def _ints(column: pa.ChunkedArray) -> Ints:
    return np.asarray(column, dtype=np.int64)


def _codes(column: pa.ChunkedArray) -> tuple[Ints, list[str]]:
    """Numbers for distinct values in order of appearance, and the values."""
    encoded = column.combine_chunks().dictionary_encode()
    return np.asarray(encoded.indices, dtype=np.int64), encoded.dictionary.to_pylist()


def _together(*codes: Ints) -> Ints:
    """One number for each distinct tuple of codes."""
    joined = np.zeros(len(codes[0]), dtype=np.int64)
    for code in codes:
        joined = np.unique(joined * (code.max(initial=0) + 1) + code, return_inverse=True)[1]
    return joined


def _types(column: pa.ChunkedArray) -> Ints:
    codes, names = _codes(column)
    return np.array([EVENT_CODE[name] for name in names], dtype=np.int64)[codes] if names else codes


def _own_key(of_generations: pa.ChunkedArray, of_events: pa.ChunkedArray, rows: Ints) -> Bools:
    """Whether an event came from the key that made its generation; False without a generation."""
    known = rows >= 0
    own = np.zeros(len(rows), dtype=np.bool_)
    same = pc.equal(of_generations.take(pa.array(rows[known])), of_events.filter(pa.array(known)))
    own[known] = np.asarray(same, dtype=np.bool_)
    return own


def _positions(wanted: pa.ChunkedArray, known: pa.ChunkedArray) -> Ints:
    """Row of each wanted id in `known`, -1 when it is not there."""
    found = pc.index_in(wanted, value_set=known.combine_chunks())
    return np.asarray(pc.fill_null(found, -1), dtype=np.int64)
