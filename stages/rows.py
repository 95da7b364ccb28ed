"""Generations and events as Arrow columns, and back.

For `collect`, which writes them, and for readers that want whole records (`rows.generations`).
Column by column, with no dictionary per row. The schemas are in `stages/schemas.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, chain
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from stages.records import Event, Generation, Sampling, Span, ToolCall
from stages.schemas import EVENTS, GENERATIONS, SPAN, TOOL_CALL

_PLAIN = (
    "id",
    "key_id",
    "user",
    "session",
    "episode",
    "ordinal",
    "at",
    "wall",
    "line",
    "arm",
    "deployment",
    "api",
    "finish_reason",
    "prompt_tokens",
    "output_tokens",
    "ttft_ms",
    "duration_ms",
    "invalid_tool_calls",
    "tools_digest",
    "prompt_base",
    "prompt_prefix",
    "defect",
)


class SealedGeneration(NamedTuple):
    """A generation as the artifact holds it. `sealed` is b"" when there is no payload."""

    seq: int
    generation: Generation
    sealed: bytes


class SealedEvent(NamedTuple):
    """An event as the artifact holds it. `event.data` is empty when `sealed` is not."""

    seq: int
    event: Event
    user: str
    sealed: bytes
    episode: str
    derived: bool = False


def generation_batch(rows: Sequence[SealedGeneration]) -> pa.RecordBatch:
    """Rows of generations.parquet, in the order given."""
    found = [row.generation for row in rows]
    columns: dict[str, Any] = {name: [getattr(g, name) for g in found] for name in _PLAIN}
    columns["seq"] = [row.seq for row in rows]
    columns["sampling"] = [sampling_json(g.sampling) for g in found]
    columns["spans"] = _list_of_structs([g.spans for g in found], SPAN)
    columns["tool_calls"] = _list_of_structs([g.tool_calls for g in found], TOOL_CALL)
    columns["features"] = _map([g.features for g in found])
    columns["sealed"] = [row.sealed for row in rows]
    return _batch(columns, GENERATIONS)


def generations(batch: pa.RecordBatch) -> Iterator[SealedGeneration]:
    """The rows of a batch with all columns of generations.parquet, as records."""
    for row in batch.to_pylist():
        yield SealedGeneration(row["seq"], generation(row), row["sealed"])


def generation(row: Mapping[str, Any]) -> Generation:
    """One row of generations.parquet as a record."""
    return Generation(
        **{name: row[name] for name in _PLAIN},
        sampling=sampling(row["sampling"]),
        spans=tuple(Span(**span) for span in row["spans"]),
        tool_calls=tuple(ToolCall(arguments="", **call) for call in row["tool_calls"]),
        features=dict(row["features"]),
    )


def event_batch(rows: Sequence[SealedEvent]) -> pa.RecordBatch:
    """Rows of events.parquet, in the order given."""
    names = ("id", "key_id", "generation_id", "type", "at", "wall")
    columns: dict[str, Any] = {name: [getattr(row.event, name) for row in rows] for name in names}
    for name in ("seq", "user", "sealed", "episode", "derived"):
        columns[name] = [getattr(row, name) for row in rows]
    columns["data"] = ["{}" if row.sealed else msgspec.json.encode(row.event.data).decode() for row in rows]
    return _batch(columns, EVENTS)


def events(batch: pa.RecordBatch) -> Iterator[SealedEvent]:
    """The rows of a batch with all columns of events.parquet, as records."""
    for row in batch.to_pylist():
        event = Event(
            id=row["id"],
            key_id=row["key_id"],
            generation_id=row["generation_id"],
            type=row["type"],
            at=row["at"],
            wall=row["wall"],
            data=msgspec.json.decode(row["data"]) if row["data"] != "{}" else {},
        )
        yield SealedEvent(row["seq"], event, row["user"], row["sealed"], row["episode"], row["derived"])


_SAMPLING = msgspec.structs.asdict(Sampling())


@lru_cache(maxsize=4096)
def sampling_json(value: Sampling) -> str:
    """Canonical text of sampling parameters; requests share few, so it compresses to nothing.

    Without those that are as by default, by value: msgspec leaves out a number only where it is the default's
    own object, so that equal parameters would have two texts, and an artifact a digest by chance.
    """
    told = {name: each for name, each in msgspec.structs.asdict(value).items() if each != _SAMPLING[name]}
    return msgspec.json.encode(told, order="sorted").decode()


@lru_cache(maxsize=4096)
def sampling(text: str) -> Sampling:
    """The sampling parameters in `text`. Raises msgspec.ValidationError when it holds none."""
    return msgspec.json.decode(text, type=Sampling)


def _batch(columns: dict[str, Any], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [
        column if isinstance(column, pa.Array) else pa.array(column, type=field.type)
        for field, column in ((field, columns[field.name]) for field in schema)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _offsets(lengths: Iterable[int]) -> pa.Array:
    return pa.array(accumulate(lengths, initial=0), type=pa.int32())


def _list_of_structs(rows: Sequence[Sequence[Any]], kind: pa.StructType) -> pa.Array:
    flat = list(chain.from_iterable(rows))
    fields = [pa.array([getattr(item, field.name) for item in flat], type=field.type) for field in kind]
    values = pa.StructArray.from_arrays(fields, fields=list(kind))
    return pa.ListArray.from_arrays(_offsets(map(len, rows)), values)


def _map(rows: Sequence[dict[str, str]]) -> pa.Array:
    flat = list(chain.from_iterable(row.items() for row in rows))
    keys = pa.array([key for key, _ in flat], type=pa.string())
    items = pa.array([value for _, value in flat], type=pa.string())
    return pa.MapArray.from_arrays(_offsets(map(len, rows)), keys, items)
