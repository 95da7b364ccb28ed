"""A log whose lines are in memory, or sealed somewhere: what was received rather than found on a disk.

Adapters read paths. This is one that opens on lines handed over, so that what comes over the network goes
through the same readers and no plaintext is written anywhere.
Not for: kinds that are one document or a folder.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from pathlib import PosixPath
from typing import Any, BinaryIO, cast

Lines = Callable[[], Iterable[bytes]]


class MemoryLog(PosixPath):
    """A path that is on no disk. `opened` gives its lines, without their ends, each time it is opened."""

    opened: Lines

    @classmethod
    def of(cls, name: str, opened: Lines) -> MemoryLog:
        """A log called `name` in places and messages."""
        log = cls(name)
        log.opened = opened
        return log

    def open(self, *arguments: Any, **named: Any) -> BinaryIO:  # type: ignore[override]
        """The lines as a binary file, read as far as it is asked for."""
        return cast(BinaryIO, io.BufferedReader(_Stream(iter(self.opened()))))


class _Stream(io.RawIOBase):
    """Lines as bytes."""

    def __init__(self, lines: Iterator[bytes]) -> None:
        self._lines = lines
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            line = next(self._lines, None)
            if line is None:
                return 0
            self._left = memoryview(line + b"\n")
        n = min(len(buffer), len(self._left))
        buffer[:n] = self._left[:n]
        self._left = self._left[n:]
        return n
