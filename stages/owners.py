"""Names that clients give, and the mark for whose they are: an API key and a user. Not for: pseudonyms."""

from __future__ import annotations

import hashlib
import re

_DIGITS = 16  # with 8 two of 65,000 users of a key are one as often as not
_OWN = re.compile(rf"@[0-9a-f]{{{_DIGITS}}}\Z")


def mark(key_id: str, user: str) -> str:
    """Lower-case hex digits, so many that nobody finds another user with the same."""
    return hashlib.sha256(f"{key_id}\0{user}".encode()).hexdigest()[:_DIGITS]


def own_name(name: str, key_id: str, user: str) -> str:
    """A session, episode or group name a client gave, made unique across keys and users: `NAME@x...x`."""
    return f"{name}@{mark(key_id, user)}"


def is_own_name(name: str) -> bool:
    """Whether a client gave an episode's name (`own_name`). Derived ones go on behind their session's."""
    return _OWN.search(name) is not None
