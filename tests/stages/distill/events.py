"""Events for the tests of signals."""

from __future__ import annotations

from typing import Any

from stages.records import Event

HOUR = 3_600_000


def event(kind: str, at: int = 0, eid: str = "", **data: Any) -> Event:
    return Event(
        id=eid or f"{kind}-{at}",
        key_id="k",
        generation_id="g",
        type=kind,  # type: ignore[arg-type]
        at=at,
        wall=at,
        data=data,
    )
