"""The gateway's side of what it received of other systems' sessions: sealed, appended, synced.

`append` returns when the batches survive a power cut. One process at a time (kernel lock); what a killed
writer left is put in order by the next one. Not for: deciding what is kept (`stages/gateway/received.py`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from cursorbench.files import sync
from stages.clock import now_ms
from stages.errors import DependencyDownError
from stages.inbox import records
from stages.inbox.records import Batch
from stages.spool import frames, segment
from stages.spool.recovery import WriterLock
from stages.spool.segment import SegmentFile
from stages.vault import Vault

LOCK_WAIT_S = 5.0


class InboxFullError(DependencyDownError):
    """Nothing more is taken: the disk or the configured size is full. What was there is untouched."""

    kind = "inbox_full"


class Received(NamedTuple):
    """Lines for one adapter, of one sender."""

    key_id: str
    user: str
    kind: str
    lines: list[bytes]


class InboxWriter:
    """The one writer of an inbox. `GatewayConfig` says what the limits mean."""

    def __init__(self, folder: Path, vault: Vault, *, segment_bytes: int, max_bytes: int) -> None:
        """Take the writer's lock, cut off what a killed writer left half-written.

        Raises:
            LockedError: another process writes here.
        """
        for path in (folder / segment.FOLDER, folder / segment.QUARANTINE):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder, self._vault = folder, vault
        self._segment_bytes, self._max_bytes = segment_bytes, max_bytes
        self._lock = threading.Lock()
        self._flock = WriterLock(folder, wait_s=LOCK_WAIT_S)
        self._file: SegmentFile | None = None
        numbers = segment.numbers(folder)
        self._number = numbers[-1] if numbers else 0
        self._seq = _recover(folder, self._number) if numbers else 0
        self._sealed_bytes = self._complete()

    @property
    def bytes(self) -> int:
        """What lies on disk."""
        return self._sealed_bytes + (self._file.size if self._file else 0)

    def append(self, batches: Sequence[Received]) -> None:
        """Seal and write; on return all of it is on disk. Blocks for the disk.

        Lines of more than `records.MAX_LINES` bytes become several batches.

        Raises:
            ValueError: a single line is longer than that. Nothing was written.
            InboxFullError: not all could be written; what was is told once when sent again.
            DependencyDownError: a user's key could not be made.
        """
        self._vault.ensure({one.user for one in batches})
        pieces = [one._replace(lines=part) for one in batches for part in records.parts(one.lines)]
        with self._lock:
            try:
                for one in pieces:
                    self._append(one)
                if self._file is not None:
                    self._file.sync()
            except OSError as error:
                raise InboxFullError(
                    f"received records cannot be written: {error.strerror or error}",
                    hint="free space (`rtrl gc`)",
                ) from error

    def close(self) -> None:
        """Complete the segment, free the lock."""
        with self._lock:
            self._finish()
        self._flock.release()

    def _append(self, one: Received) -> None:
        batch = Batch(records.new_id(), one.key_id, one.user, one.kind, now_ms(), len(one.lines))
        sealed = self._vault.seal(one.user, records.squeeze(one.lines), records.aad(batch.id))
        body = records.pack(batch, sealed)
        if self.bytes + len(body) > self._max_bytes:
            self._sealed_bytes = self._complete()  # `rtrl gc` may have made room
        if self.bytes + len(body) > self._max_bytes:
            raise InboxFullError(
                f"received records take {self._max_bytes} bytes, as many as they may",
                hint="`rtrl gc --yes` deletes old ones; or raise gateway.received_bytes",
            )
        if self._file is not None and self._file.lost:  # removed by somebody: another, if that can be
            self._file.close()
            self._file = None
        if self._file is not None and self._file.size >= self._segment_bytes:
            self._finish()
        if self._file is None:
            self._number += 1
            self._file = SegmentFile(self._folder, self._number, self._seq + 1, now_ms())
        self._file.append(records.KIND, self._seq + 1, body)
        self._seq += 1

    def _complete(self) -> int:
        """Bytes of the segments that are complete."""
        size = 0
        for number in segment.numbers(self._folder):
            if self._file is None or number != self._number:
                with suppress(FileNotFoundError):  # `rtrl gc` is at it
                    size += segment.path_of(self._folder, number).stat().st_size
        return size

    def _finish(self) -> None:
        file, self._file = self._file, None
        if file is None:
            return
        file.seal()
        file.sync()
        file.close()
        self._sealed_bytes += file.size


def _recover(folder: Path, number: int) -> int:
    """Keep a torn end in quarantine and cut it off. Returns the last seq of the segment."""
    path = segment.path_of(folder, number)
    data = path.read_bytes()
    header = frames.unpack_header(data)
    if header is None and len(data) <= frames.HEADER.size:
        path.unlink()  # killed while the file was made
        sync(path.parent)
        earlier = segment.numbers(folder)
        return _recover(folder, earlier[-1]) if earlier else 0
    last = header.first_seq - 1 if header else 0
    for item in frames.scan(data, frames.HEADER.size):
        if isinstance(item, frames.Frame):
            last = max(last, item.seq)
        elif item.tail:
            segment.set_aside(folder, number, item.offset, data[item.offset :])
            with path.open("r+b") as file:
                file.truncate(item.offset)
                os.fsync(file.fileno())
    return last
