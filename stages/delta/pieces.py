"""Pieces of a file, read by many threads at a time with few bytes in memory.

`pread`, not `mmap`: of a file that is cut short or a disk that fails, a mapping makes a SIGBUS, which ends
the process; this makes an error.
"""

from __future__ import annotations

import os
import weakref
from pathlib import Path

from stages.errors import IntegrityError


class Pieces:
    """An open file. Closed when it is no longer referred to. Raises (opening) FileNotFoundError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._fd)
        self.size = os.fstat(self._fd).st_size

    def read(self, begin: int, end: int) -> bytes:
        """Bytes `begin` to `end`. Raises IntegrityError (exit 12) when the file ends before."""
        found = os.pread(self._fd, end - begin, begin)
        while len(found) < end - begin:
            more = os.pread(self._fd, end - begin - len(found), begin + len(found))
            if not more:
                raise IntegrityError(f"{self.path} ends before byte {end}", hint="rtrl verify --full")
            found += more
        return found
