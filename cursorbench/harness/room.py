"""Room for what is held in memory at one time, for who reads what others send (`relay.py`)."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class Room:
    """Bytes of bodies that are held at one time; who finds too little room waits."""

    def __init__(self, size: int) -> None:
        self._left = size
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def of(self, size: int) -> Iterator[None]:
        """So many of them, for as long as the block lasts."""
        with self._changed:
            self._changed.wait_for(lambda: self._left >= size)
            self._left -= size
        try:
            yield
        finally:
            with self._changed:
                self._left += size
                self._changed.notify_all()
