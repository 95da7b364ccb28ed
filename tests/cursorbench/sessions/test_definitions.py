"""Calls checked against the tool definitions that request logs and spans carry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cursorbench.sessions import openai_log, otel
from cursorbench.sessions.definitions import KnownDefinitions
from cursorbench.sessions.items import ToolUse
from cursorbench.sessions.seen import Seen

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
CHAT = {"type": "function", "function": {"name": "read", "parameters": SCHEMA}}
RESPONSES = {"type": "function", "name": "read", "parameters": SCHEMA}
ANTHROPIC = {"name": "read", "input_schema": SCHEMA}


@pytest.mark.parametrize("entry", [CHAT, RESPONSES, ANTHROPIC])
def test_the_shapes_of_definitions(entry: dict[str, Any]) -> None:
    tools = KnownDefinitions().of([entry])
    assert tools is not None
    assert tools.check("read", '{"path": "a.py"}', offered=True) == "ok"
    assert tools.check("read", '{"path": 3}', offered=True) == "schema"
    assert tools.check("read", "", offered=True) == "schema"  # no arguments are an empty table
    assert tools.check("write", "{}", offered=True) == "unknown_tool"
    assert tools.check("write", "{}", offered=False) == ""  # may have been one when it was called


def test_definitions_that_cannot_be_applied_accuse_nobody() -> None:
    broken = {"type": "function", "function": {"name": "read", "parameters": {"type": "no such type"}}}
    tools = KnownDefinitions().of(json.dumps([broken, {"type": "mcp", "server_label": "x"}, 7]))
    assert tools is not None
    assert tools.check("read", '{"path": 3}', offered=True) == "ok"
    assert tools.check("whatever", "{}", offered=True) == ""  # the server's tools are not listed
    free = KnownDefinitions().of([{"type": "custom", "name": "apply_patch"}])
    assert free is not None
    assert free.check("apply_patch", '"*** Begin Patch"', offered=True) == "ok"
    assert KnownDefinitions().of(None, [], "no json", {}) is None


def test_equal_definitions_are_compiled_once() -> None:
    known = KnownDefinitions()
    assert known.of([CHAT]) is known.of([json.loads(json.dumps(CHAT))])
    assert known.of([CHAT]) is not known.of([RESPONSES])


def uses(items: Any) -> list[tuple[str, str, str]]:
    return [(one.name, one.checked, one.invalid) for one in items if isinstance(one, ToolUse)]


def test_a_request_log_with_its_tools(tmp_path: Path) -> None:
    def call(n: int, name: str, arguments: str) -> dict[str, Any]:
        function = {"name": name, "arguments": arguments}
        return {"id": f"call_{n:08d}", "type": "function", "function": function}

    asked = [call(1, "read", '{"path": 1}'), call(2, "gone", "{}")]
    answered = [
        call(3, "read", '{"path": "a"}'), call(4, "read", "{"), call(5, "gone", "{}"),
        {"id": "call_00000006", "type": "custom", "custom": {"name": "patch", "input": "*** Begin Patch"}},
    ]  # fmt: skip
    record = {
        "request": {
            "model": "m",
            "tools": [CHAT, {"type": "custom", "custom": {"name": "patch"}}],
            "messages": [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": asked}],
        },
        "response": {"id": "r", "choices": [{"message": {"role": "assistant", "tool_calls": answered}}]},
    }
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps(record) + "\n")
    assert uses(openai_log.read(path, Seen())) == [
        ("read", "schema", ""), ("gone", "", ""),
        ("read", "ok", ""), ("read", "", "not valid JSON"), ("gone", "unknown_tool", ""), ("patch", "ok", ""),
    ]  # fmt: skip
    del record["request"]["tools"]  # type: ignore[attr-defined]
    path.write_text(json.dumps(record) + "\n")
    assert {checked for _, checked, _ in uses(openai_log.read(path, Seen()))} == {""}


def test_a_span_with_its_definitions(tmp_path: Path) -> None:
    calls = [{"type": "tool_call", "id": "c-12345678", "name": "read", "arguments": {"path": 1}}]
    told = {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": "x"}]}]),
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": calls}]),
        "gen_ai.tool.definitions": json.dumps([RESPONSES]),
    }
    span = {
        "traceId": "t1", "spanId": "s1", "name": "chat m", "startTimeUnixNano": "1760000000000000000",
        "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in told.items()],
    }  # fmt: skip
    path = tmp_path / "spans.jsonl"
    path.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}) + "\n")
    assert uses(otel.read(path, Seen())) == [("read", "schema", "")]


def _deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"not": schema}
    return schema


OLD = "http://json-schema.org/draft-03/schema#"


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        (_deep(200), "{}"),
        (_deep(900), "{}"),
        ({"$schema": OLD, "properties": {"a": {"type": "foo"}}}, '{"a": 1}'),
        ({"properties": {"a": {"multipleOf": 0.5}}}, '{"a": 1' + "0" * 400 + "}"),
    ],
)
def test_no_schema_takes_the_records_around_it_along(
    tmp_path: Path, schema: dict[str, Any], arguments: str
) -> None:
    def line(n: int, schema: Any, arguments: str) -> str:
        function = {"name": "read", "arguments": arguments}
        call = {"id": f"call_{n:08d}", "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        request = {
            "model": "m",
            "messages": [{"role": "user", "content": f"task {n}"}],
            "tools": [{"type": "function", "function": {"name": "read", "parameters": schema}}],
        }
        return json.dumps(
            {"request": request, "response": {"id": f"r{n}", "choices": [{"message": message}]}}
        )

    path = tmp_path / "log.jsonl"
    path.write_text("\n".join([line(1, SCHEMA, "{}"), line(2, schema, arguments), line(3, SCHEMA, "{}")]))
    checked = [one.checked for one in openai_log.read(path, Seen()) if isinstance(one, ToolUse)]
    assert len(checked) == 3
    assert (checked[0], checked[2]) == ("schema", "schema")
