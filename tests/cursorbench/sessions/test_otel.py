"""OTLP JSON files: GenAI spans and events of all generations of the conventions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cursorbench.sessions import otel
from cursorbench.sessions.items import (
    AgentTurn,
    Edit,
    Feedback,
    Place,
    Quarantined,
    Read,
    SessionStart,
    ToolEnd,
    ToolUse,
    UserTurn,
)
from cursorbench.sessions.seen import Seen

AT = 1_700_000_000_000
NANO = str(AT * 1_000_000)


def value(plain: Any) -> dict[str, Any]:
    """A plain value as an AnyValue."""
    if isinstance(plain, bool):
        return {"boolValue": plain}
    if isinstance(plain, int):
        return {"intValue": str(plain)}
    if isinstance(plain, float):
        return {"doubleValue": plain}
    if isinstance(plain, list):
        return {"arrayValue": {"values": [value(one) for one in plain]}}
    if isinstance(plain, dict):
        return {"kvlistValue": {"values": attributes(plain)}}
    return {"stringValue": plain}


def attributes(table: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value(plain)} for key, plain in table.items()]


RESOURCE = {"attributes": attributes({"service.name": "app", "service.version": "2"})}


def span(told: dict[str, Any], **more: Any) -> dict[str, Any]:
    end = str((AT + 1500) * 1_000_000)
    one = {
        "traceId": "tr",
        "spanId": "sp",
        "name": "chat m",
        "startTimeUnixNano": NANO,
        "endTimeUnixNano": end,
    }
    spans = [{**one, "attributes": attributes(told), **more}]
    return {"resourceSpans": [{"resource": RESOURCE, "scopeSpans": [{"spans": spans}]}]}


def log(name: str, told: dict[str, Any], body: Any = None, **more: Any) -> dict[str, Any]:
    one = {
        "eventName": name,
        "timeUnixNano": NANO,
        "traceId": "tr",
        "spanId": "sp",
        "attributes": attributes(told),
    }
    records = [{**one, **({"body": value(body)} if body is not None else {}), **more}]
    return {"resourceLogs": [{"resource": RESOURCE, "scopeLogs": [{"logRecords": records}]}]}


def message(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "parts": list(parts)}


def text(content: str) -> dict[str, Any]:
    return {"type": "text", "content": content}


ASK = message("user", text("rename f"))
CALL = {"type": "tool_call", "id": "call_abcdef", "name": "str_replace",
        "arguments": {"path": "a.py", "old_str": "f", "new_str": "g"}}  # fmt: skip
DOES = message("assistant", {"type": "reasoning", "content": "hm"}, CALL)
DID = message("tool", {"type": "tool_call_response", "id": "call_abcdef", "response": "edited"})
DONE = message("assistant", text("done"))
CHAT = {"gen_ai.operation.name": "chat", "gen_ai.conversation.id": "c", "gen_ai.request.model": "m"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "otlp.jsonl"


def read(path: Path, *exports: object, seen: Seen | None = None) -> list[Read]:
    path.write_text("".join(json.dumps(one) + "\n" for one in exports))
    return list(otel.read(path, seen or Seen()))


def chat(asked: list[Any], answered: list[Any], one: str) -> dict[str, Any]:
    return {
        **CHAT,
        "gen_ai.response.id": one,
        "gen_ai.response.model": "m-1",
        "gen_ai.response.time_to_first_chunk": 0.25,
        "gen_ai.input.messages": json.dumps(asked),
        "gen_ai.output.messages": json.dumps(answered),
    }


def test_a_conversation_in_spans(path: Path) -> None:
    tool = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.conversation.id": "c",
        "gen_ai.tool.name": "str_replace",
        "gen_ai.tool.call.id": "call_abcdef",
        "gen_ai.tool.call.result": "edited",
    }
    items = read(
        path,
        span(chat([ASK], [DOES], "r1")),
        span(tool),
        span(chat([ASK, DOES, DID], [DONE], "r2")),
        span({**CHAT, "gen_ai.operation.name": "invoke_agent", "gen_ai.output.messages": json.dumps([DONE])}),
    )
    places = [Place(str(path), n) for n in range(1, 5)]
    told: dict[str, Any] = {"session": "c", "at": AT}
    answer: dict[str, Any] = {
            "model": "m-1", "first_token_ms": 250.0, "duration_ms": 1500.0, "span": "sp", **told,
        }  # fmt: skip
    edit: dict[str, Any] = {"id": "call_abcdef", "path": "a.py", "before": "f", "after": "g", **told}
    arguments = '{"path":"a.py","old_str":"f","new_str":"g"}'
    assert items == [
        SessionStart(place=places[0], agent="app", version="2", **told),
        UserTurn(place=places[0], text="rename f", **told),
        AgentTurn(place=places[0], id="r1", text="", thinking="hm", **answer),
        ToolUse(place=places[0], id="call_abcdef", name="str_replace", arguments=arguments, **told),
        Edit(place=places[0], status="proposed", **edit),
        ToolEnd(place=places[1], id="call_abcdef", outcome="ok", text="edited", **told),
        Edit(place=places[1], status="applied", **edit),
        AgentTurn(place=places[2], id="r2", text="done", **answer),
    ]


def test_a_failed_tool(path: Path) -> None:
    tool = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "run",
        "gen_ai.tool.call.arguments": "{}",
    }
    ends = [one for one in read(path, span(tool, status={"code": 2})) if isinstance(one, ToolEnd)]
    assert [(one.session, one.outcome) for one in ends] == [("tr", "error")]
    reasons = [one.reason for one in read(path, span({"gen_ai.operation.name": "execute_tool"}))
               if isinstance(one, Quarantined)]  # fmt: skip
    assert reasons == ["a tool's span without its name"]


def test_the_event_with_structured_messages(path: Path) -> None:
    told = {**CHAT, "gen_ai.input.messages": [ASK], "gen_ai.output.messages": [DONE]}
    items = read(path, log("gen_ai.client.inference.operation.details", told))
    assert [type(one) for one in items] == [SessionStart, UserTurn, AgentTurn]


def test_message_events_of_before_1_37(path: Path) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "run", "arguments": "{}"}}
    items = read(
        path,
        log("gen_ai.system.message", {}, {"content": "be kind"}),
        log("gen_ai.user.message", {"event.name": "gen_ai.user.message"}, {"content": "go"}),
        log("gen_ai.choice", {}, {"index": 0, "message": {"content": "ok", "tool_calls": [call]}}),
        log("gen_ai.choice", {}, {"index": 1, "message": {"content": "or so"}}),
        log("gen_ai.user.message", {}, {"content": "go"}, spanId="sp2"),
        log("gen_ai.assistant.message", {}, {"content": "ok", "tool_calls": [call]}, spanId="sp2"),
        log("gen_ai.tool.message", {}, {"id": "call_1", "content": "ran"}, spanId="sp2"),
        log("gen_ai.user.message", {}, {"content": "go"}, spanId="sp2"),
        log("gen_ai.user.message", {}),
    )
    assert [type(one).__name__ for one in items] == [
        "Quarantined", "SessionStart", "UserTurn", "AgentTurn", "ToolUse", "ToolEnd", "UserTurn",
    ]  # fmt: skip


def test_events_of_spans(path: Path) -> None:
    events = [
        {
            "name": "gen_ai.content.prompt",
            "attributes": attributes({"gen_ai.prompt": '[{"role":"user","content":"go"}]'}),
        },
        {"name": "gen_ai.content.completion", "attributes": attributes({"gen_ai.completion": "ok"})},
        {"name": "exception", "attributes": []},
        {"name": "gen_ai.dream", "attributes": []},
    ]
    items = read(path, span(CHAT, events=events))
    assert [type(one) for one in items] == [SessionStart, UserTurn, AgentTurn, Quarantined]
    assert isinstance(items[-1], Quarantined)
    assert items[-1].reason == "unknown_type"


def test_indexed_attributes(path: Path) -> None:
    told = {
        "gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": '[{"type": "text", "text": "go"}]',
        "gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": "ok",
        "gen_ai.completion.0.tool_calls.0.name": "run", "gen_ai.completion.0.tool_calls.0.arguments": "{}",
    }  # fmt: skip
    items = read(path, span(told))
    assert [getattr(one, "text", getattr(one, "name", "")) for one in items[1:]] == ["go", "ok", "run"]


def test_evaluations(path: Path) -> None:
    told = {
        "gen_ai.evaluation.name": "kind",
        "gen_ai.evaluation.score.value": 0.5,
        "gen_ai.response.id": "r1",
    }
    label = {"gen_ai.evaluation.name": "kind", "gen_ai.evaluation.score.label": "good",
             "gen_ai.evaluation.explanation": "why"}  # fmt: skip
    name = "gen_ai.evaluation.result"
    items = read(path, log(name, told), log(name, label), log(name, {"gen_ai.evaluation.name": "x"}))
    assert [(one.target, one.value, one.comment) for one in items if isinstance(one, Feedback)] == [
        ("r1", 0.5, ""),
        ("sp", "good", "why"),
    ]
    assert isinstance(items[-1], Quarantined)


def test_others_are_passed_over_and_damage_is_told(path: Path) -> None:
    broken = {"resourceSpans": [{"scopeSpans": [{"spans": [5]}]}]}
    other = {"resourceMetrics": []}
    items = read(path, span({"http.method": "GET"}), log("app.started", {}), other, broken, {"a": 1})
    assert [one.reason for one in items if isinstance(one, Quarantined)] == [
        "a span or log record is no object",
        "not an OTLP export",
    ]
    assert len(items) == 2


def test_where_no_list_of_records_is_that_is_told_too(path: Path) -> None:
    """`{"resourceSpans": [1]}` was a file without an answer, and nothing was said of it."""
    odd = [
        {"resourceSpans": [1]},
        {"resourceSpans": [{"scopeSpans": [1, {"spans": []}]}]},
        {"resourceLogs": []},
    ]
    items = read(path, *odd)
    assert [one.reason for one in items if isinstance(one, Quarantined)] == [
        "a span or log record is no object"
    ] * 2
    assert len(items) == 2


def test_a_pretty_document_and_snake_case(tmp_path: Path) -> None:
    path = tmp_path / "traces.json"
    path.write_text(json.dumps(span(chat([ASK], [DONE], "r1")), indent=2))
    assert otel.recognises(path, path.read_bytes())
    assert len(list(otel.read(path, Seen()))) == 3
    (alone,) = span(chat([ASK], [DONE], "r1"))["resourceSpans"]  # as Java's exporter writes it to a log
    assert otel.recognises(path, json.dumps(alone).encode())
    assert [one.agent for one in read(path, alone) if isinstance(one, SessionStart)] == ["app"]
    snake = {
        "resource_spans": [{"scope_spans": [{"spans": [{"trace_id": "t", "attributes": attributes(CHAT)}]}]}]
    }
    assert read(path, snake) == []
    assert otel.recognises(path, json.dumps(snake).encode())
    assert otel.recognises(path, json.dumps(span(CHAT)).encode()[:60])
    assert not otel.recognises(path, b'{"spans": []}')


def test_a_call_whose_texts_were_not_logged_is_the_agents_turn(path: Path) -> None:
    """The default of all instrumentations; such spans vanished, and a verdict found no answer."""
    told = {**CHAT, "gen_ai.response.id": "r1", "gen_ai.response.model": "m-1"}
    turn = AgentTurn(session="c", id="r1", at=AT, place=Place(str(path), 1), text="", model="m-1", span="sp",
                     duration_ms=1500.0)  # fmt: skip
    assert read(path, span(told), span(told))[1:] == [turn]  # sent twice
    unnamed = {name: one for name, one in told.items() if name != "gen_ai.operation.name"}
    assert read(path, span(unnamed))[1:] == [turn]
    for other in ({"gen_ai.operation.name": "embeddings"}, {"gen_ai.operation.name": "invoke_agent"},
                  {"error.type": "timeout"}):  # fmt: skip
        assert read(path, span({**told, **other})) == []
    assert read(path, span(told, status={"code": 2})) == []


def test_a_call_is_told_without_texts_only_where_no_record_has_them(path: Path) -> None:
    told = {**CHAT, "gen_ai.response.id": "r1"}
    asked = log("gen_ai.user.message", {}, {"content": "hi"})
    answered = log("gen_ai.choice", {}, {"index": 0, "message": {"role": "assistant", "content": "ho"}})
    framework = span(chat([ASK], [DONE], "r1"), spanId="outer")
    details = log("gen_ai.client.inference.operation.details", chat([ASK], [DONE], "r1"))
    for exports in ([asked, answered, span(told)], [span(told), asked, answered], [span(told), framework],
                    [framework, span(told)], [details, span(told)], [span(told), details]):  # fmt: skip
        items = read(path, *exports)
        assert [type(one) for one in items if not isinstance(one, SessionStart)] == [UserTurn, AgentTurn]
    seen = Seen()  # of an earlier file
    read(path, asked, answered, seen=seen)
    assert read(path, span(told), seen=seen) == []


def test_the_pieces_of_a_stream_are_no_unknown_events(path: Path) -> None:
    told = span(chat([ASK], [DONE], "r1"), events=[{"name": "gen_ai.content.completion.chunk"}] * 2)
    assert [type(one) for one in read(path, told)] == [SessionStart, UserTurn, AgentTurn]
