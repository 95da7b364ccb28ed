"""How received telemetry lies on disk: sealed frames in segments of the spool's form. Pure.

    received/segments/00000001.seg   frames of the kind RECEIVED (`stages/spool/frames.py`)
    received/quarantine/             bytes of a write that was cut short
    received/writer.lock

    body = u32 n, msgpack Batch (n bytes), sealed zlib of lines, each ended by a newline

The lines are what log adapters read (`cursorbench/sessions/`). Not for: tokens, which only the spool holds.
"""

from __future__ import annotations

import secrets
import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from stages.owners import mark
from stages.spool.frames import Kind

KIND = Kind.RECEIVED
OWN = "own-session"  # kind of a batch whose lines, JSON [kind, session], name sessions the spool has exactly
MAX_LINES = 256 << 20  # bytes of the lines of a batch; a reader holds so much

_LENGTH = struct.Struct("<I")


class Sender(NamedTuple):
    """Whose records a log holds. `mark` goes into the names of its sessions."""

    user: str
    mark: str


NOBODY = Sender("", "")  # of logs that were found on a disk


class Batch(msgspec.Struct, frozen=True):
    """Records of one request. `kind` is the adapter's that reads them."""

    id: str
    key_id: str
    user: str
    kind: str
    wall: int
    lines: int


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Batch).decode


def sender(key_id: str, user: str) -> Sender:
    """Marked as in names of sessions that clients give: `NAME@x...x`, as two may use the same names."""
    return Sender(user, mark(key_id, user))


def new_id() -> str:
    """Of a batch; only to bind what is sealed to where it lies."""
    return secrets.token_hex(16)


def aad(batch_id: str) -> bytes:
    """Associated data of a batch's sealed lines."""
    return f"received:{batch_id}".encode()


def parts(lines: list[bytes]) -> Iterator[list[bytes]]:
    """The lines in pieces, each for a batch. Raises ValueError for a line too long for any."""
    part, size = list[bytes](), 0
    for line in lines:
        if len(line) >= MAX_LINES:
            raise ValueError(f"a line is longer than {MAX_LINES} bytes")
        if size + len(line) + 1 > MAX_LINES:
            yield part
            part, size = [], 0
        part.append(line)
        size += len(line) + 1
    yield part


def squeeze(lines: list[bytes]) -> bytes:
    """The plaintext that is sealed, of one of `parts`. No line may hold a newline."""
    return zlib.compress(b"".join(line + b"\n" for line in lines), 1)


def unsqueeze(data: bytes) -> list[bytes]:
    """The lines again. Raises ValueError when these are none, or more than a batch has."""
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(data, MAX_LINES + 1)
    except zlib.error as error:
        raise ValueError("not compressed lines") from error
    if len(text) > MAX_LINES or not unpacker.eof:
        raise ValueError("not the lines of one batch")
    return text.split(b"\n")[:-1]


def pack(batch: Batch, sealed: bytes) -> bytes:
    """The body of a frame."""
    meta = _encode(batch)
    return b"".join((_LENGTH.pack(len(meta)), meta, sealed))


def unpack(body: bytes) -> tuple[Batch, bytes]:
    """Batch and sealed lines of a body. Raises ValueError when it is none."""
    try:
        (n,) = _LENGTH.unpack_from(body)
        return _decode(memoryview(body)[4 : 4 + n]), body[4 + n :]
    except (struct.error, ValueError) as error:
        raise ValueError("not a batch") from error
