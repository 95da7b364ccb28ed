"""OTLP over HTTP: both encodings, compressed or not, answered in kind; whatever comes, no 500."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from stages.gateway import otlp_http
from stages.gateway.errors import ApiError
from tests.stages.gateway.rig import Rig
from tests.stages.gateway.spans import chat, traces
from tests.stages.gateway.test_received import kept

PROTOBUF = {"content-type": "application/x-protobuf"}
TRACE, SPAN = "5b8efff798038103d269b633813fc60c", "eee19b7ec3c1b174"


def as_protobuf(export: dict[str, Any]) -> bytes:
    message = ParseDict(export, ExportTraceServiceRequest())
    for resource in message.resource_spans:
        for scope in resource.scope_spans:
            for one in scope.spans:
                one.trace_id, one.span_id = bytes.fromhex(TRACE), bytes.fromhex(SPAN)
    return bytes(message.SerializeToString())


@pytest.mark.parametrize("encoding", ["", "gzip", "deflate"])
async def test_protobuf_is_kept_as_otlp_json_has_it(rig: Rig, encoding: str) -> None:
    body = as_protobuf(traces(chat("fix", "done")))
    packed = {"gzip": gzip.compress, "deflate": zlib.compress, "": bytes}[encoding](body)
    headers = PROTOBUF | ({"content-encoding": encoding} if encoding else {})
    answer = await rig.http.post("/v1/traces", content=packed, headers=headers)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/x-protobuf")
    assert not ExportTraceServiceResponse.FromString(answer.content).HasField("partial_success")
    ((_, (found,)),) = kept(rig).items()
    one = found["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    assert (one["traceId"], one["spanId"], one["startTimeUnixNano"]) == (TRACE, SPAN, "1795192653000000000")


async def test_partial_success_in_protobuf(rig: Rig) -> None:
    bad = {"name": "tool", "attributes": []}
    bad["attributes"] = [
        {"key": "gen_ai.operation.name", "value": {"stringValue": "execute_tool"}}
    ]  # without the tool's name
    answer = await rig.http.post("/v1/traces", content=as_protobuf(traces(bad)), headers=PROTOBUF)
    told = ExportTraceServiceResponse.FromString(answer.content).partial_success
    assert (told.rejected_spans, told.error_message) == (1, "1 a tool's span without its name")
    assert otlp_http.answer(otlp_http.LOGS, otlp_http.PROTOBUF, 2, "why")
    logs = ExportLogsServiceResponse.FromString(
        otlp_http.answer(otlp_http.LOGS, otlp_http.PROTOBUF, 2, "why")
    )
    assert (logs.partial_success.rejected_log_records, logs.partial_success.error_message) == (2, "why")


async def test_metrics_are_counted_and_not_kept(rig: Rig) -> None:
    body = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [{"name": "claude_code.token.usage"}]}]}]}
    answer = await rig.http.post("/v1/metrics", json=body)
    assert (answer.status_code, answer.json()) == (200, {})
    assert kept(rig) == {}
    assert b'rtrl_received_total{kind="otel",status="passed_over"} 1.0' in rig.gateway.metrics.text()


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"content-type": "text/plain"}, b"{}", 415),
        ({"content-type": "application/json", "content-encoding": "br"}, b"{}", 415),
        ({"content-type": "application/json", "content-encoding": "gzip"}, b"{}", 400),
        (
            {"content-type": "application/json", "content-encoding": "gzip"},
            gzip.compress(b"{}" * 99)[:-9],
            400,
        ),
        ({"content-type": "application/json"}, b"[]", 400),
        ({"content-type": "application/json"}, b'{"resourceSpans": 3}', 400),
        ({"content-type": "application/x-protobuf"}, b"\xff\xff", 400),
        ({"content-type": "application/json", "authorization": "Bearer no"}, b"{}", 401),
        (
            {"content-type": "application/json", "content-encoding": "gzip"},
            gzip.compress(bytes(1 << 25)),
            413,
        ),
    ],
)
async def test_errors_are_a_status_in_the_encoding_of_the_request(
    rig: Rig, headers: dict[str, str], body: bytes, status: int
) -> None:
    answer = await rig.http.post("/v1/traces", content=body, headers=headers)
    assert answer.status_code == status
    if headers["content-type"] == "application/x-protobuf":
        assert answer.headers["content-type"] == "application/x-protobuf"
        assert answer.content == b"\x08\x03\x12\x1fthe body is no export of traces"
    else:
        assert set(answer.json()) == {"code", "message"}


def test_messages_longer_than_a_byte_tells() -> None:
    body = otlp_http.status(otlp_http.PROTOBUF, ApiError(503, "t", "c", "x" * 300))
    assert body == b"\x08\x0e\x12\xac\x02" + b"x" * 300


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "resource",
                    "scopeSpans",
                    "spans",
                    "attributes",
                    "key",
                    "value",
                    "stringValue",
                    "events",
                    "name",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(_JSON)
@settings(max_examples=100, deadline=None)
def test_any_json_is_records_or_an_error_of_the_sender(value: Any) -> None:
    body = json.dumps({"resourceSpans": value}).encode()
    if not isinstance(value, list):
        with pytest.raises(ApiError):
            otlp_http.export(otlp_http.TRACES, otlp_http.JSON, body)
        return
    found = otlp_http.export(otlp_http.TRACES, otlp_http.JSON, body)
    for one in otlp_http.records(otlp_http.TRACES, otlp_http.JSON, found):
        assert all(line is None or json.loads(line) for line in one.lines)


async def test_what_is_nested_too_deeply_is_rejected(rig: Rig) -> None:
    deep = b'{"a":' * 300 + b"1" + b"}" * 300
    body = b'{"resourceSpans":[{"scopeSpans":[{"spans":[' + deep + b"]}]}]}"
    answer = await rig.http.post("/v1/traces", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 200
    assert answer.json()["partialSuccess"]["rejectedSpans"] == "1"


def test_the_module_is_read_without_protobuf(tmp_path: Path) -> None:
    import subprocess
    import sys

    code = "import sys, stages.gateway.app; sys.exit('google.protobuf' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
