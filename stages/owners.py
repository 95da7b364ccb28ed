"""A mark for whose a name is, where clients give names: of an API key and a user. Not for: pseudonyms."""

from __future__ import annotations

import hashlib

_DIGITS = 16  # with 8 two of 65,000 users of a key are one as often as not


def mark(key_id: str, user: str) -> str:
    """Lower-case hex digits, so many that nobody finds another user with the same."""
    return hashlib.sha256(f"{key_id}\0{user}".encode()).hexdigest()[:_DIGITS]
