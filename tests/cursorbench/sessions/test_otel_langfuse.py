"""Spans of Langfuse's SDK, and LiteLLM's older ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cursorbench.sessions.items import AgentTurn, SessionStart, ToolEnd, ToolUse, UserTurn
from tests.cursorbench.sessions.test_otel_spellings import only, read, span

ASKED = [{"role": "system", "content": "Help."}, {"role": "user", "content": "fix"}]
ID = "call_abcdefgh"


def generation(asked: Any, answer: Any, start: int) -> dict[str, Any]:
    told = {
        "langfuse.observation.type": "generation",
        "langfuse.observation.model.name": "m",
        "langfuse.observation.input": json.dumps(asked),
        "langfuse.observation.output": answer if isinstance(answer, str) else json.dumps(answer),
        "session.id": "s-1",
    }
    return {**span(told, start=start, end=start + 1), "traceId": f"t{start}"}


def answered(client: str) -> tuple[Any, Any, list[Any]]:
    """A request, its answer, and what the next request has of them."""
    function = {"name": "ls", "arguments": '{"at": "."}'}
    item = {"type": "function_call", "id": "fc_abcdefgh", "call_id": ID, **function}
    text = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]}
    if client == "responses":
        end: Any = {"type": "function_call_output", "call_id": ID, "output": "a.py"}
        return {"input": ASKED, "tools": []}, [text, item], [*ASKED, text, item, end]
    call: dict[str, Any] = {"id": ID, "type": "function", "function": function}
    if client == "langchain":
        call = {"id": ID, "type": "tool_call", "name": "ls", "args": {"at": "."}}
    answer = {"role": "assistant", "content": "I look.", "tool_calls": [call]}
    end = {"role": "tool", "tool_call_id": ID, "content": "a.py"}
    return {"messages": ASKED, "tools": []} if client == "tools" else ASKED, answer, [*ASKED, answer, end]


@pytest.mark.parametrize("client", ["chat", "tools", "responses", "langchain"])
def test_generations_of_its_sdk(tmp_path: Path, client: str) -> None:
    """They were passed over: all their attributes are Langfuse's own."""
    first, answer, history = answered(client)
    agent = {**generation("fix", "done", 0), "spanId": "sp-agent"}
    agent["attributes"][0]["value"] = {"stringValue": "agent"}
    items = read(tmp_path, [generation(first, answer, 1), generation(history, "done", 3), agent])
    assert [one.session for one in only(items, SessionStart)] == ["s-1"]
    assert [one.text for one in only(items, UserTurn)] == ["fix"]
    assert [(one.text, one.model) for one in only(items, AgentTurn)] == [("I look.", "m"), ("done", "m")]
    assert [(one.id, json.loads(one.arguments)) for one in only(items, ToolUse)] == [(ID, {"at": "."})]
    assert [(one.id, one.text) for one in only(items, ToolEnd)] == [(ID, "a.py")]


def test_litellms_calls_of_before_output_messages(tmp_path: Path) -> None:
    """Under the number of the call where that of the choice stands: no call was told."""
    told = {
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": "fix",
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.finish_reason": "tool_calls",
        **{f"gen_ai.completion.{n}.function_call.name": name for n, name in enumerate(["ls", "cat"])},
        **{f"gen_ai.completion.{n}.function_call.arguments": '{"at": 1}' for n in range(2)},
    }
    items = read(tmp_path, [span(told)])
    assert [(one.name, one.arguments) for one in only(items, ToolUse)] == [
        ("ls", '{"at": 1}'),
        ("cat", '{"at": 1}'),
    ]


@pytest.mark.parametrize("framework", [True, False])
def test_litellms_calls_of_today(tmp_path: Path, framework: bool) -> None:
    """Its messages of an answer have none, and a request with one was another session each time.

    `framework`: one that tells its tools in spans of its own, under the call's id.
    """
    ask = {"role": "user", "parts": [{"type": "text", "content": "fix"}]}
    call = {"id": ID, "type": "function", "function": {"name": "ls", "arguments": '{"at": 1}'}}
    does = {"role": "assistant", "parts": []}
    again = [ask, {**does, "tool_calls": [call]}, {"role": "tool", "parts": [], "tool_call_id": ID}]
    done = {"role": "assistant", "parts": [{"type": "text", "content": "done"}]}

    def request(asked: list[Any], answer: Any, start: int, **more: str) -> dict[str, Any]:
        told = {
            "gen_ai.operation.name": "chat",
            "gen_ai.response.id": f"chatcmpl-{start}",
            "gen_ai.input.messages": json.dumps(asked),
            "gen_ai.output.messages": json.dumps([answer]),
            **more,
        }
        trace = "t0" if framework else f"t{start}"
        return {**span(told, start=start, end=start + 1), "traceId": trace, "spanId": f"{start:016}"}

    prefix = "gen_ai.completion.0.function_call"
    first = request([ask], does, 1, **{f"{prefix}.name": "ls", f"{prefix}.arguments": '{"at": 1}'})
    spans = [first, request(again, done, 5)]
    if framework:
        about = {
            "gen_ai.tool.name": "ls",
            "gen_ai.tool.call.id": ID,
            "gen_ai.tool.call.arguments": '{"at":1}',
        }
        run = span({"gen_ai.operation.name": "execute_tool", **about}, start=3, end=4)
        spans.insert(1, {**run, "traceId": "t0"})
    items = read(tmp_path, spans)
    assert len(only(items, SessionStart)) == 1
    assert [one.text for one in only(items, UserTurn)] == ["fix"]
    assert [one.text for one in only(items, AgentTurn)] == ["", "done"]
    assert (
        [one.id for one in only(items, ToolUse)] == [one.id for one in only(items, ToolEnd)] == [f"{1:016}:0"]
    )
