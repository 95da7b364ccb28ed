"""One part of an interactions artifact while it is written. Not for: what goes into it, its episodes."""

from __future__ import annotations

from pathlib import Path

from stages import rows, schemas, tables

_BUFFER = 512  # rows turned into columns at a time
_BUFFER_BYTES = 16 << 20  # of what they hold sealed


class OpenPart:
    """The generations and events of one part; `close` when all are added."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files = (
            tables.TableWriter(folder / schemas.GENERATIONS_FILE, schemas.GENERATIONS),
            tables.TableWriter(folder / schemas.EVENTS_FILE, schemas.EVENTS),
        )
        self._generations: list[rows.SealedGeneration] = []
        self._events: list[rows.SealedEvent] = []
        self._bytes = 0

    def add_generation(self, row: rows.SealedGeneration) -> None:
        """The next generation of the file."""
        self._generations.append(row)
        self._added(len(self._generations), row.sealed)

    def add_event(self, row: rows.SealedEvent) -> None:
        """The next event of the file."""
        self._events.append(row)
        self._added(len(self._events), row.sealed)

    def _added(self, rows_: int, sealed: bytes) -> None:
        self._bytes += len(sealed)
        if rows_ >= _BUFFER or self._bytes >= _BUFFER_BYTES:
            self._flush()

    def close(self) -> None:
        """Finish both files."""
        self._flush()
        for file in self._files:
            file.close()

    def _flush(self) -> None:
        generations, events = self._files
        if self._generations:
            generations.write(rows.generation_batch(self._generations))
        if self._events:
            events.write(rows.event_batch(self._events))
        self._generations, self._events, self._bytes = [], [], 0
