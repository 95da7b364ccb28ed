"""Seals the records of logs into the parts of an interactions artifact.

An episode stays in the part of its first generation. A part is full with so many episodes or so many bytes;
it is closed some parts later, so that what is told late, an edit undone in a later episode, still reaches its
own. Not for: what the records are (`turns.py`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from stages import rows, schemas, tables
from stages.collect.logs.left_out import NAMED
from stages.collect.logs.parts import OpenPart
from stages.collect.logs.state import Happened, Sampled
from stages.records import Generation, Payload
from stages.spool.codec import encode, encode_data, event_aad, generation_aad, is_content
from stages.vault import Vault

LISTED = 10_000  # rows of quarantine; more are counted
REASONS = 50
_OPEN = 8  # parts that still take what is told late


@dataclass
class _Row:
    """What becomes a row of episodes.parquet."""

    part: int
    head: Generation
    first_seq: int
    last_seq: int
    last_at: int
    generations: int = 0
    events: int = 0


class LogWriter:
    """Writes one interactions artifact under `folder`. Add records in their order, then `finish`."""

    def __init__(self, folder: Path, vault: Vault, horizon_ms: int) -> None:
        self._folder, self._vault, self._horizon_ms = folder, vault, horizon_ms
        self._open: dict[int, OpenPart] = {}
        self._newest = -1
        self._episodes: dict[str, _Row] = {}  # of the open parts
        self._in_newest = self._bytes_in_newest = 0
        self._quarantine: list[dict[str, str]] = []
        self._seq = 0
        self._reasons = 0
        self.first: dict[str, list[str]] = {}  # by reason, where the first of the quarantine stand
        self.counts: Counter[str] = Counter()

    def quarantine(self, where: str, episode: str, reason: str) -> None:
        """Leave something out, with its reason; after `REASONS` kinds of reasons it is "other"."""
        if f"quarantined:{reason}" not in self.counts and self._reasons >= REASONS:
            reason = "other"
        self._reasons += f"quarantined:{reason}" not in self.counts
        self.counts[f"quarantined:{reason}"] += 1
        if len(first := self.first.setdefault(reason, [])) < NAMED:
            first.append(where)
        if len(self._quarantine) < LISTED:
            self._quarantine.append({"id": where, "episode": episode, "reason": reason})

    def add(self, record: Sampled | Happened, *, like: bytes) -> None:
        """The next record, sealed under the key of `like`, a blob of its user.

        Raises UserForgottenError when that key was destroyed; nothing of the record is taken in then.
        """
        if isinstance(record, Sampled):
            self._generation(record, like)
        else:
            self._event(record, like)

    def finish(self) -> None:
        """Write episodes and quarantine, close everything."""
        if self._newest < 0:
            self._begin_part()
        for number in sorted(self._open):
            self._close_part(number)
        table = pa.Table.from_pylist(self._quarantine, schema=schemas.QUARANTINE)
        tables.write(self._folder / schemas.QUARANTINE_FILE, table)

    def _generation(self, record: Sampled, like: bytes) -> None:
        generation = record.generation
        payload = Payload(b"", b"", b"", request=record.request, answer=record.answer)
        aad = generation_aad(generation.id)
        sealed = self._vault.seal(generation.user, encode(payload), aad, like=like)
        self._seq += 1
        row = self._episodes.get(generation.episode)
        if row is None and generation.ordinal:
            self.quarantine(generation.id, generation.episode, "its episode's part is closed")
            return
        if row is None:
            row = self._begin_episode(generation)
        row.generations += 1
        row.last_seq, row.last_at = self._seq, max(row.last_at, generation.at)
        self._open[row.part].add_generation(rows.SealedGeneration(self._seq, generation, sealed))
        self._bytes_in_newest += len(sealed)
        self.counts["generations"] += 1

    def _event(self, record: Happened, like: bytes) -> None:
        event, row = record.event, self._episodes.get(record.episode)
        sealed = b""
        if is_content(event.data):
            aad = event_aad(event.key_id, event.id)
            sealed = self._vault.seal(record.user, encode_data(event.data), aad, like=like)
        self._seq += 1
        if row is None:
            self.quarantine(event.id, record.episode, "its episode's part is closed")
            return
        row.events += 1
        if event.type == "edit_applied":
            row.last_at = max(row.last_at, event.at)
        row_of = rows.SealedEvent(self._seq, event, record.user, sealed, record.episode, record.derived)
        self._open[row.part].add_event(row_of)
        self._bytes_in_newest += len(sealed)
        self.counts["events"] += 1
        self.counts["derived_messages"] += record.derived and event.type == "user_message"

    def _begin_episode(self, generation: Generation) -> _Row:
        full = self._in_newest >= schemas.PART_EPISODES or self._bytes_in_newest >= schemas.PART_BYTES
        if self._newest < 0 or full:
            self._begin_part()
        self._in_newest += 1
        row = _Row(self._newest, generation, self._seq, self._seq, generation.at)
        self._episodes[generation.episode] = row
        self.counts["episodes"] += 1
        return row

    def _begin_part(self) -> None:
        self._newest += 1
        self._in_newest = self._bytes_in_newest = 0
        self._open[self._newest] = OpenPart(self._folder / schemas.part_name(self._newest))
        if self._newest - _OPEN in self._open:
            self._close_part(self._newest - _OPEN)

    def _close_part(self, number: int) -> None:
        part = self._open.pop(number)
        part.close()
        mine = {name: row for name, row in self._episodes.items() if row.part == number}
        for name in mine:
            del self._episodes[name]
        heads = [row.head for row in mine.values()]
        found = [
            {
                "id": head.episode, "key_id": head.key_id, "user": head.user, "session": head.session,
                "line": head.line, "arm": head.arm, "checkpoint": "", "lag": -1, "first_at": head.at,
                "last_at": row.last_at, "ripe_at": row.last_at + self._horizon_ms,
                "n_generations": row.generations, "n_events": row.events,
                "first_seq": row.first_seq, "last_seq": row.last_seq,
            }
            for head, row in zip(heads, mine.values(), strict=True)
        ]  # fmt: skip
        table = pa.Table.from_pylist(found, schema=schemas.EPISODES)
        tables.write(part.folder / schemas.EPISODES_FILE, table)
