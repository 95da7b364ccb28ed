"""The spool's index: where each record lies, which ids are known, what is damaged.

Derived from the segments and written only after they were synced, so it never points at bytes that a
power cut could take. Losing it costs a rebuild, no data.

Rows are handed over as one JSON array per table and statement: the insertion then is a single SQLite
step, in which Python's global lock is released, and the gateway's event loop is not held up by it.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from stages.errors import StoreError
from stages.spool.damage import Damage

SCHEMA_VERSION = 1
FILE = "spool.db"

_SCHEMA = """
CREATE TABLE IF NOT EXISTS segments (
    id          INTEGER PRIMARY KEY,
    state       TEXT    NOT NULL CHECK (state IN ('active', 'sealed', 'deleting', 'deleted')),
    first_seq   INTEGER NOT NULL,
    last_seq    INTEGER NOT NULL,
    bytes       INTEGER NOT NULL,
    generations INTEGER NOT NULL,
    events      INTEGER NOT NULL,
    max_at      INTEGER NOT NULL,
    created     INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS generations (
    id      TEXT    NOT NULL PRIMARY KEY,
    seq     INTEGER NOT NULL,
    segment INTEGER NOT NULL REFERENCES segments (id),
    offset  INTEGER NOT NULL,
    key_id  TEXT    NOT NULL,
    user    TEXT    NOT NULL,
    at      INTEGER NOT NULL,
    plain   INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS generations_by_place ON generations (segment, offset);
CREATE TABLE IF NOT EXISTS events (
    key_id        TEXT    NOT NULL,
    id            TEXT    NOT NULL,
    generation_id TEXT    NOT NULL,
    seq           INTEGER NOT NULL,
    segment       INTEGER NOT NULL REFERENCES segments (id),
    offset        INTEGER NOT NULL,
    wall          INTEGER NOT NULL,
    state         TEXT    NOT NULL CHECK (state IN ('attached', 'pending', 'refused', 'expired')),
    PRIMARY KEY (key_id, id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS events_by_place ON events (segment, offset);
CREATE INDEX IF NOT EXISTS events_pending ON events (generation_id) WHERE state = 'pending';
CREATE TABLE IF NOT EXISTS damage (
    segment     INTEGER NOT NULL,
    offset      INTEGER NOT NULL,
    length      INTEGER NOT NULL,
    reason      TEXT    NOT NULL,
    generations TEXT    NOT NULL,
    events      INTEGER NOT NULL,
    told        INTEGER NOT NULL,
    PRIMARY KEY (segment, offset)
) WITHOUT ROWID;
"""

_INSERT_GENERATIONS = """
INSERT OR IGNORE INTO generations (id, seq, segment, offset, key_id, user, at, plain)
SELECT r.value ->> 0, r.value ->> 1, r.value ->> 2, r.value ->> 3,
       r.value ->> 4, r.value ->> 5, r.value ->> 6, r.value ->> 7
FROM json_each(?) AS r
"""
_INSERT_EVENTS = """
INSERT INTO events (key_id, id, generation_id, seq, segment, offset, wall, state)
SELECT r.value ->> 0, r.value ->> 1, r.value ->> 2, r.value ->> 3,
       r.value ->> 4, r.value ->> 5, r.value ->> 6, r.value ->> 7
FROM json_each(?) AS r WHERE true
ON CONFLICT (key_id, id) DO UPDATE SET
    seq = excluded.seq, segment = excluded.segment, offset = excluded.offset, state = excluded.state
WHERE events.state = 'pending'
"""

_UPSERT_SEGMENT = """
INSERT INTO segments VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
    state = excluded.state, first_seq = excluded.first_seq, last_seq = excluded.last_seq,
    bytes = excluded.bytes, generations = excluded.generations, events = excluded.events,
    max_at = excluded.max_at, created = excluded.created
"""


class GenerationRow(NamedTuple):
    """Index row of a generation. `plain` is 1 for no-train: nothing of it or its events is content."""

    id: str
    seq: int
    segment: int
    offset: int
    key_id: str
    user: str
    at: int
    plain: int


class EventRow(NamedTuple):
    """Index row of an event."""

    key_id: str
    id: str
    generation_id: str
    seq: int
    segment: int
    offset: int
    wall: int
    state: str


class SegmentRow(NamedTuple):
    """Index row of a segment; `bytes` is how far its records are indexed."""

    id: int
    state: str
    first_seq: int
    last_seq: int
    bytes: int
    generations: int
    events: int
    max_at: int
    created: int


class Batch:
    """Rows that go into the index in one transaction."""

    def __init__(self) -> None:
        self.generations: list[GenerationRow] = []
        self.events: list[EventRow] = []
        self.segments: dict[int, SegmentRow] = {}

    def followed_by(self, later: Batch) -> Batch:
        """Both in one, in this order."""
        self.generations += later.generations
        self.events += later.events
        self.segments |= later.segments
        return self


class Index:
    """`spool.db`. One connection writes and one reads, so that a look-up never waits for a commit."""

    def __init__(self, spool_dir: Path) -> None:
        self.path = spool_dir / FILE
        self._lock = threading.Lock()
        self._db = _connect(self.path)
        self._reading = threading.Lock()
        self._reader = _connect(self.path)

    def close(self) -> None:
        """Close both connections."""
        with self._lock, self._reading:
            self._reader.close()
            self._db.close()

    def commit(self, batch: Batch) -> None:
        """Write `batch`; durable on return."""
        with self._lock, self._db:
            self._db.execute("BEGIN IMMEDIATE")
            if batch.segments:
                self._db.executemany(_UPSERT_SEGMENT, list(batch.segments.values()))
            if batch.generations:
                self._db.execute(_INSERT_GENERATIONS, (msgspec.json.encode(batch.generations).decode(),))
            if batch.events:
                self._db.execute(_INSERT_EVENTS, (msgspec.json.encode(batch.events).decode(),))

    def write(self, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Run one statement for each of `rows` in one durable transaction."""
        with self._lock, self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany(statement, rows)

    def mark_deleting(self, segment: int) -> None:
        """The segment's file is about to go: drop what points into it, in one transaction."""
        with self._lock, self._db:
            self._db.execute("BEGIN IMMEDIATE")
            for table in ("events", "generations", "damage"):
                self._db.execute(f"DELETE FROM {table} WHERE segment = ?", (segment,))
            self._db.execute("UPDATE segments SET state = 'deleting' WHERE id = ?", (segment,))

    def rows(self, query: str, arguments: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """All rows of `query`."""
        with self._reading:
            return self._reader.execute(query, arguments).fetchall()

    def generation(self, generation_id: str) -> GenerationRow | None:
        """The row of one generation."""
        found = self.rows("SELECT * FROM generations WHERE id = ?", (generation_id,))
        return GenerationRow(*found[0]) if found else None

    def event(self, key_id: str, event_id: str) -> EventRow | None:
        """The row of one event."""
        found = self.rows("SELECT * FROM events WHERE key_id = ? AND id = ?", (key_id, event_id))
        return EventRow(*found[0]) if found else None

    def pending(self) -> list[EventRow]:
        """Events that wait for their generation, oldest first."""
        found = self.rows("SELECT * FROM events WHERE state = 'pending' ORDER BY seq")
        return [EventRow(*row) for row in found]

    def segments(self, first_seq: int = 0, last_seq: int = 1 << 62) -> list[SegmentRow]:
        """Segments with records between the two, oldest first; deleted ones are left out."""
        found = self.rows(
            "SELECT * FROM segments WHERE state IN ('active', 'sealed') AND last_seq >= ? AND first_seq <= ?"
            " ORDER BY id",
            (first_seq, last_seq),
        )
        return [SegmentRow(*row) for row in found]

    def damages(self, *, untold: bool = False) -> list[Damage]:
        """All damage on record; with `untold` only what nobody was told of yet."""
        found = self.rows(
            "SELECT segment, offset, length, reason, generations, events FROM damage WHERE told <= ?"
            " ORDER BY segment, offset",
            (0 if untold else 1,),
        )
        return [Damage(s, o, n, r, tuple(msgspec.json.decode(g)), e) for s, o, n, r, g, e in found]

    def record(self, damages: Iterable[Damage], *, told: bool) -> None:
        """Put damage on record (quarantine). `told` says that a person has been told of it."""
        self.write(
            "INSERT OR REPLACE INTO damage VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    d.segment,
                    d.offset,
                    d.length,
                    d.reason,
                    msgspec.json.encode(d.generations).decode(),
                    d.events,
                    told,
                )
                for d in damages
            ],
        )

    def lost_in(self, segment: int, offset: int, end: int) -> tuple[tuple[str, ...], int]:
        """Generation ids and number of events indexed in bytes [offset, end) of a segment."""
        ids = self.rows(
            "SELECT id FROM generations WHERE segment = ? AND offset >= ? AND offset < ? ORDER BY offset",
            (segment, offset, end),
        )
        events = self.rows(
            "SELECT count(*) FROM events WHERE segment = ? AND offset >= ? AND offset < ?",
            (segment, offset, end),
        )
        return tuple(row[0] for row in ids), int(events[0][0])


def _connect(path: Path) -> sqlite3.Connection:
    with suppress(FileExistsError):  # before SQLite, which goes by the umask
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    db = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA foreign_keys = ON")
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version == 0:
        db.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")
    elif version != SCHEMA_VERSION:
        db.close()
        raise StoreError(
            f"{path} has schema {version}; this program knows {SCHEMA_VERSION}",
            hint="use the program version that wrote it, or remove the file: it is rebuilt from the segments",
        )
    return db
