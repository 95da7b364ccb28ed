"""Bytes put aside until they are wanted again: in memory up to a limit, then in a file that has no name.

The file is gone with the process, however that ends, and holds ciphertext under a key that only the process
has: texts of users are written readable nowhere. Not for: anything that outlives a run.
"""

from __future__ import annotations

import tempfile
import zlib
from pathlib import Path
from types import TracebackType
from typing import Self

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

IN_MEMORY = 32 << 20  # bytes kept before there is a file


class Spill:
    """Records by their number, from 0. Close it, or use it in a `with`."""

    def __init__(self, folder: Path | None = None, in_memory: int = IN_MEMORY) -> None:
        self._cipher = AESGCM(AESGCM.generate_key(bit_length=256))
        self._file = tempfile.SpooledTemporaryFile(max_size=in_memory, dir=str(folder) if folder else None)  # noqa: SIM115
        self._ends = [0]

    def add(self, data: bytes) -> int:
        """Put a record aside; returns its number."""
        number = len(self._ends) - 1
        # every record has its own nonce: its number, under a key that is used for nothing else
        sealed = self._cipher.encrypt(number.to_bytes(12, "big"), zlib.compress(data, 1), None)
        self._file.seek(self._ends[-1])
        self._file.write(sealed)
        self._ends.append(self._ends[-1] + len(sealed))
        return number

    def read(self, number: int) -> bytes:
        """A record as it was added."""
        begin, end = self._ends[number], self._ends[number + 1]
        self._file.seek(begin)
        return zlib.decompress(
            self._cipher.decrypt(number.to_bytes(12, "big"), self._file.read(end - begin), None)
        )

    def close(self) -> None:
        """Give it all up."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
