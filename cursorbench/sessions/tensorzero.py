"""Feedback calls in the manner of TensorZero: a metric's value for an inference or an episode, JSON Lines.

Read are bodies of POST /feedback, alone or as {request|body, response}, and rows of the feedback tables
(target_id). Reference: tensorzero.com/docs/gateway/api-reference/feedback. Not for: inferences.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cursorbench.sessions.items import Feedback, Place, Quarantined, Read
from cursorbench.sessions.reading import milliseconds, table_of, text_of
from cursorbench.sessions.records import (
    first_objects,
    first_text,
    json_text,
    mentions,
    number,
    opening,
    records,
)
from cursorbench.sessions.seen import Seen

KIND = "tensorzero"
_TARGETS = ("inference_id", "episode_id", "target_id")
_UUID = re.compile(r"[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}")
_TEXTS = {"comment", "demonstration"}  # reserved names; their values are texts or an inference's output


def recognises(path: Path, head: bytes) -> bool:
    """A feedback call among the first lines."""
    found = first_objects(head)
    if not found:
        return mentions(head, "metric_name", "value") and any(mentions(head, name) for name in _TARGETS)
    return any(_is_call(_call(one)) for one in found)


def read(path: Path, seen: Seen) -> Iterator[Read]:
    """A `Feedback` for each call."""
    for found in records(path):
        if isinstance(found, Quarantined):
            yield found
        else:
            yield from _feedback(found[1], found[0], seen)


def _call(record: dict[str, Any]) -> dict[str, Any]:
    """The call itself, out of its envelope."""
    for name in ("request", "body", "payload", "feedback"):
        if isinstance(inner := record.get(name), dict):
            return _call(inner) if name == "request" else inner
    return record


def _is_call(call: dict[str, Any]) -> bool:
    named = isinstance(call.get("metric_name"), str) or (bool(_name(call)) and "tags" in call)
    return named and any(text_of(call.get(name)) for name in _TARGETS)


def _name(call: dict[str, Any]) -> str:
    """The metric's name; rows of the tables of comments and demonstrations have none."""
    value = call.get("value")
    if "metric_name" in call or not isinstance(value, str | list | dict):  # Postgres has JSON as it is
        return text_of(call.get("metric_name"))
    if isinstance(value, str) and text_of(call.get("target_type")) in ("inference", "episode"):
        return "comment"
    return "demonstration" if text_of(call.get("inference_id")) and text_of(call.get("id")) else ""


def _feedback(record: dict[str, Any], place: Place, seen: Seen) -> Iterator[Read]:
    call = _call(record)
    name = _name(call)
    value = _value(name, call.get("value"))
    if not name or value is None:
        yield Quarantined(place, "no value of the metric" if name else "no metric_name")
        return
    if call.get("dryrun") is True:  # the gateway stores nothing of it
        return
    session, target, about = (_id(call.get(f"{name}_id")) for name in ("episode", "inference", "target"))
    if text_of(call.get("target_type")) == "episode":
        session = session or about
    elif not session and not target:
        target = about
    if not session and not target:
        yield Quarantined(place, "neither inference_id nor episode_id")
        return
    one = text_of(table_of(record.get("response")).get("feedback_id")) or first_text(
        call, "feedback_id", "id"
    )
    if not seen.first("tensorzero", one):
        return
    # a row's `timestamp` is made of its id, in whole seconds and without a zone: the id says it better
    times = (record.get("timestamp"), call.get("timestamp"), record.get("created_at"))
    made = _made(one)
    at = made if made is not None else next((t for t in map(milliseconds, times) if t is not None), None)
    yield from opening(seen, session, place, at)
    yield Feedback(session=session, id=one, at=at, place=place, target=target, name=name, value=value)


def _value(name: str, value: object) -> float | bool | str | None:
    if name in _TEXTS:
        return json_text(value) or None
    return value if isinstance(value, bool | str) else number(value)


def _id(value: object) -> str:
    """An id as its answer has it: TensorZero takes UUIDs in capitals, and writes them in small letters."""
    told = text_of(value)
    return told.lower() if _UUID.fullmatch(told) else told


def _made(one: str) -> int | None:
    """When an id was made: ids are UUIDs of version 7, which begin with the milliseconds."""
    try:
        known = uuid.UUID(one)
    except ValueError:
        return None
    return known.int >> 80 if known.version == 7 else None
