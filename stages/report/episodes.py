"""The episodes of an experience as columns, and how many tools they called.

Not for: what is read off them (`figures.py`), texts (`examples.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages import schemas, tables
from stages.errors import InputMissingError, IntegrityError
from stages.stage import Artifact

if TYPE_CHECKING:
    from stages.registry.store import Store

SIGNALS = (
    "edit_persistence",
    "edit_rejected",
    "dissatisfied_followup",
    "invalid_tool_calls",
    "clarified",
    "edited",
    "latency",
)
LATER = {"edit_persistence_24h": "a day", "edit_persistence_7d": "a week"}  # metric horizons
LABELS = ("agent", "model", "repository", "work", "stratum", "arm", "checkpoint")
CALLS = "calls"  # how many tool calls an episode made, from its interactions
TOLD_CALLS = "told_calls"  # those of them of which the source says whether they were valid
FORGOTTEN = "forgotten"
_YEAR_9999 = 253_370_764_800_000  # ms
_TOLD = ("episode_id", "user", "session", "at", "reward", "why_not", *LABELS, *SIGNALS)

Floats = np.ndarray[Any, np.dtype[np.float64]]
Ints = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, eq=False)
class Labels:
    """One column of names: `names[codes[i]]` is that of episode i. codes [N]."""

    codes: Ints
    names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Episodes:
    """Episodes as columns, each [N]. nan is not known; times are ms since the epoch, 0 where not told.

    Attributes:
        own: signals beside the usual ones: a team's own, or of another setting.
    """

    user: Ints
    session: Ints
    at: Ints
    values: Mapping[str, Floats]
    labels: Mapping[str, Labels]
    own: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.at)

    def take(self, rows: Ints) -> Episodes:
        """Only these episodes."""
        return replace(
            self,
            user=self.user[rows],
            session=self.session[rows],
            at=self.at[rows],
            values={name: column[rows] for name, column in self.values.items()},
            labels={name: Labels(one.codes[rows], one.names) for name, one in self.labels.items()},
        )


@dataclass(frozen=True, eq=False)
class Loaded:
    """An experience as it is on disk: its table, and its readable episodes as columns.

    `forgotten` episodes are counted and in no figure: nothing was read off them.
    """

    artifact: Artifact
    table: pa.Table
    episodes: Episodes
    forgotten: int


def load(store: Store, experience: Artifact) -> Loaded:
    """Read an experience.

    Raises:
        InputMissingError: (exit 5) it was distilled by a version that told less.
        IntegrityError: (exit 12) its files are damaged.
    """
    if experience.meta.get("schema") != schemas.EXPERIENCE_SCHEMA:
        raise InputMissingError(
            f"{experience.ref} was distilled by another version ({experience.meta.get('schema')}): it lacks "
            "columns that a report needs",
            hint=f"distill it again: rtrl distill --input {_interactions_ref(store, experience)}",
        )
    wanted = pa.schema([f for f in schemas.experience_episodes(SIGNALS) if f.name in _TOLD])
    table = tables.read(experience.path / schemas.EPISODES_FILE, wanted)
    named = {name.removeprefix("term_") for name in table.column_names if name.startswith("term_")}
    own = tuple(n for n in table.column_names if n in named - {*SIGNALS, "length_cost", *_UNSHOWN})
    later = [name for name in LATER if name in table.column_names]
    values = {name: _floats(table[name]) for name in (*SIGNALS, *later, "reward", *own)}
    values[CALLS], values[TOLD_CALLS] = calls_of(store, experience, table["episode_id"])
    episodes = Episodes(
        user=_codes(table["user"]).codes,
        session=_codes(table["session"]).codes,
        at=told_times(table["at"].to_numpy()),
        values=values,
        labels={name: _codes(table[name]) for name in LABELS},
        own=own,
    )
    gone = np.asarray(pc.equal(table["why_not"], FORGOTTEN).to_numpy(), dtype=np.bool_)
    return Loaded(experience, table, episodes.take(np.flatnonzero(~gone)), int(gone.sum()))


_UNSHOWN = ("asking_price", "latency_first_token")  # the stabiliser's term, and a part of the latency


def told_times(at: Any) -> Ints:
    """ms since the epoch [N], 0 where that is no time of a calendar: sources tell what they like."""
    times = np.asarray(at, dtype=np.int64)
    return np.where((times > 0) & (times < _YEAR_9999), times, 0)


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


def _interactions_ref(store: Store, experience: Artifact) -> str:
    found = [store.artifact(digest) for digest in experience.meta.get("interactions", ())]
    return next((one.ref for one in found if one is not None), "interactions@vN")


def _floats(column: pa.ChunkedArray) -> Floats:
    return np.asarray(column.to_numpy(), dtype=np.float64)  # null becomes nan


def _codes(column: pa.ChunkedArray) -> Labels:
    found = column.combine_chunks().dictionary_encode()
    if found.null_count:
        raise IntegrityError("a column of names has gaps", hint="`rtrl verify --full` says what is damaged")
    return Labels(np.asarray(found.indices, dtype=np.int64), tuple(found.dictionary.to_pylist()))
