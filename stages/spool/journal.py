"""Appends frames to segments, syncs them in groups, and brings the index after them.

The part of the writer that knows nothing of what records mean. One background thread does all waiting
for the disk. `lock` is the writer's lock: callers hold it around `append` and `add`.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from stages import faults
from stages.clock import now_ms
from stages.errors import DependencyDownError
from stages.spool.frames import Kind
from stages.spool.index import Batch, EventRow, GenerationRow, Index
from stages.spool.segment import SegmentFile

CHORE_S = 3600.0  # between calls of the journal's `chore`
_RETRY_S = 1.0  # between attempts to write what the disk did not take


class SpoolFullError(DependencyDownError):
    """A record could not be written. Nothing of it is in the spool; what was there is untouched."""

    kind = "spool_full"


class Limits(NamedTuple):
    """When to sync and when to begin a new segment (see `GatewayConfig`)."""

    fsync_s: float
    segment_bytes: int
    segment_s: float


class Journal:
    """The open end of the spool."""

    def __init__(
        self, spool_dir: Path, index: Index, limits: Limits, next_segment: int, next_seq: int
    ) -> None:
        self.lock = threading.RLock()
        self.chore: Callable[[], object] = lambda: None  # called now and then by the background thread
        self.epoch = 0  # grows with every new segment
        self.generations: dict[str, GenerationRow] = {}  # appended, not in the index yet
        self.events: dict[tuple[str, str], EventRow] = {}
        self._dir = spool_dir
        self._index = index
        self._limits = limits
        self._number = next_segment
        self._seq = next_seq
        self._active: SegmentFile | None = None
        self._began = 0.0
        self._retired: list[SegmentFile] = []
        self._batch = Batch()
        self._afterwards: list[Callable[[], object]] = []
        self._dirty = threading.Event()
        self._hurry = threading.Event()
        self._synced = threading.Condition(self.lock)
        self._synced_seq = next_seq - 1
        self._unsynced_since = 0.0  # monotonic; 0 when nothing waits for the next sync
        self._syncing_since = 0.0
        self._failing: OSError | None = None  # the last sync's, until one goes well
        self._broken: Exception | None = None  # for good: nothing is tried again
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="spool-fsync", daemon=True)
        self._thread.start()

    @property
    def failed(self) -> Exception | None:
        """Why nothing is taken now, or None."""
        return self._broken or self._failing

    @property
    def last_seq(self) -> int:
        """Seq of the last record appended."""
        return self._seq - 1

    def segment(self) -> SegmentFile:
        """The segment to append to; a new one when the active one is full or old.

        Raises:
            SpoolFullError: a new one cannot be made.
            DependencyDownError: the disk fails, until a sync goes well; or the segment was removed, for good.
        """
        if self._broken is None and self._active is not None and self._active.lost:
            self._broken = FileNotFoundError(f"{self._active.path} was removed while it was written")
        if self.failed is not None:
            then = "start the gateway again" if self._broken else "it is tried again every second"
            raise DependencyDownError(
                f"the spool's disk failed: {self.failed}", hint=f"check the disk; {then}"
            ) from self.failed
        active, age = self._active, time.monotonic() - self._began
        if active is not None and (
            active.size >= self._limits.segment_bytes or age >= self._limits.segment_s
        ):
            self.rotate()
        if self._active is None:
            try:
                self._active = SegmentFile(self._dir, self._number, self._seq, now_ms())
            except OSError as error:
                raise full(error) from error
            self._began = time.monotonic()  # whatever the clock does
            self._number += 1
            self.epoch += 1
        return self._active

    def append(self, segment: SegmentFile, kind: Kind, body: bytes) -> tuple[int, int]:
        """Hand one frame to the operating system. Returns its offset and seq.

        Raises:
            SpoolFullError: nothing of it was written.
        """
        seq = self._seq
        try:
            offset = segment.append(kind, seq, body)
        except OSError as error:
            raise full(error) from error
        self._seq += 1
        self._unsynced_since = self._unsynced_since or time.monotonic()
        self._dirty.set()
        return offset, seq

    @property
    def lag(self) -> tuple[int, float]:
        """(records that a power cut would lose now, for how many seconds the oldest of them has been one)."""
        since = self._syncing_since or self._unsynced_since
        return self.last_seq - self._synced_seq, time.monotonic() - since if since else 0.0

    def add(self, row: GenerationRow | EventRow) -> None:
        """Put a row into the index with the next sync."""
        if isinstance(row, GenerationRow):
            self.generations[row.id] = row
            self._batch.generations.append(row)
        else:
            self.events[row.key_id, row.id] = row
            self._batch.events.append(row)
        self._dirty.set()

    def afterwards(self, act: Callable[[], object]) -> None:
        """Call `act` once, from the background thread, when all appended so far is durable and indexed."""
        self._afterwards.append(act)
        self._dirty.set()

    def rotate(self) -> None:
        """Seal the active segment; the next record begins a new one."""
        if self._active is None:
            return
        try:
            self._active.seal()
        except OSError as error:
            raise full(error) from error
        self._retired.append(self._active)
        self._active = None
        self._dirty.set()

    def skip(self, last_seq: int) -> None:
        """The next record, in a new segment, gets a number behind `last_seq` at least."""
        with self.lock:
            if last_seq > self.last_seq:
                self.rotate()
                if self._synced_seq == self.last_seq:  # numbers that no record has wait for no disk
                    self._synced_seq = last_seq
                self._seq = last_seq + 1

    def flush(self, timeout: float) -> int:
        """Wait until everything appended so far is synced and indexed. Returns the last seq."""
        with self._synced:
            wanted = self.last_seq
            self._hurry.set()
            self._dirty.set()
            done = self._synced.wait_for(lambda: self.failed or self._synced_seq >= wanted, timeout)
            if self.failed is not None or not done:
                why = self.failed or "the disk is slow or full"
                raise DependencyDownError(
                    f"the spool was not synced within {timeout:g} s: {why}",
                    hint="look at the disk of the spool folder",
                )
            return wanted

    def close(self) -> None:
        """Seal and sync what is there, stop the thread. On a full disk the next writer seals instead."""
        with self.lock:
            if self._closing:
                return
            try:
                self.rotate()
            except SpoolFullError:
                if self._active is not None:
                    self._retired.append(self._active)
                    self._active = None
            self._closing = True
        self._hurry.set()
        self._dirty.set()
        self._thread.join()
        for segment in self._retired:
            segment.close()

    def _run(self) -> None:
        due = time.monotonic() + CHORE_S
        while True:
            dirty = self._dirty.wait(max(0.0, due - time.monotonic()))
            if time.monotonic() >= due:
                due = time.monotonic() + CHORE_S
                self.chore()
            if not dirty:
                continue
            self._hurry.wait(self._limits.fsync_s)
            self._dirty.clear()
            self._hurry.clear()
            closing = self._closing
            try:
                complete = self._sync()
            except Exception as error:  # noqa: BLE001  # whatever it is: nothing more may be answered for
                with self._synced:
                    self._broken = error
                    self._synced.notify_all()
                return
            if closing:
                return
            if not complete:
                time.sleep(_RETRY_S)
                self._dirty.set()

    def _sync(self) -> bool:
        """fsync what was appended, then put it into the index; False when either has to be tried again."""
        with self.lock:
            batch, self._batch = self._batch, Batch()
            retired, self._retired = self._retired, []
            afterwards, self._afterwards = self._afterwards, []
            files = [*retired, *([self._active] if self._active else [])]
            last = self.last_seq
            self._syncing_since = self._syncing_since or self._unsynced_since
            self._unsynced_since = 0.0
            for file in files:
                batch.segments[file.number] = file.row()
        if not (self._synced_all(files) and self._indexed(batch)):
            with self.lock:
                self._batch = batch.followed_by(self._batch)
                self._retired = retired + self._retired
                self._afterwards = afterwards + self._afterwards
            return False
        for file in retired:
            file.close()
        for act in afterwards:
            act()
        self._settle(batch, last)
        return True

    def _synced_all(self, files: list[SegmentFile]) -> bool:
        """Sync them. Where the disk fails one, nothing more is taken, and False."""
        for file in files:
            try:
                file.sync()
            except OSError as error:
                with self._synced:  # the lock: nothing is appended meanwhile
                    file.keep()
                    self._failing = error
                    self._synced.notify_all()
                return False
        with self.lock:
            self._failing = None
        return True

    def _indexed(self, batch: Batch) -> bool:
        """False when the index is full or locked; the segments have it all."""
        faults.point("spool.index.before")
        try:
            self._index.commit(batch)
        except sqlite3.OperationalError:
            return False
        faults.point("spool.index.after")
        return True

    def _settle(self, batch: Batch, last: int) -> None:
        """`batch` is in the index: drop it from memory, wake who waits."""
        with self._synced:
            for generation in batch.generations:
                self.generations.pop(generation.id, None)
            for event in batch.events:
                known = (event.key_id, event.id)
                if self.events.get(known) == event:
                    del self.events[known]
            self._synced_seq = last
            self._syncing_since = 0.0
            self._synced.notify_all()


def full(error: OSError) -> SpoolFullError:
    """The error of a write that the disk refused."""
    return SpoolFullError(
        f"the spool cannot be written: {error.strerror or error}",
        hint="free disk space in the spool folder; captured records are safe",
    )
