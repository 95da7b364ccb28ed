"""The log of a run (`store/logs/<run>.jsonl`) and its heartbeat in the registry.

The heartbeat is information for people: whether a run lives, its lock says.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from stages.registry.canonical import plain
from stages.registry.schema import FILE, address
from stages.registry.states import now

HEARTBEAT_S = 10.0


class JsonRunLog:
    """One JSON object per line: `at`, `event`, and the event's fields."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", encoding="utf-8", buffering=1)

    def write(self, event: str, **fields: Any) -> None:
        """Append one line. A disk that is full loses the line, not the run."""
        with contextlib.suppress(OSError):
            line = {"at": now(), "event": event, **plain(fields)}
            self._file.write(json.dumps(line, ensure_ascii=False) + "\n")

    def __enter__(self) -> JsonRunLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._file.close()


class NoLog:
    """A log of what is no run (`--dry-run`)."""

    def write(self, event: str, **fields: Any) -> None:
        """Nothing."""


@contextlib.contextmanager
def heartbeat(store_dir: Path, run_id: str, every: float = HEARTBEAT_S) -> Iterator[None]:
    """Say every so often that the run is alive, for the length of the block."""
    stop = threading.Event()
    place = address(store_dir / FILE, "rw")  # never made where the store's disk is away

    def beat() -> None:
        while not stop.wait(every):
            with (
                contextlib.suppress(sqlite3.Error),
                contextlib.closing(sqlite3.connect(place, uri=True, timeout=5)) as connection,
                connection,
            ):
                connection.execute("UPDATE run SET heartbeat_at = ? WHERE id = ?", (now(), run_id))

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
