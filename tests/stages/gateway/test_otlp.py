"""OTLP over HTTP: both encodings, compressed or not, answered in kind; whatever comes, no 500."""

from __future__ import annotations

import asyncio
import gzip
import json
import mmap
import time
import tracemalloc
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

from stages.gateway import otlp_http, telemetry
from stages.gateway.errors import ApiError
from stages.inbox.writer import Received
from tests.stages.gateway.rig import Rig
from tests.stages.gateway.spans import attribute, chat, claude, logs, traces
from tests.stages.gateway.test_received import kept

LIMIT = 64 << 20
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


@pytest.mark.parametrize("number", ["--5", "-", "", "5-5", "9" * 24])
async def test_what_is_written_as_a_number_and_is_none_is_a_text(rig: Rig, number: str) -> None:
    """Of a resource it was a 500; of a span it ended each `collect --received` from then on."""
    export = traces(chat("fix", "done"), process__pid=1)
    one = export["resourceSpans"][0]
    for place in (one["resource"], one["scopeSpans"][0]["spans"][0]):
        place["attributes"].append({"key": "n", "value": {"intValue": number}})
    answer = await rig.http.post("/v1/traces", json=export)
    assert (answer.status_code, answer.json(), len(kept(rig))) == (200, {}, 1)


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
            gzip.compress(b"{}" * 99, mtime=0)[:-9],
            400,
        ),
        ({"content-type": "application/json"}, b"[]", 400),
        ({"content-type": "application/json"}, b'{"resourceSpans": 3}', 400),
        ({"content-type": "application/x-protobuf"}, b"\xff\xff", 400),
        ({"content-type": "application/json", "authorization": "Bearer no"}, b"{}", 401),
        (
            {"content-type": "application/json", "content-encoding": "gzip"},
            gzip.compress(bytes(1 << 25), mtime=0),
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


@pytest.mark.parametrize("told", [{"rtrl.user": ""}, {"rtrl.user": "a" * 201}, {"rtrl.no_train": "perhaps"}])
async def test_what_one_resource_says_wrongly_costs_only_its_own_records(
    rig: Rig, told: dict[str, str]
) -> None:
    bad = traces(chat("x", "y"), chat("x", "z"), rtrl__user="eve")["resourceSpans"][0]
    bad["resource"]["attributes"] = [attribute(key, value) for key, value in told.items()]
    if told == {"rtrl.user": ""}:
        bad["resource"]["attributes"] = [
            {"key": "rtrl.user", "value": {"arrayValue": {"values": [{"stringValue": "a"}]}}}
        ]
    good = traces(chat("fix", "done"), rtrl__user="ada")["resourceSpans"]
    answer = await rig.http.post("/v1/traces", json={"resourceSpans": [bad, *good]})
    assert answer.status_code == 200, answer.text
    partial = answer.json()["partialSuccess"]
    assert partial["rejectedSpans"] == "2"
    (name,) = told
    assert partial["errorMessage"].startswith(f"2 {name} ")
    assert [user for _, user in kept(rig)] == ["ada"]
    assert b'rtrl_received_total{kind="otel",status="rejected"} 2.0' in rig.gateway.metrics.text()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="nothing tells how much memory is resident")
def test_a_short_record_takes_little_memory() -> None:
    """280,000 in a body of 0.8 MB took 1.1 GB, counted as 56 MB, and the process never gave it back."""
    body = b'{"resourceSpans":[{"scopeSpans":[{"spans":[' + b",".join([b"{}"] * 100_000) + b"]}]}]}"
    before = resident()
    found = telemetry._resources(otlp_http.TRACES, otlp_http.JSON, body, b"", LIMIT)
    assert (resident() - before) / 100_000 < 1000
    assert sum(len(one.lines) for one in found) == 100_000


def resident() -> int:
    """Bytes of memory that this process takes."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * mmap.PAGESIZE


async def test_exports_are_unpacked_one_at_a_time(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may take sixty times its length: eight of 3 kB, unpacked to 3 MB, took 1.5 GB together."""
    at_work, most = 0, 0
    resources = telemetry._resources

    def counted(*given: Any) -> list[otlp_http.Records]:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        time.sleep(0.02)
        at_work -= 1
        return resources(*given)

    monkeypatch.setattr(telemetry, "_resources", counted)
    exports = [rig.http.post("/v1/traces", json=traces(chat("x", str(n)))) for n in range(5)]
    assert [answer.json() for answer in await asyncio.gather(*exports)] == [{}] * 5
    assert most == 1


async def test_a_persons_resources_are_written_together(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waited for the disk: 8000 took 11 s, in which exporters give up and send again."""
    written: list[tuple[str, int]] = []
    append = rig.inbox.append

    def appended(batches: list[Received]) -> None:
        written.extend((one.user, len(one.lines)) for one in batches)
        append(batches)

    monkeypatch.setattr(rig.inbox, "append", appended)
    people = [("ada", False), ("ben", False), ("ada", True), ("ada", False)]
    spans = [
        traces(chat("x", str(n)), rtrl__user=p, rtrl__no_train=no) for n, (p, no) in enumerate(people * 9)
    ]
    answer = await rig.http.post(
        "/v1/traces", json={"resourceSpans": [one["resourceSpans"][0] for one in spans]}
    )
    assert (answer.json(), written) == ({}, [("ada", 18), ("ben", 9)])
    assert {user: len(lines) for (_, user), lines in kept(rig).items()} == {"ada": 18, "ben": 9}


async def test_a_refused_key_is_told_in_the_encoding_of_the_request(rig: Rig) -> None:
    answer = await rig.http.post("/v1/traces", content=b"", headers=PROTOBUF | {"authorization": "Bearer no"})
    assert (answer.status_code, answer.headers["content-type"]) == (401, "application/x-protobuf")
    assert answer.content[:2] == b"\x08\x10"
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [("GET", "/v1/logs", 405, 12), ("POST", "/v1/traces/", 404, 5), ("POST", "/otlp", 404, 5)],
)
async def test_errors_of_routing_are_a_status(
    rig: Rig, method: str, path: str, status: int, code: int
) -> None:
    answer = await rig.http.request(method, path, headers=PROTOBUF)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/x-protobuf")
    assert answer.content[:2] == bytes((8, code))
    plain = await rig.http.request(method, path)
    assert plain.status_code == status
    assert plain.headers.get("allow") == ("POST" if status == 405 else None)
    if path == "/otlp":
        assert set(plain.json()) == {"error", "request_id"}
    else:
        assert plain.json()["code"] == code


async def test_an_export_on_another_signals_route_is_refused(rig: Rig) -> None:
    answer = await rig.http.post("/v1/traces", json=logs(claude("user_prompt", 1, prompt="x")))
    assert answer.status_code == 400
    assert answer.json()["message"] == "the body has no resourceSpans: resourceLogs go to /v1/logs"
    answer = await rig.http.post("/v1/logs", json={"records": []})
    assert (answer.status_code, answer.json()["message"]) == (400, "the body has no resourceLogs")
    empty = await rig.http.post("/v1/traces", json={})
    assert (empty.status_code, empty.json()) == (200, {})


@given(st.lists(st.binary(max_size=40_000), min_size=1, max_size=4), st.integers(0, 60_000))
@settings(max_examples=60, deadline=None)
def test_gzip_of_any_number_of_members_is_unpacked_within_the_limit(parts: list[bytes], limit: int) -> None:
    packed, whole = b"".join(map(gzip.compress, parts)), b"".join(parts)
    if len(whole) <= limit:
        assert otlp_http.unpacked(packed, b"gzip", limit) == whole
    else:
        with pytest.raises(ApiError) as told:
            otlp_http.unpacked(packed, b"gzip", limit)
        assert told.value.status == 413
    with pytest.raises(ApiError):
        otlp_http.unpacked(packed[:-1], b"gzip", len(whole))


def test_members_that_hold_nothing_are_not_counted_for_ever() -> None:
    with pytest.raises(ApiError, match="invalid_encoding"):
        otlp_http.unpacked(gzip.compress(b"") * 1001, b"gzip", 100)
    assert otlp_http.unpacked(gzip.compress(b"") * 1000, b"gzip", 100) == b""


async def test_other_telemetry_is_unpacked_too(rig: Rig) -> None:
    event = {"name": "chatFeedback", "schema": "0.2.0", "level": "all", "profileId": "local"}
    event["data"] = {"sessionId": "s", "prompt": "p", "completion": "c", "feedback": True}  # type: ignore[assignment]
    call = {"metric_name": "stars", "episode_id": "e", "value": 4}
    for path, body in (("/v1/continue/data", event), ("/feedback", call)):
        packed = gzip.compress(json.dumps(body).encode())
        answer = await rig.http.post(path, content=packed, headers={"content-encoding": "gzip"})
        assert answer.status_code == 200, answer.text
        answer = await rig.http.post(path, content=packed, headers={"content-encoding": "br"})
        assert answer.status_code == 415


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
            otlp_http.export(otlp_http.TRACES, otlp_http.JSON, body, LIMIT)
        return
    found = otlp_http.export(otlp_http.TRACES, otlp_http.JSON, body, LIMIT)
    for one in otlp_http.records(otlp_http.TRACES, otlp_http.JSON, found, LIMIT):
        assert all(line is None or json.loads(line) for line in one.lines)


@pytest.mark.parametrize("media", [otlp_http.JSON, otlp_http.PROTOBUF])
@pytest.mark.parametrize(
    ("resource", "scope", "records"),
    [("x" * 20_000, "", 4000), ("", "x" * 20_000, 4000), ("", "", 25_000)],
)
def test_a_small_body_does_not_become_a_large_one(
    media: str, resource: str, scope: str, records: int
) -> None:
    attributes = [{"key": "x", "value": {"stringValue": resource}}]
    spans = {"scope": {"name": scope}, "spans": [{}] * records}
    exported = {"resourceSpans": [{"resource": {"attributes": attributes}, "scopeSpans": [spans]}]}
    body = json.dumps(exported).encode() if media == otlp_http.JSON else as_protobuf(exported)
    tracemalloc.start()
    try:
        with pytest.raises(ApiError) as caught:
            telemetry._resources(otlp_http.TRACES, media, gzip.compress(body), b"gzip", 1 << 20)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (caught.value.status, caught.value.code) == (413, "body_too_large")
    assert peak < 40 << 20


async def test_who_sends_too_many_records_is_told(rig: Rig) -> None:
    exported = traces(*[{"name": "x"}] * 1000)
    exported["resourceSpans"][0]["schemaUrl"] = "x" * 100_000
    body = gzip.compress(json.dumps(exported).encode())
    headers = {"content-type": otlp_http.JSON, "content-encoding": "gzip"}
    answer = await rig.http.post("/v1/traces", content=body, headers=headers)
    assert answer.status_code == 413
    assert "send fewer at a time" in answer.json()["message"]


def test_records_that_fit_are_all_told() -> None:
    resource = {"resource": {"attributes": []}, "scopeSpans": [{"spans": [{"name": "x"}] * 10}]}
    exported = {"resourceSpans": [resource]}
    around = len(b'{"resource":{"attributes":[]}}') + len(b"{}")
    fits = 10 * (200 + around)  # and nothing is left for another
    (found,) = otlp_http.records(otlp_http.TRACES, otlp_http.JSON, exported, fits)
    assert len(found.lines) == 10
    with pytest.raises(ApiError) as caught:
        otlp_http.records(otlp_http.TRACES, otlp_http.JSON, exported, fits - 1)
    assert caught.value.status == 413


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


async def test_what_exports_become_is_bounded_for_all_of_them_together(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An export repeats its resource in every line: a thousand times its body, of each that comes at once."""
    exported = traces(*[{"name": "x"}] * 100)
    exported["resourceSpans"][0]["schemaUrl"] = "x" * 10_000
    lines = 100 * 10_000
    body = gzip.compress(json.dumps(exported).encode())
    headers = {"content-type": otlp_http.JSON, "content-encoding": "gzip"}
    monkeypatch.setattr(rig.gateway._bodies, "most", 2 * lines + lines // 2)
    held, entered, go = rig.gateway._telemetry._intake.take, asyncio.Semaphore(0), asyncio.Event()

    async def waits(*args: Any) -> Any:
        entered.release()
        await go.wait()
        return await held(*args)

    monkeypatch.setattr(rig.gateway._telemetry._intake, "take", waits)
    first = [asyncio.create_task(rig.http.post("/v1/traces", content=body, headers=headers)) for _ in "12"]
    for _ in first:
        await entered.acquire()
    third = await rig.http.post("/v1/traces", content=body, headers=headers)
    assert (third.status_code, third.headers["retry-after"]) == (429, "2")
    go.set()
    assert [(await one).status_code for one in first] == [200, 200]
    assert rig.gateway._bodies.held == 0
    monkeypatch.setattr(rig.gateway._bodies, "most", lines // 2)
    alone = await rig.http.post("/v1/traces", content=body, headers=headers)
    assert alone.status_code == 200, "who comes alone is not turned away"
