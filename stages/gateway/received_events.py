"""The events that records of other systems become: their ids and times.

Not for: which records these are (`received.py`), what is told of them (`stages/reactions.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from cursorbench.sessions import items as said
from stages.records import Event

Told = tuple[str, dict[str, Any]]
Item = said.Item


def itself(item: Item, told: Told, line: bytes) -> tuple[str, ...]:
    """What makes a reaction itself, whichever record tells it."""
    of_line = (item.id or line.decode(errors="replace"),)
    return of_line if isinstance(item, said.Feedback) else (item.id, told[0], told[1].get("path", ""))


def event_of(
    kind: str,
    key_id: str,
    generation: str,
    told: Told,
    item: Item,
    what: tuple[tuple[str, ...], int],
    wall: int,
    pseudonym: Callable[[bytes], str],
) -> Event:
    """The event, with an id that the same record has again: of `what` it is, and the how manieth of it.

    A keyed one: ids are readable, and what it is made of (a path, a whole record) is sealed.
    """
    own, n = what
    parts = [generation, *own, *([str(n)] if n else [])]
    one = pseudonym("\0".join(parts).encode(errors="replace"))[:32]
    return Event(
        id=f"{kind}-{one}",
        key_id=key_id,
        generation_id=generation,
        type=told[0],  # type: ignore[arg-type]  # one of the event types
        at=wall if item.at is None else item.at,
        wall=wall,
        data=told[1],
    )


def not_later(event: Event, wall: int) -> Event:
    """Nothing has happened after it was told."""
    return event if event.at <= wall else msgspec.structs.replace(event, at=wall)
