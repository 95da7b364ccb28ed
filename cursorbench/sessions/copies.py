"""Which files of one reading have the same bytes, and what stands for a file's bytes in a run's record.

Not for: what files with different bytes tell of one session (`tellers.py`, `seen.py`).
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

_PIECE = 1 << 20  # bytes


class Copies:
    """Files with the same bytes. Only those of the same size are compared."""

    def __init__(self) -> None:
        self._by_size: dict[int, list[Path]] = {}
        self._known: set[bytes] = set()

    def again(self, path: Path) -> bool:
        """Whether a file with these bytes came before."""
        try:
            alike = self._by_size.setdefault(path.stat().st_size, [])
            alike.append(path)
            if len(alike) == 1:
                return False
            if len(alike) == 2:
                self._known.add(digest_of(alike[0]))
            digest = digest_of(path)
            known = digest in self._known
            self._known.add(digest)
            return known
        except OSError:
            return False  # whoever reads it says so


def digest_of(path: Path) -> bytes:
    """Of what the file is long; of one without a length (below /proc some have no end) of its beginning."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        left = os.fstat(file.fileno()).st_size or _PIECE
        while left > 0 and (piece := file.read(min(left, _PIECE))):
            found.update(piece)
            left -= len(piece)
    return found.digest()
