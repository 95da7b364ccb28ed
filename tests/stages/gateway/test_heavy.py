"""Bodies made to take long: nobody else waits for them."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursorbench.harness.call_parser import ToolSet
from cursorbench.json_values import MAX_VALUES, values
from stages.gateway import event_data, events, offered_tools
from stages.gateway.asking import asked
from stages.gateway.errors import ApiError
from stages.gateway.http import is_deep, parse_json
from stages.gateway.openings import gist
from stages.gateway.otlp_http import JSON, PROTOBUF, TRACES, _varint, export
from stages.gateway.request_fields import wrong_call
from tests.stages.gateway.rig import Rig

TEXT = st.text(st.sampled_from('a"\\{}[],:\n'), max_size=6)
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
)


def counted(value: Any) -> int:
    """Objects, lists and strings, one by one."""
    if isinstance(value, dict):
        return 1 + sum(1 + counted(one) for one in value.values())
    if isinstance(value, list):
        return 1 + sum(map(counted, value))
    return int(isinstance(value, str))


@given(ANY)
def test_values_are_counted_before_anything_is_made_of_them(value: Any) -> None:
    for text in (json.dumps(value), json.dumps(value, separators=(",", ":"), ensure_ascii=False)):
        n = counted(value)
        for most in (n // 2, n - 1, n, n + 1, 2 * n):
            assert (values(text.encode(), most) > most) == (n > most), text


@pytest.mark.parametrize(
    ("one", "most"),
    [("[]", MAX_VALUES - 1), ('"a"', MAX_VALUES - 1), ('{"role":"user"}', MAX_VALUES // 3), ("1", 1 << 20)],
)
def test_a_body_of_very_many_values_is_refused(one: str, most: int) -> None:
    """A million messages were read, compared and hashed for seconds; ids of tokens may be as many."""
    text = "[" + ",".join([one] * most) + "]"
    assert len(parse_json(text.encode())) == most
    if one != "1":
        with pytest.raises(ApiError) as refused:
            parse_json(f'[{text},"a","b"]'.encode())
        assert (refused.value.status, refused.value.code) == (413, "body_too_large")
        assert "200000 objects, lists and strings" in refused.value.message


def test_code_in_strings_is_not_counted() -> None:
    said = json.dumps({"messages": [{"role": "user", "content": 'x = {"a": [[], {}]}\\' * 60_000}]}).encode()
    assert said.count(b"[") + said.count(b"{") > MAX_VALUES / 2 < said.count(b'"')
    assert parse_json(said)["messages"][0]["role"] == "user"


def test_telemetry_may_have_more_of_them() -> None:
    attributes = [{"key": "a", "value": {"stringValue": "b"}}] * 100_000
    spans = {"resourceSpans": [{"scopeSpans": [{"spans": [{"attributes": attributes}]}]}]}
    assert export(TRACES, JSON, json.dumps(spans).encode(), 1 << 30) == spans
    with pytest.raises(ApiError) as refused:
        export(TRACES, JSON, b'{"resourceSpans":[' + b",".join([b"[]"] * 2_500_000) + b"]}", 1 << 30)
    assert "2500000 objects" in refused.value.message


@pytest.mark.parametrize(
    "tags",
    [
        pytest.param((1,), id="resources"),
        pytest.param((1, 2), id="scopes"),
        pytest.param((1, 2, 2, 9), id="attributes"),
        pytest.param((1, 2, 2, 11), id="events"),
        pytest.param((1, 2, 2, 9, 2, 5, 1), id="values of a list"),
    ],
)
def test_an_export_in_protobuf_of_very_many_messages_is_refused(tags: tuple[int, ...]) -> None:
    """Each is two bytes, and twenty as `gzip` has a thousand: 16 kB kept a core busy for half a minute."""

    def export_of(empty: int) -> bytes:
        body = bytes((tags[-1] << 3 | 2, 0)) * empty
        for tag in reversed(tags[:-1]):
            body = bytes((tag << 3 | 2,)) + _varint(len(body)) + body
        return body

    around = len(tags) - 1
    assert export(TRACES, PROTOBUF, export_of(1000 - around), 1 << 30)
    began = time.process_time()
    with pytest.raises(ApiError) as refused:
        export(TRACES, PROTOBUF, export_of(2_000_000), 1 << 30)
    assert time.process_time() - began < 5
    assert (refused.value.status, refused.value.code) == (413, "body_too_large")
    assert "limited to 700000 messages" in refused.value.message


def test_attributes_in_protobuf_may_be_as_many_as_in_json() -> None:
    """350,000 of them: two messages each, beside the span and what is around it."""
    attributes = bytes((9 << 3 | 2, 5, 1 << 3 | 2, 1, ord("a"), 2 << 3 | 2, 0)) * 349_000
    for tag in (2, 2, 1):
        attributes = bytes((tag << 3 | 2,)) + _varint(len(attributes)) + attributes
    spans = export(TRACES, PROTOBUF, attributes, 1 << 30)["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert len(spans[0]["attributes"]) == 349_000


@pytest.mark.parametrize(("levels", "deep"), [(200, False), (201, True)])
def test_levels_are_counted_by_hand(levels: int, deep: bool) -> None:
    assert is_deep(json.loads("[" * levels + "]" * levels)) is deep
    assert is_deep(json.loads('{"a":' * levels + "1" + "}" * levels)) is deep


async def test_a_request_has_so_many_fields(rig: Rig) -> None:
    answer = await rig.chat("x", **{f"f{n}": 1 for n in range(1000)})
    assert (answer.status_code, answer.json()["error"]["message"]) == (
        400,
        "a request has at most 1000 fields",
    )


@pytest.mark.parametrize(("field", "values"), [("content", [1]), ("content", [[]]), ("tool_calls", ["x"])])
async def test_what_is_no_part_or_call_is_refused(rig: Rig, field: str, values: list[Any]) -> None:
    """Millions of numbers were looked at several times, and written out to choose an engine."""
    answer = await rig.chat("x", messages=[{"role": "assistant", "content": "x", field: values}])
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, f"messages[0].{field}")


def test_each_message_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    monkeypatch.setattr("stages.gateway.asking.automatic_of", lambda text: read.append(text) or "")
    assert asked([{"role": "user", "content": str(n)} for n in range(3)]).requests == 3
    assert read == ["0", "1", "2"]


def test_arguments_of_very_many_values_are_compared_as_they_stand() -> None:
    def calls(*arguments: str) -> list[Any]:
        functions = [{"function": {"name": "f", "arguments": one}} for one in arguments]
        return [one for _, one in gist({"tool_calls": functions})[1]]

    many = '{"a": [' + "1.0," * 150_000 + "1.0]}"
    assert calls('{"a": 1.0}', '{"a": "b"}') == [{"a": 1}, {"a": "b"}]
    assert calls(many, many, '{"a": 1}') == [json.loads(many), many, '{"a": 1}']


def levels(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(levels, inner), default=0)


@given(ANY, st.booleans())
def test_levels_of_a_calls_arguments_are_counted_outside_of_strings(value: Any, ascii: bool) -> None:
    deep = 498
    arguments = "[" * deep + json.dumps(value, ensure_ascii=ascii) + "]" * deep
    found = wrong_call({"arguments": arguments})
    assert bool(found) == (deep + levels(value) > 500)


@pytest.mark.parametrize(
    "arguments",
    [json.dumps({"code": "x" * 15_000_000 + "{" * 501}), "[]" * 7_500_000],
    ids=["code", "brackets"],
)
def test_a_calls_long_arguments_hold_up_nobody(arguments: str) -> None:
    """Their characters were looked at one by one, for 7 s, and nobody was answered meanwhile."""
    began = time.thread_time()
    assert wrong_call({"arguments": arguments}) == ""
    assert time.thread_time() - began < 2


async def answered_meanwhile(rig: Rig, heavy: Any, held: threading.Event, begun: threading.Event) -> None:
    """Somebody else is answered while `heavy` is at work, which then is, too."""
    task = asyncio.create_task(heavy)
    try:
        assert await asyncio.to_thread(begun.wait, 10)
        assert (await rig.chat("hello")).status_code == 200
        assert not task.done()
    finally:
        held.set()
    answer: httpx.Response = await task
    assert answer.status_code == 200


async def test_nobody_waits_for_anothers_new_tools(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    held, begun = threading.Event(), threading.Event()

    def compiled(tools: Any) -> ToolSet:
        begun.set()
        assert held.wait(10)
        return ToolSet(tools)

    monkeypatch.setattr(offered_tools, "ToolSet", compiled)
    tools = [{"type": "function", "function": {"name": f"new_{rig.key}"}}]
    await answered_meanwhile(rig, rig.chat("x", tools=tools), held, begun)
    held.clear()
    assert (await rig.chat("x", tools=tools)).status_code == 200, "they are compiled once"


async def test_nobody_waits_for_anothers_long_diff(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    held, begun = threading.Event(), threading.Event()

    def problem(kind: str, data: dict[str, Any]) -> str:
        begun.set()
        assert held.wait(10)
        return event_data.problem(kind, data)

    id = (await rig.chat("hello")).json()["id"]
    monkeypatch.setattr(events, "problem", problem)
    event = {"id": "e", "generation_id": id, "type": "edit_applied", "data": {"path": "a", "diff": "+\n"}}
    await answered_meanwhile(rig, rig.http.post("/v1/events", json=event), held, begun)
