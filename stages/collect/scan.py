"""First pass of `collect`: what the spool holds, as columns, without opening a payload.

A million episodes are some three million generations: rows go straight into column buffers and
everything after this file is whole-array work. Not for: deciding what is taken (`plan.py`).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stages.records import EVENT_TYPES, Event, Generation

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

EVENT_CODE = {name: code for code, name in enumerate(EVENT_TYPES)}
T = TypeVar("T")


class _Codes(dict[T, int]):
    """Numbers distinct values 0, 1, 2, ... in order of appearance."""

    def code(self, value: T) -> int:
        return self.setdefault(value, len(self))


@dataclass(frozen=True)
class Scan:
    """Generations (G), events (V) and episodes (E) of a window, in order of seq.

    Times in ms. `g_*` arrays have length G, `v_*` length V. `v_generation` is the row of the event's
    generation, -1 when it is not in the window; `g_base` the row of the prompt's base, -1 for none there.
    """

    ids: list[str]
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
    g_defect: Bools
    v_seq: Ints
    v_generation: Ints
    v_type: Ints
    v_at: Ints
    v_own_key: Bools
    episodes: list[str]
    users: list[str]
    arms: list[str]
    samplers: list[frozenset[str]]
    sessions: int
    other_lines: int  # generations of other lines, skipped


@dataclass
class _Columns:
    """Growing columns; 8 bytes a value, no Python object kept per row but the ids."""

    names: tuple[str, ...]
    values: dict[str, array[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.values = {name: array("q") for name in self.names}

    def add(self, *row: int) -> None:
        for column, value in zip(self.values.values(), row, strict=True):
            column.append(value)

    def __getitem__(self, name: str) -> Ints:
        return np.array(self.values[name], dtype=np.int64)


def scan(
    generations: Iterable[tuple[int, Generation, bytes]],
    events: Iterable[tuple[int, Event, str, bytes]],
    line: str,
) -> Scan:
    """Read both iterators once, events first: reading them checks every byte, so damage shows there.

    Args:
        line: generations of other lines are counted and skipped.
    """
    scanner = _Scanner()
    for seq, event, _, _ in events:
        scanner.add_event(seq, event)
    for seq, generation, _ in generations:
        if generation.line != line:
            scanner.other_lines += 1
        else:
            scanner.add_generation(seq, generation)
    return scanner.done()


class _Scanner:
    """Turns records into the columns of a Scan."""

    def __init__(self) -> None:
        names = "seq episode session user samplers arm at invalid output prefix no_train defect key"
        self._g = _Columns(tuple(names.split()))
        self._v = _Columns(("seq", "type", "at", "key"))
        self._ids: list[str] = []
        self._bases: list[str] = []
        self._targets: list[str] = []
        self._episodes = _Codes[str]()
        self._sessions = _Codes[tuple[str, str, str]]()
        self._users = _Codes[str]()
        self._arms = _Codes[str]()
        self._keys = _Codes[str]()
        self._samplers = _Codes[frozenset[str]]()
        self.other_lines = 0

    def add_generation(self, seq: int, generation: Generation) -> None:
        self._ids.append(generation.id)
        self._bases.append(generation.prompt_base)
        self._g.add(
            seq,
            self._episodes.code(generation.episode),
            self._sessions.code((generation.key_id, generation.user, generation.session)),
            self._users.code(generation.user),
            self._samplers.code(frozenset(span.checkpoint for span in generation.spans)),
            self._arms.code(generation.arm),
            generation.at,
            generation.invalid_tool_calls or 0,
            generation.output_tokens,
            generation.prompt_prefix,
            generation.no_train,
            bool(generation.defect),
            self._keys.code(generation.key_id),
        )

    def add_event(self, seq: int, event: Event) -> None:
        self._targets.append(event.generation_id)
        self._v.add(seq, EVENT_CODE[event.type], event.at, self._keys.code(event.key_id))

    def done(self) -> Scan:
        g, v = self._g, self._v
        known = pa.array(self._ids, type=pa.string())
        rows = _positions(self._targets, known)
        own_key = np.zeros(len(rows), dtype=np.bool_)
        own_key[rows >= 0] = g["key"][rows[rows >= 0]] == v["key"][rows >= 0]
        return Scan(
            ids=self._ids,
            **{f"g_{name}": g[name] for name in g.names if name not in ("no_train", "defect", "key")},
            g_base=_positions(self._bases, known),
            g_no_train=g["no_train"] != 0,
            g_defect=g["defect"] != 0,
            **{f"v_{name}": v[name] for name in ("seq", "type", "at")},
            v_generation=rows,
            v_own_key=own_key,
            episodes=list(self._episodes),
            users=list(self._users),
            arms=list(self._arms),
            samplers=list(self._samplers),
            sessions=len(self._sessions),
            other_lines=self.other_lines,
        )


def _positions(wanted: list[str], known: pa.Array) -> Ints:
    """Row of each wanted id in `known`, -1 when it is not there."""
    found = pc.index_in(pa.array(wanted, type=pa.string()), value_set=known)
    return np.asarray(pc.fill_null(found, -1), dtype=np.int64)
