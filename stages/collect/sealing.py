"""One part of an interactions artifact, written from the window's columns and the spool's payloads.

Payloads are copied sealed as they are. Only a prompt that extends tokens outside its episode is opened
and sealed again in full, so that an episode can be read, or forgotten, by itself; and the session's next
request becomes the `user_message` a client did not send. Not for: which part takes what (`seal.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from stages import routing, rows, schemas, tables
from stages.collect.columns import Payloads
from stages.collect.scan import Bools, Ints
from stages.errors import IntegrityError
from stages.records import EventType
from stages.spool import ChainReader, Spool
from stages.spool.codec import encode, encode_data, event_aad, generation_aad
from stages.tokens import open_payload
from stages.vault import UserForgottenError, Vault

_BATCH_BYTES = 16 << 20  # of payloads in memory at a time
_BATCH_ROWS = 4096


class Later(NamedTuple):
    """An event behind an edit: what its id ends with, and its data."""

    mark: str
    type: EventType
    at: int
    data: Mapping[str, Any]


@dataclass(frozen=True)
class Part:
    """What one part takes. `episode_of_*` are rows of `episodes`; `reseal` is of generations."""

    folder: Path
    spool_dir: Path
    keys_dir: Path
    generations: pa.Table  # columns.GENERATIONS
    episode_of_generation: Ints
    reseal: Bools
    events: pa.Table  # columns.EVENTS
    episode_of_event: Ints
    follow_ups: pa.Table  # the next requests that become messages, and the generation each is `about`
    episode_of_follow_up: Ints
    episodes: pa.Table
    later: Sequence[tuple[int, Later]] = ()  # what repositories tell behind the event in a row of `events`


@dataclass(frozen=True)
class Sealed:
    """What became of a part: how many of each, and what was left out, with reasons."""

    counts: Counter[str] = field(default_factory=Counter)
    quarantine: list[dict[str, str]] = field(default_factory=list)


def seal_part(part: Part) -> Sealed:
    """Write a part. It may have lost all of its generations; so may its files be empty."""
    vault = Vault.open(part.keys_dir)
    writer = _PartWriter(part, vault)
    try:
        writer.generations()
        writer.events()
        writer.episodes()
    finally:
        writer.close()
        vault.close()
    return writer.sealed


class _PartWriter:
    def __init__(self, part: Part, vault: Vault) -> None:
        self.sealed = Sealed()
        self._part = part
        self._vault = vault
        self._payloads = Payloads(part.spool_dir)
        self._names = part.episodes["id"].to_pylist()
        self._kept = np.zeros(part.generations.num_rows, dtype=np.bool_)
        self._n_events = np.zeros(part.episodes.num_rows, dtype=np.int64)
        self._spool: Spool | None = None
        self._chains: ChainReader | None = None

    def close(self) -> None:
        self._payloads.close()
        if self._spool is not None:
            self._spool.close()

    def generations(self) -> None:
        """generations.parquet, in batches."""
        with tables.TableWriter(self._part.folder / schemas.GENERATIONS_FILE, schemas.GENERATIONS) as writer:
            for start, end in _batches(self._part.generations):
                batch = self._generations(start, end)
                self.sealed.counts["generations"] += batch.num_rows
                writer.write(batch)

    def _generations(self, start: int, end: int) -> pa.Table:
        found = self._part.generations.slice(start, end - start)
        ids, defects = found["id"].to_pylist(), found["defect"].to_pylist()
        sealed = list(self._read(found))
        reasons = ["" if blob is not None else "damaged" for blob in sealed]
        in_full = []  # rows sealed again
        for row in np.flatnonzero(self._part.reseal[start:end]).tolist():
            if (blob := sealed[row]) is not None:
                sealed[row], reasons[row] = self._again(found.slice(row, 1), blob)
                in_full.append(row)
        for row, (gid, defect) in enumerate(zip(ids, defects, strict=True)):
            if reason := reasons[row] or defect:
                self._leave_out(gid, self._names[self._part.episode_of_generation[start + row]], reason)
        self._kept[start:end] = [not reason for reason in reasons]
        plain = self._prompts_in_full(found, in_full)
        plain = plain.append_column("sealed", pa.array(sealed, type=pa.binary()))
        return plain.select(schemas.GENERATIONS.names).filter(pa.array(self._kept[start:end]))

    def _again(self, row: pa.Table, sealed: bytes) -> tuple[bytes, str]:
        """A generation's payload with its whole prompt in it; or as it was, and why there is none."""
        generation = rows.generation(row.to_pylist()[0])
        try:
            payload, tokens = self._chain_reader().open(generation, sealed)
            experts = None if tokens.experts is None else routing.packed(tokens.experts, 0)
            payload = msgspec.structs.replace(payload, prompt=tokens.prompt.tobytes(), experts=experts)
            aad = generation_aad(generation.id)
            return self._vault.seal(generation.user, encode(payload), aad, like=sealed), ""
        except UserForgottenError:
            return sealed, "forgotten"
        except IntegrityError:
            return sealed, "prompt_base_unreadable"

    def _prompts_in_full(self, found: pa.Table, at: list[int]) -> pa.Table:
        """The columns, where prompts were put together without a base."""
        for name, nothing in (("prompt_base", ""), ("prompt_prefix", 0)) if at else ():
            values = found[name].to_pylist()
            for row in at:
                values[row] = nothing
            index = found.schema.get_field_index(name)
            field_ = found.schema.field(index)
            found = found.set_column(index, field_, pa.array(values, type=field_.type))
        return found

    def _chain_reader(self) -> ChainReader:
        if self._chains is None:
            self._spool = Spool.reading(self._part.spool_dir)
            self._chains = self._spool.chains(self._vault)
        return self._chains

    def events(self) -> None:
        """events.parquet: what clients sent, then the next requests."""
        alive = np.bincount(self._part.episode_of_generation[self._kept], minlength=len(self._names)).astype(
            bool
        )
        with tables.TableWriter(self._part.folder / schemas.EVENTS_FILE, schemas.EVENTS) as writer:
            for start, end in _batches(self._part.events):
                of = self._part.episode_of_event[start:end]
                found = self._part.events.slice(start, end - start)
                sealed = list(self._read(found))
                there = alive[of] & np.array([blob is not None for blob in sealed], dtype=np.bool_)
                for row in np.flatnonzero(alive[of] & ~there):
                    self._leave_out(found["id"][int(row)].as_py(), self._names[of[row]], "damaged")
                self._write_events(writer, found, sealed, of, there, derived=False)
            self._follow_ups(writer, alive)
            self._repositories(writer, alive)

    def _follow_ups(self, writer: tables.TableWriter, alive: Bools) -> None:
        """The sessions' next requests, each as the message of its user to the episode before."""
        found, of = self._part.follow_ups, self._part.episode_of_follow_up
        if not found.num_rows:
            return
        ids = found["id"].to_pylist()
        told = (found[name].to_pylist() for name in ("id", "key_id", "user", "episode"))
        sealed = [self._message(*row) for row in zip(*told, self._read(found), strict=True)]
        columns = {
            **{name: found[name] for name in ("seq", "key_id", "user", "at", "wall")},
            "id": pa.array([f"next:{gid}" for gid in ids], type=pa.string()),
            "generation_id": found["about"],
            "type": pa.array(["user_message"] * len(ids), type=pa.string()),
            "data": pa.array(["{}"] * len(ids), type=pa.string()),
        }
        there = alive[of] & np.array([blob is not None for blob in sealed], dtype=np.bool_)
        self._write_events(writer, pa.table(columns), sealed, of, there, derived=True)
        self.sealed.counts["derived_messages"] += int(there.sum())

    def _repositories(self, writer: tables.TableWriter, alive: Bools) -> None:
        """What repositories tell of edits, behind what clients told."""
        rows_of = np.array([row for row, _ in self._part.later], dtype=np.int64)
        if not len(rows_of):
            return
        later = [one for _, one in self._part.later]
        found, of = self._part.events.take(pa.array(rows_of)), self._part.episode_of_event[rows_of]
        told = (found[name].to_pylist() for name in ("id", "key_id", "user"))
        ids = [f"{id}@{one.mark}" for id, one in zip(found["id"].to_pylist(), later, strict=True)]
        sealed = [
            self._sealed_like(blob, user, event_aad(key_id, id), one.data)
            for id, (_, key_id, user), blob, one in zip(
                ids, zip(*told, strict=True), self._read(found), later, strict=True
            )
        ]
        columns = {
            **{name: found[name] for name in ("seq", "key_id", "user", "generation_id")},
            "id": pa.array(ids, type=pa.string()),
            "type": pa.array([one.type for one in later], type=pa.string()),
            "at": pa.array([one.at for one in later], type=pa.int64()),
            "wall": pa.array([one.at for one in later], type=pa.int64()),
            "data": pa.array(["{}"] * len(ids), type=pa.string()),
        }
        there = alive[of] & np.array([blob is not None for blob in sealed], dtype=np.bool_)
        self._write_events(writer, pa.table(columns), sealed, of, there, derived=True)

    def _sealed_like(
        self, blob: bytes | None, user: str, aad: bytes, data: Mapping[str, Any]
    ) -> bytes | None:
        """An event's data under the key of another's; None where that is gone."""
        try:
            return self._vault.seal(user, encode_data(dict(data)), aad, like=blob) if blob else None
        except UserForgottenError:
            return None

    def _message(self, gid: str, key_id: str, user: str, episode: str, sealed: bytes | None) -> bytes | None:
        """The request of a sealed payload, sealed as the data of an event; None where there is none."""
        try:
            if sealed is None:
                raise IntegrityError("its segment is gone", hint="rtrl verify --full")
            text = open_payload(self._vault, user, gid, sealed).request
            aad = event_aad(key_id, f"next:{gid}")
            return self._vault.seal(user, encode_data({"text": text}), aad, like=sealed) if text else None
        except IntegrityError as error:
            self._leave_out(gid, episode, f"follow_up_{error.kind}")
            return None

    def _write_events(
        self,
        writer: tables.TableWriter,
        found: pa.Table,
        sealed: list[bytes | None],
        of: Ints,
        there: Bools,
        *,
        derived: bool,
    ) -> None:
        names = [self._names[n] for n in of]
        table = (
            found.append_column("episode", pa.array(names, type=pa.string()))
            .append_column("derived", pa.array([derived] * len(names), type=pa.bool_()))
            .append_column("sealed", pa.array(sealed, type=pa.binary()))
        )
        writer.write(table.select(schemas.EVENTS.names).filter(pa.array(there)).cast(schemas.EVENTS))
        np.add.at(self._n_events, of[there], 1)
        self.sealed.counts["events"] += int(there.sum())

    def episodes(self) -> None:
        """episodes.parquet: those with a generation left; who and where is said by the first one."""
        of = self._part.episode_of_generation
        kept = np.flatnonzero(self._kept)
        there, first = np.unique(of[kept], return_index=True)
        heads = self._part.generations.take(pa.array(kept[first]))
        columns: dict[str, Any] = {name: heads[name] for name in _FROM_HEAD}
        found = self._part.episodes.take(pa.array(there))
        columns |= {name: found[name] for name in found.schema.names}
        columns |= {
            "checkpoint": heads["first_sampler"],
            "n_generations": np.bincount(of[kept], minlength=len(self._names))[there],
            "n_events": self._n_events[there],
        }
        table = pa.table({f.name: columns[f.name] for f in schemas.EPISODES}).cast(schemas.EPISODES)
        tables.write(self._part.folder / schemas.EPISODES_FILE, table)
        self.sealed.counts["episodes"] += table.num_rows

    def _read(self, found: pa.Table) -> Iterator[bytes | None]:
        places = (np.asarray(found[name]).tolist() for name in ("segment", "start", "size"))
        return (self._payloads.read(*place) for place in zip(*places, strict=True))

    def _leave_out(self, record_id: str, episode: str, reason: str) -> None:
        self.sealed.quarantine.append({"id": record_id, "episode": episode, "reason": reason})


_FROM_HEAD = ("key_id", "user", "session", "line", "arm")


def _batches(table: pa.Table) -> Iterator[tuple[int, int]]:
    """Rows [start, end) of batches that bound rows and payload bytes."""
    start, held = 0, 0
    for row, size in enumerate(np.asarray(table["size"]).tolist()):
        if row > start and (held + size > _BATCH_BYTES or row - start >= _BATCH_ROWS):
            yield start, row
            start, held = row, 0
        held += size
    if start < table.num_rows:
        yield start, table.num_rows
