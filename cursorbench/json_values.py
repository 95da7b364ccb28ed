"""How much there is in JSON, before anything is made of it: an empty list of three bytes takes seventy."""

from __future__ import annotations

MAX_VALUES = 200_000  # a body of so many takes tenths of a second, and everybody waits


def values(json: bytes, most: int) -> int:
    """How many objects, lists and strings are in JSON; an upper bound where that is `most` or less."""
    bound = len(json) // 2
    if bound > most:
        bound = json.count(b"{") + json.count(b"[") + json.count(b'"') // 2
    if bound <= most:
        return bound
    plain = json.replace(b"\\\\", b"").replace(b'\\"', b"")  # every quote left begins or ends a string
    strings = plain.count(b'"') // 2
    if strings > most:
        return strings
    outside = b"".join(plain.split(b'"')[::2])
    return strings + outside.count(b"{") + outside.count(b"[")
