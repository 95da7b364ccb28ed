"""What the spool's writer tells of an event or a generation."""

from __future__ import annotations

from typing import Literal, NamedTuple


class EventResult(NamedTuple):
    """What became of one event. `reason` tells why it was rejected."""

    status: Literal["accepted", "duplicate", "pending", "rejected"]
    reason: str = ""


class Owner(NamedTuple):
    """Whose a generation is. `recorded` is False while it is still being made."""

    key_id: str
    user: str
    plain: bool  # no-train: nothing of it or its events is written
    recorded: bool
