"""Ids of generations: how they are made, and what cannot be one."""

from __future__ import annotations

import re
import secrets

_ID = re.compile(r"gen_[0-9a-f]{32}")


def new_id(wall: int) -> str:
    """A generation id: time first, so that the spool's index grows at one end; then 80 random bits."""
    return f"gen_{wall:012x}{secrets.token_hex(10)}"


def is_id(value: str) -> bool:
    """Whether `new_id` could have made it."""
    return _ID.fullmatch(value) is not None
