"""OTLP as JSON: spans, their events and log records with their attributes as plain values.

For `otel`. Files are what the collector's file exporter or any OTLP/JSON client writes: one export a line, or
one document. So are the lines of `github.copilot.chat.otel.outfile`, which are the spans, log records and
metrics of JavaScript's SDK as it has them, and the spans of Python's SDK and of Phoenix. Not for: metrics,
protobuf.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from cursorbench.sessions.items import Place, Quarantined
from cursorbench.sessions.reading import list_of, milliseconds, table_of, text_of
from cursorbench.sessions.records import oldest_first, records

_SIGNALS = (
    ("resourceSpans", "scopeSpans", "spans"),
    ("resource_spans", "scope_spans", "spans"),
    ("resourceSpans", "instrumentationLibrarySpans", "spans"),  # before OTLP 0.19
    ("resourceLogs", "scopeLogs", "logRecords"),
    ("resource_logs", "scope_logs", "log_records"),
    ("resourceLogs", "instrumentationLibraryLogs", "logRecords"),
)
ENVELOPES = ("resourceSpans", "resourceLogs", "resourceMetrics", "resource_spans", "resource_logs")
SESSION = (  # attributes that name it; all but the first two are a client's own
    "gen_ai.conversation.id", "session.id", "langfuse.session.id",
    "traceloop.association.properties.session_id", "ai.telemetry.metadata.sessionId",
)  # fmt: skip
_DEEP = 32  # values nested deeper are left out


class Record(msgspec.Struct, kw_only=True):
    """A span, an event of one, or a log record. `attributes` begin with those of the resource."""

    name: str
    attributes: dict[str, Any]
    body: object = None
    at: int | None = None
    duration_ms: float | None = None
    trace: str = ""
    span: str = ""
    parent: str = ""  # of a span
    failed: bool = False
    is_span: bool = False
    events: list[Record] = []


def exports(path: Path) -> Iterator[tuple[Place, dict[str, Any]] | Quarantined]:
    """The exports of a file. Phoenix gives its spans newest first: such ones come oldest first."""
    first = islice((found for found in records(path) if isinstance(found, tuple)), 1)
    alone = any(_is_pythons(record) for _, record in first)
    return oldest_first(path, _ended_at) if alone else records(path)


def is_export(record: dict[str, Any]) -> bool:
    """Whether a file's JSON object is an export, a resource's part of one, or one record of JavaScript's SDK.

    Java's exporter to a log writes a resource's spans or log records, without an envelope, on a line.
    """
    lists = (*ENVELOPES, "hrTime", "scopeMetrics", *(middle for _, middle, _ in _SIGNALS))
    plain = _is_plain(record) or _is_pythons(record)
    return plain or any(isinstance(record.get(name), list) for name in lists)


def exported(export: dict[str, Any]) -> Iterator[Record | None]:
    """The records of one export, None for what is no record, or no list of them. Metrics are not told."""
    if _is_pythons(export):
        yield _pythons(export)
        return
    if _is_plain(export):
        yield _plain(export) if isinstance(export.get("startTime"), list) else _plain_log(export)
        return
    for outer in dict.fromkeys(outer for outer, _, _ in _SIGNALS):
        yield from (None for resource in list_of(export.get(outer)) if not isinstance(resource, dict))
    for outer, middle, inner in _SIGNALS:
        alone = [] if outer in export or middle not in export else [export]
        for resource in list_of(export.get(outer)) or alone:
            common = attributes_of(table_of(table_of(resource).get("resource")).get("attributes"))
            for scope in list_of(table_of(resource).get(middle)):
                for record in list_of(scope.get(inner)) if isinstance(scope, dict) else [None]:
                    if not isinstance(record, dict):
                        yield None
                    elif inner == "spans":
                        yield _span(record, common)
                    else:
                        yield _log(record, common)


def in_time(found: Iterable[Record | None]) -> Iterator[Record | None]:
    """The records of an export in the order in which they ended.

    It lists them by the library that told them, an agent's tools before or behind the model's calls.
    """
    ends, last = list[tuple[float, Record | None]](), 0.0
    for record in found:
        last = _ended(record, last)
        ends.append((last, record))
    yield from (record for _, record in sorted(ends, key=lambda one: one[0]))


def _ended(record: Record | None, before: float) -> float:
    """When a record was whole, as exporters order them; one without a time stays where it is."""
    if record is None or record.at is None:
        return before
    return record.at + (record.duration_ms or 0 if record.is_span else 0)


def attributes_of(entries: object) -> dict[str, Any]:
    """A list of {key, value}; a plain object, as some exporters write, is taken as it is."""
    if isinstance(entries, dict):
        return dict(entries)
    found = {}
    for entry in list_of(entries):
        key = text_of(table_of(entry).get("key"))
        if key:
            found[key] = value_of(table_of(entry).get("value"))
    return found


def value_of(value: object, depth: int = 0) -> Any:
    """An AnyValue as a plain one."""
    if not isinstance(value, dict) or depth > _DEEP:
        return value if isinstance(value, str | int | float | bool) else None
    for name in ("stringValue", "string_value", "boolValue", "bool_value", "doubleValue", "double_value"):
        if name in value:
            return value[name]
    for name in ("intValue", "int_value"):
        if name in value:
            return _integer(value[name])
    for name in ("arrayValue", "array_value"):
        if name in value:
            return [value_of(each, depth + 1) for each in list_of(table_of(value[name]).get("values"))]
    for name in ("kvlistValue", "kvlist_value"):
        if name in value:
            pairs = map(table_of, list_of(table_of(value[name]).get("values")))
            return {text_of(pair.get("key")): value_of(pair.get("value"), depth + 1) for pair in pairs}
    return None


def _integer(value: object) -> object:
    """64-bit integers are texts in OTLP/JSON."""
    if isinstance(value, str) and len(value) < 24 and value.removeprefix("-").isdecimal():
        return int(value)
    return value


def _span(span: dict[str, Any], common: dict[str, Any]) -> Record:
    start, end = _time(span, "startTimeUnixNano"), _time(span, "endTimeUnixNano")
    code = table_of(span.get("status")).get("code")
    ids = _ids(span)
    record = Record(
        name=text_of(span.get("name")),
        attributes={**common, **attributes_of(span.get("attributes"))},
        at=start,
        duration_ms=float(end - start) if start is not None and end is not None and end >= start else None,
        failed=code in (2, "STATUS_CODE_ERROR"),
        is_span=True,
        parent=text_of(span.get("parentSpanId"))
        or text_of(span.get("parent_span_id"))
        or text_of(table_of(span.get("parentSpanContext")).get("spanId")),
        **ids,
    )
    for event in filter(None, map(table_of, list_of(span.get("events")))):
        own, at = attributes_of(event.get("attributes")), _time(event, "timeUnixNano")
        record.events.append(event_of(record, text_of(event.get("name")), own, at))
    return record


def _is_plain(record: dict[str, Any]) -> bool:
    timed = any(isinstance(record.get(name), list) for name in ("startTime", "hrTime"))
    return timed and isinstance(record.get("attributes"), dict)


def _plain(span: dict[str, Any]) -> Record:
    """A span of JavaScript's SDK: its times are [seconds, nanoseconds], its attributes a table."""
    resource = table_of(span.get("resource"))
    pairs = [
        one for one in list_of(resource.get("_rawAttributes")) if isinstance(one, list) and len(one) == 2
    ]
    common = table_of(resource.get("attributes")) or {text_of(key): value for key, value in pairs}
    events = [
        {**one, "timeUnixNano": _nanoseconds(one.get("time"))}
        for one in map(table_of, list_of(span.get("events")))
    ]
    times = {f"{name}UnixNano": _nanoseconds(span.get(name)) for name in ("startTime", "endTime")}
    return _span({**span, **table_of(span.get("_spanContext")), **times, "events": events}, common)


def _is_pythons(record: dict[str, Any]) -> bool:
    """Whether it is a span of Python's SDK, or of Phoenix."""
    ids = table_of(record.get("context"))
    return {"trace_id", "span_id"} <= ids.keys() and {"name", "start_time", "attributes"} <= record.keys()


def _pythons(span: dict[str, Any]) -> Record:
    """A span as Python's SDK writes it (`to_json`), and as Phoenix gives it: its times are texts."""
    common = table_of(table_of(span.get("resource")).get("attributes"))
    events = [
        {**one, "timeUnixNano": _of_text(one.get("timestamp"))}
        for one in map(table_of, list_of(span.get("events")))
    ]
    code = text_of(table_of(span.get("status")).get("status_code")) or text_of(span.get("status_code"))
    told = {
        **table_of(span["context"]),
        "parent_span_id": span.get("parent_id"),
        "startTimeUnixNano": _of_text(span["start_time"]),
        "endTimeUnixNano": _of_text(span.get("end_time")),
        "status": {"code": 2 if code.upper() == "ERROR" else 0},
        "events": events,
    }
    return _span({**span, **told}, common)


def _ended_at(span: dict[str, Any]) -> int | None:
    """When such a span ended, ms."""
    return milliseconds(span.get("end_time"))


def _of_text(time: object) -> int | None:
    at = milliseconds(time)
    return None if at is None else at * 1_000_000


def _plain_log(log: dict[str, Any]) -> Record:
    """A log record of JavaScript's SDK; its name is an attribute, and some fields are the SDK's own."""
    ids = table_of(log.get("spanContext"))
    return _log({**ids, "timeUnixNano": _nanoseconds(log.get("hrTime")), "attributes": log["attributes"]}, {})


def _nanoseconds(time: object) -> int | None:
    if isinstance(time, list) and len(time) == 2 and all(type(part) is int for part in time):
        return int(time[0]) * 10**9 + int(time[1])
    return None


def event_of(span: Record, name: str, own: dict[str, Any], at: int | None) -> Record:
    """An event of a span: its own attributes, and what the span tells of session, agent and answer."""
    shared = {key: span.attributes[key] for key in _OF_EVENTS if key in span.attributes}
    return Record(
        name=name, attributes={**shared, **own}, at=at, duration_ms=span.duration_ms, trace=span.trace,
        span=span.span,
    )  # fmt: skip


def _log(log: dict[str, Any], common: dict[str, Any]) -> Record:
    attributes = {**common, **attributes_of(log.get("attributes"))}
    body = value_of(log.get("body"))
    names = (log.get("eventName"), log.get("event_name"), attributes.get("event.name"), body)
    at = _time(log, "timeUnixNano") or _time(log, "observedTimeUnixNano")
    return Record(
        name=next((name for name in names if isinstance(name, str) and name), ""),
        attributes=attributes,
        body=body,
        at=at if at is not None else milliseconds(attributes.get("event.timestamp")),
        **_ids(log),
    )


_OF_EVENTS = (
    *SESSION, "gen_ai.response.id", "gen_ai.response.model",
    "gen_ai.request.model", "gen_ai.agent.name", "gen_ai.agent.version", "service.name", "service.version",
)  # fmt: skip


def _ids(record: dict[str, Any]) -> dict[str, Any]:
    return {
        "trace": text_of(record.get("traceId")) or text_of(record.get("trace_id")),
        "span": text_of(record.get("spanId")) or text_of(record.get("span_id")),
    }


def _time(record: dict[str, Any], name: str) -> int | None:
    """Nanoseconds since the epoch, as a text or a number; 0 is OTLP's "not told"."""
    snake = "".join(f"_{c.lower()}" if c.isupper() else c for c in name)
    value = record.get(name, record.get(snake))
    return milliseconds(value[:24] if isinstance(value, str) else value)
