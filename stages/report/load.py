"""Reads experiences, one or several as one: their episodes as columns, and how many tools they called.

Several collects of logs (another user, another folder, a log that has grown or is gone) make an experience
each; together they tell of everything. Not for: which ones are meant (`chosen.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages import schemas, tables
from stages.collect.logs.clock import ZONELESS
from stages.errors import IntegrityError
from stages.parts import floats
from stages.refs import require_this_version
from stages.report.episodes import (
    CALLS,
    LABELS,
    LATER,
    SIGNALS,
    TOLD_CALLS,
    Episodes,
    Floats,
    Ints,
    Labels,
    told_times,
)
from stages.stage import Artifact

if TYPE_CHECKING:
    from stages.registry.store import Store

FORGOTTEN = "forgotten"
ORIGIN = "report.origin"  # the place of a row's experience among those that were read; no signal's name
_TOLD = ("episode_id", "key_id", "user", "session", "at", "reward", "why_not", *LABELS, *SIGNALS)
_UNSHOWN = ("asking_price", "latency_first_token")  # the stabiliser's term, and a part of the latency

Bools = np.ndarray[Any, np.dtype[np.bool_]]
Gone = Callable[[Iterable[str], Sequence[str]], set[str]]  # `Since.lost`


@dataclass(frozen=True, eq=False)
class Loaded:
    """Experiences as they are on disk: one table, and its readable episodes as columns.

    Attributes:
        table: a row per episode, with its ORIGIN; `why_not` is FORGOTTEN where no key opens it by now.
        forgotten: episodes whose user was forgotten after them, also who came back: counted, in no figure.
        repeated: rows left away because a later experience has the episode too.
    """

    table: pa.Table
    episodes: Episodes
    forgotten: int
    repeated: int


def nobody(users: Iterable[str], artifacts: Sequence[str]) -> set[str]:
    """Of no user is it known that they were forgotten."""
    return set()


def load(store: Store, *experiences: Artifact, gone: Gone = nobody) -> Loaded:
    """Read experiences as one. An episode that several have is the last one's: a log may have grown.

    Args:
        gone: says which of some users were forgotten after the last of some artifacts (digests) was made.

    Raises:
        InputMissingError: (exit 5) one was distilled by a version that told less.
        IntegrityError: (exit 12) its files are damaged.
    """
    found = [_table(store, one, place) for place, one in enumerate(experiences)]
    whole = pa.concat_tables(found, promote_options="default").combine_chunks()
    table = whole.take(pa.array(_last(whole)))
    users = _codes(table["user"])
    away = _sealed_for_ever(experiences, users, table[ORIGIN].to_numpy(), gone)
    away |= np.asarray(pc.equal(table["why_not"], FORGOTTEN).to_numpy(), dtype=np.bool_)
    why_not = pc.if_else(pa.array(away), FORGOTTEN, table["why_not"])
    table = table.set_column(table.column_names.index("why_not"), "why_not", why_not)
    readable = _episodes(table, users).take(np.flatnonzero(~away))
    return Loaded(table, readable, int(away.sum()), len(whole) - len(table))


def _sealed_for_ever(experiences: Sequence[Artifact], users: Labels, origins: Ints, gone: Gone) -> Bools:
    """Rows [N] whose interactions were made before their user was forgotten; later ones distill opened."""
    away = np.zeros(len(origins), dtype=np.bool_)
    for place, experience in enumerate(experiences):
        names = gone(users.names, experience.meta["interactions"] or [experience.digest])
        if names:
            of_them = np.array([name in names for name in users.names], dtype=np.bool_)[users.codes]
            away |= of_them & (origins == place)
    return away


def _table(store: Store, experience: Artifact, place: int) -> pa.Table:
    """Its episodes with their calls."""
    require_this_version(store, experience)
    wanted = pa.schema([f for f in schemas.experience_episodes(SIGNALS) if f.name in _TOLD])
    table = tables.read(experience.path / schemas.EPISODES_FILE, wanted)
    calls, told = calls_of(store, experience, table["episode_id"])
    table = table.append_column(CALLS, pa.array(calls)).append_column(TOLD_CALLS, pa.array(told))
    return table.append_column(ORIGIN, pa.array(np.full(len(table), place, dtype=np.int32)))


def _last(table: pa.Table) -> Ints:
    """Rows, in their order, whose episode no later row has: the same id, begun at the same time."""
    ids = _codes(table["episode_id"]).codes
    _, codes = np.unique(np.stack([ids, begun(table, "at").to_numpy()]), axis=1, return_inverse=True)
    codes = codes.ravel()
    last = np.full(len(table), -1, dtype=np.int64)
    np.maximum.at(last, codes, np.arange(len(table)))
    return np.flatnonzero(last[codes] == np.arange(len(table)))


def begun(table: pa.Table, at: str) -> pa.ChunkedArray:
    """When an episode began, as far as that tells it from others with its id.

    0 where the log tells no zone: its ids are made of its wall clock, and a later collect may name another
    `--timezone` for the same session.
    """
    zoneless = pa.array(sorted(f"log:{kind}" for kind in ZONELESS))
    return pc.if_else(pc.is_in(table["key_id"], value_set=zoneless), pa.scalar(0, pa.int64()), table[at])


def keys(table: pa.Table, name: str, at: str) -> pa.ChunkedArray:
    """What tells an episode from others: its id and when it began. Some clients call every session alike."""
    return pc.binary_join_element_wise(table[name], pc.cast(begun(table, at), pa.string()), "@")


def unseen(loaded: Loaded, seen: pa.Array) -> tuple[Episodes, pa.Array]:
    """Its readable episodes whose key is not among `seen`; and those keys with all of its own."""
    mine = keys(loaded.table, "episode_id", "at").combine_chunks()
    readable = pc.not_equal(loaded.table["why_not"], FORGOTTEN)
    new = pc.invert(pc.is_in(mine, value_set=seen)).filter(readable.combine_chunks())
    rows = np.flatnonzero(np.asarray(new.to_numpy(zero_copy_only=False), dtype=np.bool_))
    return loaded.episodes.take(rows), pa.concat_arrays([seen, mine])


def _episodes(table: pa.Table, users: Labels) -> Episodes:
    named = {name.removeprefix("term_") for name in table.column_names if name.startswith("term_")}
    own = tuple(n for n in table.column_names if n in named - {*SIGNALS, "length_cost", *_UNSHOWN})
    later = [name for name in LATER if name in table.column_names]
    return Episodes(
        user=users.codes,
        session=_codes(table["session"]).codes,
        at=told_times(table["at"].to_numpy()),
        values={name: floats(table[name]) for name in (*SIGNALS, *later, "reward", CALLS, TOLD_CALLS, *own)},
        labels={name: _codes(table[name]) for name in LABELS},
        own=own,
    )


def calls_of(store: Store, experience: Artifact, ids: pa.ChunkedArray) -> tuple[Floats, Floats]:
    """(tool calls of each episode [N], those that broke included; those of which validity is told [N]).

    nan where its interactions were removed.
    """
    total, told = np.full(len(ids), np.nan), np.full(len(ids), np.nan)
    for digest in experience.meta["interactions"]:
        interactions = store.artifact(digest)
        if interactions is None:
            continue
        for part in tables.parts(interactions.path):
            read = tables.read(
                part / schemas.GENERATIONS_FILE, schemas.GENERATIONS, ["episode", "tool_calls"]
            )
            calls = np.nan_to_num(
                np.asarray(pc.list_value_length(read["tool_calls"]).to_numpy(), dtype=np.float64)
            )
            at = np.asarray(pc.index_in(read["episode"], ids.combine_chunks()).to_numpy(), dtype=np.float64)
            known = ~np.isnan(at)
            rows = at[known].astype(np.int64)
            for column, counted in ((total, calls), (told, calls - _untold(read["tool_calls"]))):
                column[rows] = np.nan_to_num(column[rows])
                np.add.at(column, rows, counted[known])
    return total, told


def _untold(calls: pa.ChunkedArray) -> Floats:
    """How many calls of each generation [G] nobody said of whether they were valid."""
    of = np.asarray(pc.list_parent_indices(calls).to_numpy(), dtype=np.int64)
    errors = pc.struct_field(pc.list_flatten(calls), "error")
    untold = np.asarray(pc.fill_null(pc.equal(errors, "untold"), False).to_numpy(), dtype=np.bool_)
    return np.bincount(of[untold], minlength=len(calls)).astype(np.float64)


def _codes(column: pa.ChunkedArray) -> Labels:
    found = column.combine_chunks().dictionary_encode()
    if found.null_count:
        raise IntegrityError("a column of names has gaps", hint="`rtrl verify --full` says what is damaged")
    return Labels(np.asarray(found.indices, dtype=np.int64), tuple(found.dictionary.to_pylist()))
