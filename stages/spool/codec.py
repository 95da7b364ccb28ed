"""What stands in a frame's body, and in the sealed payload inside it. Pure.

    generation body = u32 n, msgpack Generation (n bytes), sealed payload (the rest; empty for no-train)
    event body      = u32 n, msgpack StoredEvent (n bytes), sealed data (the rest; empty if none is content)

A payload is sealed for the generation's user with the generation id as associated data; an event's
data for the event's user with `event_aad`. Numbers and booleans of the fields we know are not content and
stay readable; with any other value, or any other field, all of `data` is sealed.
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec

from stages.records import Event, Generation, Payload
from stages.spool.frames import Kind

_LENGTH = struct.Struct("<I")


class StoredEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event and the user whose key seals its data. `event.data` holds what is no content.

    `received` is the seq under which it waited for its generation, 0 when it did not.
    """

    event: Event
    user: str = ""
    received: int = 0


_encode = msgspec.msgpack.Encoder().encode
_decode_generation = msgspec.msgpack.Decoder(Generation).decode
_decode_event = msgspec.msgpack.Decoder(StoredEvent).decode
_decode_payload = msgspec.msgpack.Decoder(Payload).decode
_decode_data = msgspec.msgpack.Decoder(dict[str, Any]).decode


def encode(payload: Payload) -> bytes:
    """The plaintext of a sealed payload (msgpack)."""
    return _encode(payload)


def decode(data: bytes) -> Payload:
    """The payload in `data`. Raises ValueError when it is none."""
    return _decode_payload(data)


def encode_data(data: dict[str, Any]) -> bytes:
    """The plaintext of an event's sealed data (msgpack)."""
    return _encode(data)


def decode_data(data: bytes) -> dict[str, Any]:
    """The event data in `data`."""
    return _decode_data(data)


# Fields of events that are measured, not written: docs/http.md. A client's own field names are its text.
_MEASURED = frozenset(
    ("added", "added_kept", "deleted", "deleted_kept", "duration_ms", "horizon_s", "ok", "part", "value")
)


def is_content(data: dict[str, Any]) -> bool:
    """Whether event data holds anything a person wrote or owns: names of fields of their own count too."""
    return any(
        name not in _MEASURED or not isinstance(value, int | float | None) for name, value in data.items()
    )


def generation_aad(generation_id: str) -> bytes:
    """Associated data of a generation's sealed payload."""
    return generation_id.encode()


def event_aad(key_id: str, event_id: str) -> bytes:
    """Associated data of an event's sealed data."""
    return f"event:{key_id}:{event_id}".encode()


def pack_generation(generation: Generation, sealed: bytes) -> bytes:
    """The body of a GENERATION frame. Raises ValueError for what no reader could read."""
    meta = _encode(generation)
    _decode_generation(meta)
    return b"".join((_LENGTH.pack(len(meta)), meta, sealed))


def unpack_generation(body: bytes) -> tuple[Generation, bytes]:
    """Generation and sealed payload of a GENERATION frame."""
    (n,) = _LENGTH.unpack_from(body)
    return _decode_generation(memoryview(body)[4 : 4 + n]), body[4 + n :]


def pack_event(event: Event, user: str, sealed: bytes, received: int = 0) -> bytes:
    """The body of an EVENT or PENDING frame. Raises as `pack_generation`."""
    meta = _encode(StoredEvent(event, user, received))
    _decode_event(meta)
    return b"".join((_LENGTH.pack(len(meta)), meta, sealed))


def unpack_event(body: bytes) -> tuple[StoredEvent, bytes]:
    """Event and sealed data of an EVENT or PENDING frame."""
    (n,) = _LENGTH.unpack_from(body)
    return _decode_event(memoryview(body)[4 : 4 + n]), body[4 + n :]


def readable(kind: int, body: bytes) -> bool:
    """Whether this program can read a frame whose bytes are as they were written."""
    try:
        if kind == Kind.GENERATION:
            unpack_generation(body)
        elif kind in (Kind.EVENT, Kind.PENDING):
            unpack_event(body)
    except (ValueError, struct.error):
        return False
    return True
