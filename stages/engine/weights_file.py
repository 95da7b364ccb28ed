"""Are the tensors of a checkpoint's weights files those that were published? By the fingerprint's sha256.

Reads bytes; needs no torch, so that the gateway can look while the engine loads. Not here: what the engine
holds (`worker.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from stages.delta.layout import Tensor, read_layout
from stages.delta.pieces import Pieces
from stages.delta.threads import in_order
from stages.errors import IntegrityError

PIECE = 1 << 18  # bytes read at a time: what is made of them stays in the core's cache


Signature = tuple[tuple[str, int, int, int, int], ...]


def signature(directory: Path) -> Signature:
    """Name, device, inode, size and time of the weights files: as long as it is the same, so are they."""
    found = []
    for path in sorted(directory.glob("*.safetensors")):
        stat = path.stat()
        found.append((path.name, stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns))
    return tuple(found)


def file_mismatch(directory: Path, expected: Mapping[str, str]) -> tuple[str, ...]:
    """Names of tensors whose values are not what `expected` (sha256 by name) says, or that are missing.

    The sha256 is over the values as C-contiguous little-endian float32, whatever the file's dtype.

    Raises:
        IntegrityError: (exit 12) a file cannot be read, or holds a dtype that weights do not have.
    """
    files = sorted(directory.glob("*.safetensors"))
    sums: dict[str, str] = {}
    for path in files:
        pieces, tensors = Pieces(path), read_layout(path).tensors
        found = in_order(lambda tensor, pieces=pieces: _sha256(pieces, tensor), tensors)  # type: ignore[misc]
        sums |= dict(zip((tensor.name for tensor in tensors), found, strict=True))
    return tuple(name for name in sums | dict(expected) if sums.get(name) != expected.get(name))


class Files:
    """Weights files, each looked at again only when it has changed."""

    def __init__(self) -> None:
        self._sound: dict[Path, Signature] = {}  # files that were what they should be, as they stood then

    def mismatch(self, directory: Path, expected: Mapping[str, str]) -> tuple[str, ...]:
        """As `file_mismatch`; nothing is looked at where nothing is expected."""
        known = signature(directory)
        if not expected or self._sound.get(directory) == known:
            return ()
        found = file_mismatch(directory, expected)
        if not found:
            self._sound[directory] = known
        return found


def _sha256(pieces: Pieces, tensor: Tensor) -> str:
    digest = hashlib.sha256()
    for begin in range(tensor.begin, tensor.end, PIECE):
        digest.update(as_float32(pieces.read(begin, min(begin + PIECE, tensor.end)), tensor.dtype))
    return digest.hexdigest()


def as_float32(data: bytes, dtype: str) -> bytes | memoryview:
    """The bytes of float32 values, from those of a safetensors dtype. Raises IntegrityError (exit 12)."""
    if dtype == "F32":
        return data
    if dtype == "BF16":  # the upper half of a float32
        values = np.frombuffer(data, "<u2").astype("<u4")
        values <<= 16
        return values.data.cast("B")
    if dtype in ("F16", "F64"):
        return np.frombuffer(data, f"<f{int(dtype[1:]) // 8}").astype("<f4").tobytes()
    raise IntegrityError(f"weights of dtype {dtype} cannot be checked", hint="publish float weights")
