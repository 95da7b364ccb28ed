"""Spans of Copilot in VS Code: one session, each message once, and what the client asks for itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cursorbench.sessions import kinds
from cursorbench.sessions.items import (
    AgentTurn,
    Edit,
    Feedback,
    Quarantined,
    Read,
    SessionStart,
    ToolEnd,
    ToolUse,
    UserTurn,
)
from tests.cursorbench.sessions.test_otel_spellings import only, read, span

ARGUMENTS = {"filePath": "/w/a.py", "oldString": "1", "newString": "2"}
CALL = {"type": "tool_call", "id": "call_abcdefgh", "name": "replace_string_in_file"}
BARE = "fix it"
WRAPPED = "<context>\nNow is then.\n</context>\n<userRequest>\nfix it\n</userRequest>"
SESSION = {"copilot_chat.session_id": "c-1", "copilot_chat.chat_session_id": "s-1"}


def message(role: str, *parts: Any) -> dict[str, Any]:
    told = [{"type": "text", "content": one} if isinstance(one, str) else one for one in parts]
    return {"role": role, "parts": told}


def chat(request: str, asked: list[Any], answer: Any, **more: str) -> dict[str, Any]:
    """A call of the model; `request` is the id of the person's message, in two attributes."""
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "github",
        "gen_ai.conversation.id": request,
        "gen_ai.response.id": request,
        "gen_ai.response.model": "m",
        "gen_ai.agent.name": "panel/editAgent",
        "copilot_chat.request.max_prompt_tokens": 128000,
        "gen_ai.input.messages": json.dumps(asked),
        "gen_ai.output.messages": json.dumps([answer]),
        **(more or SESSION),
    }


def agent(asked: str, answered: str) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.conversation.id": "c-1",
        "gen_ai.agent.name": "GitHub Copilot Chat",
        "gen_ai.input.messages": json.dumps([message("user", asked)]),
        "gen_ai.output.messages": json.dumps([message("assistant", answered)]),
        **SESSION,
    }


def tool(**more: str) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "replace_string_in_file",
        "gen_ai.tool.call.id": "call_abcdefgh",
        "gen_ai.tool.call.arguments": json.dumps(ARGUMENTS),
        "copilot_chat.chat_session_id": "s-1",
        **more,
    }


def persons(items: list[Read]) -> list[str]:
    return [one.text for one in only(items, UserTurn) if not one.automatic]


@pytest.mark.parametrize("with_id", [True, False])
def test_two_messages_of_a_person_are_one_session_and_said_once(tmp_path: Path, with_id: bool) -> None:
    """Each message was a session that had all before it again, and only its first answer was told."""
    system, first = message("system", "be kind"), message("user", WRAPPED)
    looks = message("assistant", "let me see", {**CALL, "arguments": json.dumps(ARGUMENTS)})
    again = message("assistant", "let me see", {**CALL, "arguments": ARGUMENTS})
    given = {"type": "tool_call_response", "id": "call_abcdefgh", "response": "done"} if with_id else "done"
    history = [system, first, again, message("tool", given)]
    second = [*history, message("assistant", "fixed"), message("user", WRAPPED.replace("fix it", "and now?"))]
    spans = [
        span(chat("r-1", [system, first], looks), start=1, end=2),
        span(tool(), start=3, end=4),
        span(chat("r-1", history, message("assistant", "fixed")), start=5, end=6),
        span(agent(BARE, "fixed"), start=0, end=7),
        span(chat("r-2", second, message("assistant", "nothing")), start=9, end=10),
        span(agent("and now?", "nothing"), start=8, end=11),
    ]
    items = read(tmp_path, spans)
    assert [(one.session, one.agent) for one in only(items, SessionStart)] == [("s-1", "copilot-vscode")]
    assert persons(items) == [BARE, "and now?"]
    assert [one.text for one in only(items, AgentTurn)] == ["let me see", "fixed", "nothing"]
    assert {one.model for one in only(items, AgentTurn)} == {"m"}
    assert [one.id for one in only(items, ToolUse)] == ["call_abcdefgh"]
    assert [(one.id, one.outcome) for one in only(items, ToolEnd)] == [("call_abcdefgh", "ok")]
    assert [one.status for one in only(items, Edit)] == ["proposed", "applied"]


def test_anthropics_blocks_as_the_content_of_a_text(tmp_path: Path) -> None:
    """Of versions up to April 2026: a person's words were lost, and each result was an empty message."""

    def text(blocks: list[Any]) -> dict[str, Any]:
        return {"type": "text", "content": blocks}

    call = {"type": "tool_use", "id": "toolu_abcdefgh", "name": "read_file", "input": {"filePath": "/w/a.py"}}
    given = {
        "type": "tool_result",
        "tool_use_id": "toolu_abcdefgh",
        "content": [{"type": "text", "text": "1"}],
    }
    history = [
        message("user", text([{"type": "text", "text": WRAPPED}])),
        message("assistant", text([{"type": "text", "text": "let me see"}, call])),
        message("user", text([given])),
    ]
    deep = text([])
    for _ in range(200):
        deep = text([deep])
    items = read(
        tmp_path, [span(chat("r", [*history, message("user", deep)], message("assistant", "fixed")))]
    )
    assert persons(items) == [BARE, ""]
    assert [one.text for one in only(items, AgentTurn)] == ["let me see", "fixed"]
    assert [(one.id, one.text) for one in only(items, ToolEnd)] == [("toolu_abcdefgh", "1")]


@pytest.mark.parametrize(
    "told",
    [
        {"gen_ai.agent.name": "XtabProvider"},  # the next edit: in no session
        {"gen_ai.agent.name": "title", "copilot_chat.debug_log_label": "title"},
        {"gen_ai.agent.name": "summarizeConversationHistory-full", **SESSION},
        {"gen_ai.agent.name": "retry-healApplyPatch", **SESSION},
    ],
)
def test_what_the_client_asks_for_itself_is_nobodys(tmp_path: Path, told: dict[str, str]) -> None:
    asked = [message("user", "Please write a brief title for the following request:")]
    assert read(tmp_path, [span(chat("r", asked, message("assistant", "Fix"), **told))]) == []


def test_a_question_in_the_editor_is_a_persons(tmp_path: Path) -> None:
    told = {"gen_ai.agent.name": "InlineChat2Intent"}
    items = read(tmp_path, [span(chat("r", [message("user", BARE)], message("assistant", "yes"), **told))])
    assert persons(items) == [BARE]


def test_what_a_sub_agent_is_asked_is_no_persons(tmp_path: Path) -> None:
    told = {
        "copilot_chat.chat_session_id": "sub-1",
        "copilot_chat.parent_chat_session_id": "s-1",
        "copilot_chat.debug_log_label": "runSubagent-default",
    }
    items = read(tmp_path, [span(chat("r", [message("user", "look")], message("assistant", "seen"), **told))])
    assert [(one.session, one.parent) for one in only(items, SessionStart)] == [("sub-1", "s-1")]
    assert [(one.text, one.automatic) for one in only(items, UserTurn)] == [("look", "sub_agent")]


def test_arguments_that_the_client_cut_are_no_fault_of_the_agent(tmp_path: Path) -> None:
    given = json.dumps(ARGUMENTS)[:-9] + "...[truncated, original 70000 chars]"
    items = read(tmp_path, [span(tool(**{"gen_ai.tool.call.arguments": given}))])
    assert [(one.arguments, one.invalid) for one in only(items, ToolUse)] == [(given, "")]


def line(told: dict[str, Any], start: int, **more: Any) -> dict[str, Any]:
    """A span as the client's file has it."""
    resource = {"attributes": {"service.name": "copilot-chat", "service.version": "0.52.0"}}
    return {
        "traceId": "tr",
        "spanId": f"sp{start}",
        "name": "x",
        "startTime": [1_700_000_000 + start, 250_000_000],
        "endTime": [1_700_000_001 + start, 250_000_000],
        "attributes": told,
        "status": {"code": 1},
        "events": [{"name": "user_message", "attributes": {}, "time": [1_700_000_000, 0]}],
        "resource": resource,
        **more,
    }


@pytest.mark.parametrize("private", [True, False])
def test_the_file_that_the_client_writes_itself(tmp_path: Path, private: bool) -> None:
    """It was a file of no known kind. `private`: the SDK's own fields, as some versions have them."""
    first = message("user", WRAPPED)
    spans = [
        line(chat("r-1", [first], message("assistant", "let me see")), 1),
        line(tool(), 3, status={"code": 2}),
        line(agent(BARE, "let me see"), 0),
    ]
    if private:
        for one in spans:
            one["_spanContext"] = {name: one.pop(name) for name in ("traceId", "spanId")}
            one["resource"] = {
                "_rawAttributes": [["service.name", "copilot-chat"], ["service.version", "0.52.0"]]
            }
    log = {"hrTime": [1, 2], "attributes": {"event.name": "copilot_chat.session.start"}, "_body": "x"}
    metrics: dict[str, Any] = {"resource": {}, "scopeMetrics": []}
    path = tmp_path / "copilot-otel.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in [log, metrics, *spans]))
    assert kinds.kind_of(path) == "otel"
    items = [item for _, item in kinds.read(path)]
    assert [(one.version, one.at) for one in only(items, SessionStart)] == [("0.52.0", 1_700_000_001_250)]
    assert persons(items) == [BARE]
    assert [(one.text, one.duration_ms) for one in only(items, AgentTurn)] == [("let me see", 1000.0)]
    assert [one.outcome for one in only(items, ToolEnd)] == ["error"]
    assert only(items, Quarantined) == []


@pytest.mark.parametrize("own", [True, False])
def test_a_thumb_and_a_survey_are_of_the_session(tmp_path: Path, own: bool) -> None:
    """They were in no item. `own`: the file that the client writes, whose log records were not read."""

    def rated(event: str, rating: str) -> dict[str, Any]:
        told = {"event.name": f"copilot_chat.{event}", "rating": rating, "conversation_id": "c-1"}
        body = f"copilot_chat.{event}: {rating}"
        if own:
            return {"hrTime": [1_700_000_009, 0], "attributes": {**told, "request_id": "r-1"}, "_body": body}
        pairs = [{"key": key, "value": {"stringValue": value}} for key, value in told.items()]
        log = {"timeUnixNano": str(1_700_000_009 * 10**9), "body": {"stringValue": body}, "attributes": pairs}
        return {"resourceLogs": [{"scopeLogs": [{"logRecords": [log]}]}]}

    said = line(chat("r-1", [message("user", WRAPPED)], message("assistant", "done")), 1)
    logs = [
        rated("user.feedback", "negative"),
        rated("user.feedback", "odd"),
        rated("inline_agent_survey", "partly"),
        rated("edit.feedback", "x"),
    ]
    path = tmp_path / "copilot-otel.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in [said, *logs]))
    items = [item for _, item in kinds.read(path)]
    assert [(one.session, one.name, one.value, one.at, one.target) for one in only(items, Feedback)] == [
        ("s-1", "thumb", False, 1_700_000_009_000, ""),
        ("s-1", "copilot_chat.survey", "partly", 1_700_000_009_000, ""),
    ]
    assert only(items, Quarantined) == []
