"""OTLP over HTTP: bodies to lines for the `otel` adapter, answers and errors as the specification has them.

https://opentelemetry.io/docs/specs/otlp/#otlphttp: protobuf or JSON, gzip, partial success, errors as
`google.rpc.Status`. Pure. Not for: what the records mean (`cursorbench/sessions/otel.py`).
"""

from __future__ import annotations

import base64
import zlib
from typing import Any, NamedTuple

import orjson

from cursorbench.sessions.otlp import attributes_of
from cursorbench.sessions.reading import list_of, table_of
from stages.gateway.errors import ApiError, invalid
from stages.gateway.http import parse_json

PROTOBUF, JSON = "application/x-protobuf", "application/json"
_GRPC = {
    400: 3,
    401: 16,
    404: 5,
    405: 12,
    413: 3,
    415: 3,
    429: 8,
    431: 3,
    503: 14,
}  # google.rpc.Code of an HTTP status
_MEMBERS, _PART = 1000, 1 << 14  # of a gzip body: how many, and bytes read at a time
_VALUES = 2_500_000  # of a body in JSON: exporters send many at a time
_MESSAGES = 700_000  # of a body in protobuf: an attribute is two of them, and seven values of JSON
_EACH = 200  # bytes that a record takes in memory besides what it says
_IDS = ("traceId", "spanId", "parentSpanId")


class Signal(NamedTuple):
    """One of OTLP's. `fields` are the levels of its JSON, `rejected` the name of the count in the answer."""

    name: str
    fields: tuple[str, str, str]
    rejected: str


TRACES = Signal("traces", ("resourceSpans", "scopeSpans", "spans"), "rejectedSpans")
LOGS = Signal("logs", ("resourceLogs", "scopeLogs", "logRecords"), "rejectedLogRecords")
METRICS = Signal("metrics", ("resourceMetrics", "scopeMetrics", "metrics"), "rejectedDataPoints")


_SIGNALS = (TRACES, LOGS, METRICS)


class Records(NamedTuple):
    """Records of one resource, one line each; None for what is none. `said` are its `rtrl.` attributes."""

    said: dict[str, Any]
    lines: list[bytes | None]


def asked(path: str, content_type: bytes) -> str:
    """The encoding that errors are told in to a client of OTLP, "" for any other client."""
    name = _media(content_type)
    if name == PROTOBUF:
        return name
    ours = any(f"{path}/".startswith(f"/v1/{signal.name}/") for signal in _SIGNALS)
    return JSON if ours else ""


def media_type(content_type: bytes) -> str:
    """Which of the two encodings it is. Raises ApiError 415."""
    name = _media(content_type)
    if name not in (PROTOBUF, JSON):
        raise ApiError(
            415, "invalid_request_error", "unsupported_media_type", f"send {PROTOBUF} or {JSON}"
        )  # fmt: skip
    return name


def unpacked(body: bytes, encoding: bytes, limit: int) -> bytes:
    """The body without its content encoding. Raises ApiError 400, 413 or 415."""
    name = encoding.decode("latin-1").strip().lower()
    if name in ("", "identity"):
        return body
    if name not in ("gzip", "deflate"):
        raise ApiError(
            415, "invalid_request_error", "unsupported_encoding", "send gzip, deflate or no content encoding"
        )
    data, rest, members = bytearray(), memoryview(body), 0
    try:
        while rest or not members:
            members += 1
            rest, whole = _member(
                rest, zlib.MAX_WBITS | 32 if name == "gzip" else zlib.MAX_WBITS, data, limit
            )
            if len(data) > limit:
                raise ApiError(
                    413, "invalid_request_error", "body_too_large", f"bodies are limited to {limit} bytes"
                )
            if not whole:
                raise invalid(f"the body is not all of a {name} stream", code="invalid_encoding")
            if members == _MEMBERS and rest:
                raise invalid(f"the body has more than {_MEMBERS} members", code="invalid_encoding")
    except zlib.error:
        raise invalid(f"the body is not {name}", code="invalid_encoding") from None
    return bytes(data)


def _member(packed: memoryview, wbits: int, data: bytearray, limit: int) -> tuple[memoryview, bool]:
    """One member (RFC 1952, 2.2) onto `data`, at most to limit + 1 bytes: (what follows, did it end)."""
    unpacker, at = zlib.decompressobj(wbits), 0
    while not unpacker.eof and at < len(packed) and len(data) <= limit:
        part = packed[at : at + _PART]
        data += unpacker.decompress(part, limit + 1 - len(data))
        at += len(part) - len(unpacker.unused_data) - len(unpacker.unconsumed_tail)
    return packed[at:], unpacker.eof


def export(signal: Signal, media: str, body: bytes, limit: int) -> dict[str, Any]:
    """The export request as OTLP/JSON has it. Raises ApiError 400; 413 when its records pass `limit`, or its
    objects, lists and strings _VALUES, in protobuf its messages _MESSAGES."""
    if media == JSON:
        value = parse_json(body, _VALUES)
        if not isinstance(value, dict) or not isinstance(value.get(signal.fields[0], []), list):
            raise invalid(f"the body is no export of {signal.name}", code="invalid_json")
        if value and signal.fields[0] not in value:
            raise _elsewhere(signal, value)
        return value
    from google.protobuf.json_format import MessageToDict
    from google.protobuf.message import DecodeError

    try:
        message = _messages(signal)[0].FromString(body)
        _require_few(message)
        if _number(signal, message) * _EACH > limit:
            raise _too_many(limit)
        found: dict[str, Any] = MessageToDict(message, use_integers_for_enums=True)
    except (DecodeError, ValueError, RecursionError):
        raise invalid(f"the body is no export of {signal.name}", code="invalid_protobuf") from None
    return found


def _elsewhere(signal: Signal, value: dict[str, Any]) -> ApiError:
    """What tells a sender that this is nothing for this route."""
    other = next((one for one in _SIGNALS if one.fields[0] in value), None)
    hint = f": {other.fields[0]} go to /v1/{other.name}" if other else ""
    return invalid(f"the body has no {signal.fields[0]}{hint}", code="invalid_json")


def _media(content_type: bytes) -> str:
    return content_type.decode("latin-1").split(";")[0].strip().lower()


def records(signal: Signal, media: str, exported: dict[str, Any], limit: int) -> list[Records]:
    """Each resource's records, each as an export of its own on one line.

    Every line repeats its resource and scope: raises ApiError 413 when that takes more than `limit` bytes.
    """
    outer, middle, inner = signal.fields
    found, left = [], limit
    for resource in map(table_of, list_of(exported.get(outer))):
        lines: list[bytes | None] = []
        around = {name: value for name, value in resource.items() if name != middle}
        size = _EACH + len(_line(around) or b"")
        for scope in map(table_of, list_of(resource.get(middle))):
            about = {name: value for name, value in scope.items() if name != inner}
            left -= len(list_of(scope.get(inner))) * (size + len(_line(about) or b""))
            if left < 0:
                raise _too_many(limit)
            for record in list_of(scope.get(inner)):
                if media == PROTOBUF:
                    _hexadecimal(record)
                one = {outer: [{**around, middle: [{**about, inner: [record]}]}]}
                lines.append(_line(one) if isinstance(record, dict) else None)
        left -= size
        if not lines:
            continue
        said = attributes_of(table_of(resource.get("resource")).get("attributes"))
        found.append(Records({k: v for k, v in said.items() if k.startswith("rtrl.")}, lines))
    return found


def answer(signal: Signal, media: str, rejected: int, message: str) -> bytes:
    """The body of a 200: empty, or how many records were not taken, and why."""
    if media == JSON:
        partial = {signal.rejected: str(rejected), "errorMessage": message}
        return orjson.dumps({"partialSuccess": partial} if rejected else {})
    response = _messages(signal)[1]()
    if rejected:
        setattr(response.partial_success, _snake(signal.rejected), rejected)
        response.partial_success.error_message = message
    return bytes(response.SerializeToString())


def status(media: str, error: ApiError) -> bytes:
    """The body of an error: a `google.rpc.Status` (1: int32 code, 2: string message)."""
    code = _GRPC.get(error.status, 13)
    if media == JSON:
        return orjson.dumps({"code": code, "message": error.message})
    text = error.message.encode()
    return bytes((0x08, code, 0x12)) + _varint(len(text)) + text


def _number(signal: Signal, message: Any) -> int:
    """How many records an export in protobuf has."""
    outer, middle, inner = map(_snake, signal.fields)
    scopes = (scope for resource in getattr(message, outer) for scope in getattr(resource, middle))
    return sum(len(getattr(scope, inner)) for scope in scopes)


def _require_few(message: Any) -> None:
    """Raises ApiError 413: two bytes are a message, of which Python makes an object of hundreds."""
    left, around = _MESSAGES, [message]
    while around:
        for field, value in around.pop().ListFields():
            if field.message_type is not None:
                within = (value,) if hasattr(value, "DESCRIPTOR") else value
                left -= len(within)
                if left < 0:
                    what = f"exports are limited to {_MESSAGES} messages, values of attributes among them"
                    raise ApiError(413, "invalid_request_error", "body_too_large", what)
                around.extend(within)


def _messages(signal: Signal) -> tuple[Any, Any]:
    """Request and response of a signal."""
    if signal is TRACES:
        from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as of_traces

        return of_traces.ExportTraceServiceRequest, of_traces.ExportTraceServiceResponse
    if signal is LOGS:
        from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as of_logs

        return of_logs.ExportLogsServiceRequest, of_logs.ExportLogsServiceResponse
    from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as of_metrics

    return of_metrics.ExportMetricsServiceRequest, of_metrics.ExportMetricsServiceResponse


def _line(one: dict[str, Any]) -> bytes | None:
    """As one line; None when it is nested deeper than JSON is written here.

    A copy: orjson writes into a kilobyte at least and cuts it, and malloc gives nobody else what was cut off.
    """
    try:
        return bytes(memoryview(orjson.dumps(one)))
    except (orjson.JSONEncodeError, RecursionError):
        return None


def _too_many(limit: int) -> ApiError:
    message = f"the records, each with its resource and scope, take over {limit} bytes: send fewer at a time"
    return ApiError(413, "invalid_request_error", "body_too_large", message)


def _snake(name: str) -> str:
    """A field's name in protobuf."""
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name)


def _hexadecimal(record: dict[str, Any]) -> None:
    """OTLP/JSON writes ids in hexadecimal digits, where protobuf's own JSON has base64."""
    for one in (record, *list_of(record.get("links"))):
        for name in _IDS:
            if name in one:
                one[name] = base64.b64decode(one[name]).hex()


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
