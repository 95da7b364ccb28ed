"""Events for the tests of signals."""

from __future__ import annotations

from typing import Any

from stages.records import Event

HOUR = 3_600_000
BEFORE = "def area(w, h):\n    return w + h\n"
AFTER = "def area(w, h):\n    return w * h\n"


def event(kind: str, at: int = 0, eid: str = "", generation: str = "g", **data: Any) -> Event:
    return Event(
        id=eid or f"{kind}-{at}",
        key_id="k",
        generation_id=generation,
        type=kind,  # type: ignore[arg-type]
        at=at,
        wall=at,
        data=data,
    )


def applied(
    at: int = 0, path: str = "a.py", before: str = BEFORE, after: str = AFTER, generation: str = "g"
) -> Event:
    return event("edit_applied", at, generation=generation, path=path, before=before, after=after)


def survived(now: str, horizon_s: float = 3600, path: str = "a.py", **more: str) -> Event:
    return event("edit_survival", int(1000 * horizon_s), path=path, horizon_s=horizon_s, now=now, **more)
