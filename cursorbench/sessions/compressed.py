"""Compressed logs, read as what they hold: gzip, Zstandard, bzip2 and xz, told by a file's first bytes.

Codex and log rotation compress old logs, and some tools leave the name as it was. A reader takes a file, so
one is unpacked into a folder of its own while it is read. OpenTelemetry's collector writes each export as a
frame behind its size. Not for: archives of several files (`reading.py`).
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from io import BufferedIOBase
from pathlib import Path
from typing import Any, BinaryIO

import zstandard

from cursorbench.scratch import scratch
from cursorbench.sessions.reading import PROTOBUF

_LOG = re.compile(r"\.(?:jsonl?|ndjson|log|md|txt|traj|history)(?:\.(?:gz|zstd?|bz2|xz))?$", re.IGNORECASE)
_SUFFIX = re.compile(r"\.(?:gz|zstd?|bz2|xz)$", re.IGNORECASE)
_PACKED = 4096  # bytes of Zstandard at a time: they may hold 128 MiB
_SIZE = 4  # bytes, before each frame of the collector's


class _Zstandard:
    """Zstandard's frames, one behind the other: `zstandard.open` takes one that was cut for whole."""

    def __init__(self, path: Path, pieces: Callable[[BinaryIO], Iterator[bytes]] | None = None) -> None:
        self._file = path.open("rb")
        self._pieces = filter(None, (pieces or _frames)(self._file))

    def __enter__(self) -> _Zstandard:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read1(self, _size: int) -> bytes:
        """The next piece, b"" at the end."""
        return next(self._pieces, b"")


def _frames(file: BinaryIO) -> Iterator[bytes]:
    frame = zstandard.ZstdDecompressor().decompressobj()
    begun = False
    while packed := file.read(_PACKED):
        while packed:
            yield frame.decompress(packed)
            packed, begun = frame.unused_data, not frame.eof
            if frame.eof:
                frame = zstandard.ZstdDecompressor().decompressobj()
    if begun:
        raise EOFError


def _exports(file: BinaryIO) -> Iterator[bytes]:
    """What the collector wrote with `compression: zstd`, a line for each export."""
    while size := file.read(_SIZE):
        left, frame = int.from_bytes(size, "big"), zstandard.ZstdDecompressor().decompressobj()
        while left and not frame.eof:
            packed = file.read(min(left, _PACKED))
            if not packed:
                raise EOFError
            left -= len(packed)
            yield frame.decompress(packed)
        if left or not frame.eof:
            raise EOFError
        yield b"\n"


_FRAME = b"(\xb5/\xfd"
_OPENERS: dict[bytes, Callable[[Path], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
    _FRAME: _Zstandard,
}
_DAMAGE = (EOFError, OSError, zlib.error, lzma.LZMAError, zstandard.ZstdError)
_MOST = 8 << 30  # bytes that one file is unpacked to
_PIECE = 1 << 20


@contextmanager
def unpacked(path: Path) -> Iterator[tuple[Path, str]]:
    """The file, or one with what it holds; and why that is not all of it, "" where it is."""
    found = _opener(path)
    if found is None:
        yield path, ""
        return
    with scratch("rtrl-unpacked-") as folder, found(path) as packed:
        file = folder / _SUFFIX.sub("", path.name)
        damage = _unpack(packed, file)
        yield file, damage or (PROTOBUF if _is_protobuf(found, file) else "")


def _is_protobuf(opener: Callable[[Path], Any], file: Path) -> bool:
    with file.open("rb") as unpacked_:
        return isinstance(opener, partial) and unpacked_.read(1) == b"\n"


def _unpack(packed: BufferedIOBase | _Zstandard, file: Path) -> str:
    with file.open("wb") as out:
        while True:
            try:
                piece = packed.read1(_PIECE)
            except _DAMAGE:
                return "the compressed file is damaged: what is behind is not read"
            if not piece:
                return ""
            if out.tell() + len(piece) > _MOST:
                return f"the compressed file holds more than {_MOST >> 30} GiB: unpack it"
            out.write(piece)


def _opener(path: Path) -> Callable[[Path], Any] | None:
    """What unpacks the file; None where it is no compressed log."""
    if not _LOG.search(path.name):
        return None
    with path.open("rb") as file:
        head = file.read(8)
    if head[_SIZE:] == _FRAME:
        return partial(_Zstandard, pieces=_exports)
    return next((opener for magic, opener in _OPENERS.items() if head.startswith(magic)), None)
