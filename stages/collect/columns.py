"""A window of the spool as Arrow columns: every record decoded once, where its payload lies, what is damaged.

Segments are read side by side. Payloads stay where they are: columns tell the place, `Payloads` reads it.
Not for: deciding what is taken (`plan.py`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from stages import rows, schemas, workers
from stages.records import GOES_ON, RETRIED
from stages.spool import Damage, Spool, codec
from stages.spool.frames import Frame, Kind
from stages.spool.index import SegmentRow
from stages.spool.segment import path_of

SIDE_BY_SIDE = 256 << 20  # bytes of segments; for less, a process costs more than it saves

_PLACE = [("segment", pa.int64()), ("start", pa.int64()), ("size", pa.int64())]  # of a sealed payload, bytes
GENERATIONS = pa.schema(
    [
        *(field for field in schemas.GENERATIONS if field.name != "sealed"),
        ("no_train", pa.bool_()),
        ("retried", pa.bool_()),  # its client sent it again by itself
        ("goes_on", pa.string()),  # the episode of the answer it follows, where there were several to one
        ("population", pa.string()),  # of the API key; in the artifact it is among the features
        ("samplers", pa.string()),  # digests of the checkpoints that sampled it, sorted, by blanks
        ("first_sampler", pa.string()),  # of its first token, "" for none
        *_PLACE,
    ]
)
EVENTS = pa.schema([*(f for f in schemas.EVENTS if f.name not in ("sealed", "episode", "derived")), *_PLACE])


@dataclass(frozen=True)
class Columns:
    """GENERATIONS and EVENTS of a window, as they were committed, and the damage met on the way."""

    generations: pa.Table
    events: pa.Table
    damages: list[Damage]


def read(spool: Spool, first: int, last: int) -> Columns:
    """The records from seq `first` to `last`, both included. Damage is skipped and told."""
    found = spool.segments_of(first, last)
    size = sum(row.bytes for row in found)
    side_by_side = min(workers.cores(), len(found)) if size >= SIDE_BY_SIDE else 1
    work = partial(read_segment, spool.dir, first, last) if side_by_side > 1 else None
    read_here = partial(_read, spool, first, last)
    generations, events, damages = [GENERATIONS.empty_table()], [EVENTS.empty_table()], []
    for part in workers.in_order(work or read_here, found, side_by_side):
        generations.append(part.generations)
        events.append(part.events)
        damages += part.damages
    return Columns(pa.concat_tables(generations), pa.concat_tables(events), damages)


def read_segment(spool_dir: Path, first: int, last: int, row: SegmentRow) -> Columns:
    """One segment's records, in a process of its own."""
    spool = Spool.reading(spool_dir)
    try:
        return _read(spool, first, last, row)
    finally:
        spool.close()


def _read(spool: Spool, first: int, last: int, row: SegmentRow) -> Columns:
    frames, damages = spool.read_segment(row)
    wanted = [frame for frame in frames if first <= frame.seq <= last]
    return Columns(
        generations_of(row.id, [frame for frame in wanted if frame.kind == Kind.GENERATION]),
        events_of(row.id, [frame for frame in wanted if frame.kind == Kind.EVENT]),
        damages,
    )


def generations_of(segment: int, frames: Sequence[Frame]) -> pa.Table:
    """GENERATIONS of a segment's frames."""
    found = [rows.SealedGeneration(frame.seq, *codec.unpack_generation(frame.body)) for frame in frames]
    batch = rows.generation_batch([row._replace(sealed=b"") for row in found])
    samplers = [[span.checkpoint for span in row.generation.spans] for row in found]
    columns: dict[str, Any] = {
        **dict(zip(batch.schema.names, batch.columns, strict=True)),
        "no_train": [row.generation.no_train for row in found],
        "retried": [RETRIED in row.generation.features for row in found],
        "goes_on": [row.generation.features.get(GOES_ON, "") for row in found],
        "population": [row.generation.population for row in found],
        "samplers": [" ".join(sorted(set(of))) for of in samplers],
        "first_sampler": [of[0] if of else "" for of in samplers],
        **_place(segment, frames, [len(row.sealed) for row in found]),
    }
    return _table(columns, GENERATIONS)


def events_of(segment: int, frames: Sequence[Frame]) -> pa.Table:
    """EVENTS of a segment's frames, each with the seq under which it was received."""
    sizes, found = [], []
    for frame in frames:
        stored, sealed = codec.unpack_event(frame.body)
        sizes.append(len(sealed))
        found.append(rows.SealedEvent(stored.received or frame.seq, stored.event, stored.user, b"", ""))
    batch = rows.event_batch(found)
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    return _table({**columns, **_place(segment, frames, sizes)}, EVENTS)


def _place(segment: int, frames: Sequence[Frame], sizes: Sequence[int]) -> dict[str, list[int]]:
    return {
        "segment": [segment] * len(frames),
        "start": [frame.end - size for frame, size in zip(frames, sizes, strict=True)],
        "size": list(sizes),
    }


def _table(columns: dict[str, Any], schema: pa.Schema) -> pa.Table:
    arrays = [
        columns[f.name] if isinstance(columns[f.name], pa.Array) else pa.array(columns[f.name], type=f.type)
        for f in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


class Payloads:
    """Reads sealed payloads by their place. A file that is gone or cut short since gives None."""

    def __init__(self, spool_dir: Path) -> None:
        self._dir = spool_dir
        self._open: dict[int, int | None] = {}  # file descriptors by segment

    def read(self, segment: int, start: int, size: int) -> bytes | None:
        """The bytes at a place; b"" where there is no payload."""
        if not size:
            return b""
        if segment not in self._open:
            self._open[segment] = self._descriptor(segment)
        file = self._open[segment]
        data = b"" if file is None else os.pread(file, size, start)  # a mapped file cut short would kill
        return data if len(data) == size else None

    def close(self) -> None:
        """Close the files."""
        for file in self._open.values():
            if file is not None:
                os.close(file)
        self._open.clear()

    def _descriptor(self, segment: int) -> int | None:
        try:
            return os.open(path_of(self._dir, segment), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
