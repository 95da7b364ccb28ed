"""Spans of GitHub Copilot's command line: a tool's is over before the answer's that asked for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cursorbench.sessions import kinds
from cursorbench.sessions.items import AgentTurn, Edit, Read, SessionStart, ToolEnd, ToolUse, UserTurn
from tests.cursorbench.sessions.test_otel_spellings import attributes, span

CHAT = {"gen_ai.operation.name": "chat", "gen_ai.conversation.id": "c-1", "service.name": "github-copilot"}
Spans = list[dict[str, Any]]


def chat(start: int, end: int, asked: list[Any], *answered: dict[str, Any], **more: Any) -> dict[str, Any]:
    outputs = [{"role": "assistant", "parts": [one], "finish_reason": "stop"} for one in answered]
    texts = {"gen_ai.input.messages": json.dumps(asked), "gen_ai.output.messages": json.dumps(outputs)}
    return {**span({**CHAT, **texts, **more}, start=start, end=end), "parentSpanId": "agent"}


def tool(start: int, name: str, one: str, given: str, **more: Any) -> dict[str, Any]:
    told = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name, "gen_ai.tool.call.id": one}
    told |= {"gen_ai.tool.call.arguments": ARGUMENTS, "gen_ai.tool.call.result": given, **more}
    return {**span(told, start=start, end=start + 1), "parentSpanId": "agent"}


ARGUMENTS = json.dumps({"path": "/w/a.py", "file_text": "x"})
USER = {"role": "user", "parts": [{"type": "text", "content": "fix"}]}


def called(one: str, name: str) -> dict[str, Any]:
    return {"type": "tool_call", "id": one, "name": name, "arguments": json.loads(ARGUMENTS)}


def gave(one: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "parts": [{"type": "tool_call_response", "id": one, "response": text}]}


def read(tmp_path: Path, *lines: Spans) -> list[Read]:
    resource = {"attributes": attributes({"service.name": "github-copilot"})}
    exports = [{"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": one}]}]} for one in lines]
    (tmp_path / "spans.jsonl").write_text("".join(json.dumps(one) + "\n" for one in exports))
    return [item for _, item in kinds.read(tmp_path / "spans.jsonl")]


def order(items: list[Read]) -> list[tuple[str, str]]:
    names = {ToolUse: "name", ToolEnd: "outcome", Edit: "status"}
    kept = [one for one in items if isinstance(one, UserTurn | AgentTurn | ToolUse | ToolEnd | Edit)]
    return [(type(one).__name__, getattr(one, names.get(type(one), "text"))) for one in kept]


def test_a_tool_is_told_behind_the_answer_that_asked_for_it(tmp_path: Path) -> None:
    """Its span names no conversation; the answer is in pieces, its own request has what the tools gave."""
    asked = [USER, gave("call_made0001", "Created file /w/a.py"), gave("call_seen0001", "no file")]
    pieces = [
        {"type": "text", "content": "Well."},
        called("call_made0001", "create"),
        called("call_seen0001", "view"),
    ]
    items = read(
        tmp_path,
        [tool(1, "create", "call_made0001", "Created file /w/a.py")],
        [tool(2, "view", "call_seen0001", "no file", **{"error.type": "failure"})],
        [chat(0, 4, asked, *pieces, **{"github.copilot.server_duration": 900})],
        [chat(4, 5, [], {"type": "text", "content": "Done."})],
    )
    assert order(items) == [
        ("UserTurn", "fix"),
        ("AgentTurn", "Well."),
        ("ToolUse", "create"),
        ("Edit", "proposed"),
        ("ToolUse", "view"),
        ("ToolEnd", "ok"),
        ("Edit", "applied"),
        ("ToolEnd", "error"),
        ("AgentTurn", "Done."),
    ]
    assert [one.session for one in items if isinstance(one, SessionStart)] == ["c-1"]
    assert {one.session for one in items if isinstance(one, ToolUse | ToolEnd)} == {"c-1"}
    assert [one.duration_ms for one in items if isinstance(one, AgentTurn)] == [900, 1000]


def test_what_a_tool_gave_is_told_without_a_span_of_its_own(tmp_path: Path) -> None:
    asked = [USER, gave("call_seen0001", "x")]
    items = read(tmp_path, [chat(0, 4, asked, called("call_seen0001", "view"))])
    assert order(items) == [("UserTurn", "fix"), ("ToolUse", "view"), ("ToolEnd", "ok")]


def test_a_tool_that_no_answer_names_is_told_before_what_ends_next(tmp_path: Path) -> None:
    first = chat(0, 1, [USER], {"type": "text", "content": "Well."})
    last = chat(4, 5, [], {"type": "text", "content": "Done."})
    agent = {**span({"gen_ai.operation.name": "invoke_agent"}, start=0, end=9), "spanId": "agent"}
    items = read(tmp_path, [first, tool(2, "view", "call_seen0001", "x"), last])
    assert [name for name, _ in order(items)] == ["UserTurn", "AgentTurn", "ToolUse", "ToolEnd", "AgentTurn"]
    for behind in ([], [agent]):
        items = read(tmp_path, [first, tool(2, "view", "call_seen0001", "x")], behind)
        assert [name for name, _ in order(items)] == ["UserTurn", "AgentTurn", "ToolUse", "ToolEnd"]


def test_no_more_than_a_thousand_wait(tmp_path: Path) -> None:
    tools = [tool(one, "view", f"call_{one:08}", "x") for one in range(1100)]
    items = read(tmp_path, *([one] for one in tools))
    assert [one.id for one in items if isinstance(one, ToolUse)] == [f"call_{one:08}" for one in range(1100)]
