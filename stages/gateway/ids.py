"""Ids of generations: how they are made, and what cannot be one."""

from __future__ import annotations

import re
import secrets
import uuid

_ID = re.compile(r"gen_[0-9a-f]{32}")


def new_id(wall: int) -> str:
    """A generation id: time first, so that the spool's index grows at one end; then 74 random bits.

    Its digits are a UUID of version 8 (RFC 9562): no other system's ids of version 1 to 7 look alike.
    """
    low = 0b10 << 62 | secrets.randbits(62)
    return f"gen_{wall << 80 | 8 << 76 | secrets.randbits(12) << 64 | low:032x}"


def is_id(value: str) -> bool:
    """Whether `new_id` could have made it."""
    return _ID.fullmatch(value) is not None


def of_uuid(value: str) -> tuple[str, bool]:
    """(the generation id whose 32 digits a client writes as a UUID, "" for what is none; whether it may be
    another system's: one of the versions 1 to 7)."""
    try:
        found = uuid.UUID(value)
    except ValueError:
        return "", True
    return f"gen_{found.hex}", found.version in range(1, 8)
