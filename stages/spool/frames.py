"""How records lie in a segment file. Pure functions on bytes; no files, no index.

    segment = header, frame*, [footer frame]
    header  = b"RTRLSPL1", u32 version, u32 segment number, u64 first seq, u64 created (ms), u32 crc
    frame   = b"rtF1", u32 body length, u32 crc, u32 kind, u64 seq, body

All integers little-endian. A frame's crc is CRC-32 over length, kind, seq and body. The magic lets a
reader find the next good frame after damaged bytes.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

HEADER = struct.Struct("<8sIIQQI")
FRAME = struct.Struct("<4sIIIQ")
_CHECKED = struct.Struct("<IIQ")

SEGMENT_MAGIC = b"RTRLSPL1"
FRAME_MAGIC = b"rtF1"
VERSION = 1


class Kind(IntEnum):
    """What a frame's body is (see `codec.py`)."""

    GENERATION = 1
    EVENT = 2
    PENDING = 3  # an event whose generation has not come yet; becomes an EVENT frame when it does
    FOOTER = 4  # the segment is complete; no body
    RECEIVED = 5  # records of other systems' sessions: in an inbox (`stages/inbox`), never in a spool


class Header(NamedTuple):
    """What a segment says of itself."""

    segment: int
    first_seq: int
    created: int


class Frame(NamedTuple):
    """One whole frame found at `offset`; `end` is where the next one starts."""

    offset: int
    end: int
    kind: int
    seq: int
    body: bytes


class Bad(NamedTuple):
    """Bytes [offset, end) are no frame. `tail` says that nothing good follows them."""

    offset: int
    end: int
    tail: bool


def pack_header(segment: int, first_seq: int, created: int) -> bytes:
    """The first bytes of a segment file."""
    head = HEADER.pack(SEGMENT_MAGIC, VERSION, segment, first_seq, created, 0)[:-4]
    return head + struct.pack("<I", zlib.crc32(head))


def unpack_header(data: bytes) -> Header | None:
    """The header, or None when `data` does not start with a whole and correct one."""
    if len(data) < HEADER.size:
        return None
    magic, version, segment, first_seq, created, crc = HEADER.unpack_from(data)
    if magic != SEGMENT_MAGIC or version != VERSION or crc != zlib.crc32(data[: HEADER.size - 4]):
        return None
    return Header(segment, first_seq, created)


def pack(kind: int, seq: int, body: bytes) -> bytes:
    """One frame."""
    crc = zlib.crc32(body, zlib.crc32(_CHECKED.pack(len(body), kind, seq)))
    return FRAME.pack(FRAME_MAGIC, len(body), crc, kind, seq) + body


def read_at(data: bytes, offset: int) -> Frame | None:
    """The frame at `offset`, or None when there is no whole and correct one."""
    start = offset + FRAME.size
    if start > len(data):
        return None
    magic, length, crc, kind, seq = FRAME.unpack_from(data, offset)
    end = start + length
    if magic != FRAME_MAGIC or end > len(data):
        return None
    body = data[start:end]
    if crc != zlib.crc32(body, zlib.crc32(_CHECKED.pack(length, kind, seq))):
        return None
    return Frame(offset, end, kind, seq, body)


def scan(data: bytes, offset: int) -> Iterator[Frame | Bad]:
    """Every frame from `offset` to the end of `data`, and every stretch between them that is none."""
    while offset < len(data):
        frame = read_at(data, offset)
        if frame is not None:
            yield frame
            offset = frame.end
            continue
        following = _next_frame(data, offset + 1)
        yield Bad(offset, following if following is not None else len(data), following is None)
        if following is None:
            return
        offset = following


def _next_frame(data: bytes, offset: int) -> int | None:
    while True:
        offset = data.find(FRAME_MAGIC, offset)
        if offset < 0:
            return None
        if read_at(data, offset) is not None:
            return offset
        offset += 1
