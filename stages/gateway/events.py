"""`POST /v1/events`: what clients saw after their generations.

Checks and normalises; the spool decides what is a duplicate, what waits and whose it is.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from stages.clock import now_ms
from stages.errors import DependencyDownError
from stages.gateway.attribution import MAX_NAME
from stages.gateway.errors import invalid, unavailable
from stages.gateway.event_data import DATA, problem, whole_numbers
from stages.gateway.ids import is_id
from stages.gateway.metrics import Metrics
from stages.gateway.times import parse_ms
from stages.records import Event
from stages.spool import SpoolWriter

_COUNTED = {
    "accepted": "accepted",
    "no_train": "accepted",
    "duplicate": "duplicates",
    "pending": "pending",
}  # status: what it counts as in the answer


class _Taken(NamedTuple):
    """Of the events of one request: type and status of each, and those rejected as the answer tells them."""

    statuses: list[tuple[str, str]]
    rejected: list[dict[str, Any]]


class EventIntake:
    """Takes events in."""

    def __init__(self, spool: SpoolWriter, metrics: Metrics, *, max_events: int, client_clock: bool) -> None:
        self._spool = spool
        self._metrics = metrics
        self._max_events = max_events
        self._client_clock = client_clock

    async def take(self, key_id: str, body: dict[str, Any], *, no_train: bool = False) -> dict[str, Any]:
        """Record what is right in `body`, report what is not; with `no_train` nothing is recorded.

        Raises:
            ApiError: 400 when the body holds no events, 503 when the spool takes nothing.
        """
        events = self._list(body)
        try:
            found = await asyncio.to_thread(self._taken, key_id, events, now_ms(), no_train=no_train)
        except DependencyDownError as error:
            message = "not all events could be recorded; send them again"
            raise unavailable("capture_unavailable", message, retry_after=10) from error
        counts = {"accepted": 0, "duplicates": 0, "pending": 0}
        for kind, status in found.statuses:
            self._metrics.event(kind, status)
            if status != "rejected":
                counts[_COUNTED[status]] += 1
        return {**counts, "rejected": sorted(found.rejected, key=lambda one: one["index"])}

    def _taken(self, key_id: str, raws: list[Any], wall: int, *, no_train: bool) -> _Taken:
        """What became of them. In a thread: a diff may have millions of lines.

        Raises DependencyDownError: the spool takes nothing.
        """
        found = _Taken([], [])
        good: list[tuple[int, Event]] = []
        for index, raw in enumerate(raws):
            try:
                good.append((index, self._event(key_id, raw, wall)))
            except ValueError as error:
                found.rejected.append(_rejection(index, raw, str(error)))
                found.statuses.append((_type_label(raw), "rejected"))
        if no_train:
            found.statuses.extend((event.type, "no_train") for _, event in good)
            return found
        results = self._spool.append_events([event for _, event in good])
        for (index, event), result in zip(good, results, strict=True):
            found.statuses.append((event.type, result.status))
            if result.status == "rejected":
                found.rejected.append({"index": index, "id": event.id, "reason": result.reason})
        return found

    def _list(self, body: dict[str, Any]) -> list[Any]:
        events = body.get("events", None if "type" not in body else [body])
        if not isinstance(events, list):
            raise invalid('send one event, or {"events": [...]}', param="events")
        if len(events) > self._max_events:
            raise invalid(
                f"at most {self._max_events} events at a time", param="events", code="too_many_events"
            )
        return events

    def _event(self, key_id: str, raw: Any, wall: int) -> Event:
        """The event in `raw`. Raises ValueError with what is wrong, without content."""
        if not isinstance(raw, dict):
            raise ValueError("invalid_event: not an object")
        event_type = raw.get("type")
        if not isinstance(event_type, str) or event_type not in DATA:
            raise ValueError("unknown_type")
        data = raw.get("data")
        data = {} if data is None else data
        if not isinstance(data, dict):
            raise ValueError("invalid_data: data must be an object")
        data = whole_numbers(event_type, data)
        wrong = problem(event_type, data)
        if wrong:
            raise ValueError(f"invalid_data: {wrong}")
        return Event(
            id=_name(raw, "id"),
            key_id=key_id,
            generation_id=_generation_id(raw),
            type=event_type,  # type: ignore[arg-type]  # one of DATA's keys
            at=self._at(raw.get("at"), wall),
            wall=wall,
            data=data,
        )

    def _at(self, value: Any, wall: int) -> int:
        """Event time: the client's, but never the future unless its clock is the one that counts."""
        if value is None:
            return wall
        if not isinstance(value, str | int | float):
            raise ValueError("invalid_at: neither a number nor a string")
        try:
            at = parse_ms(value)
        except ValueError as error:
            raise ValueError(f"invalid_at: {error}") from None
        return at if self._client_clock else min(at, wall)


def _name(raw: dict[str, Any], field: str) -> str:
    value = raw.get(field)
    if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME or not value.isprintable():
        raise ValueError(f"invalid_{field}: a string of 1 to {MAX_NAME} printable characters is needed")
    return value


def _generation_id(raw: dict[str, Any]) -> str:
    """Not any name: what cannot be the id of a generation would wait for it in vain, and be `pending`."""
    value = raw.get("generation_id")
    if not isinstance(value, str) or not is_id(value):
        raise ValueError("invalid_generation_id: the id that came with an answer is needed")
    return value


def _rejection(index: int, raw: Any, reason: str) -> dict[str, Any]:
    given = raw.get("id") if isinstance(raw, dict) else None
    return {"index": index, "id": given if isinstance(given, str) else None, "reason": reason}


def _type_label(raw: Any) -> str:
    kind = raw.get("type") if isinstance(raw, dict) else None
    return kind if isinstance(kind, str) and kind in DATA else "unknown"
