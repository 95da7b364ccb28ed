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
    messages = json.dumps(
        [{"role": "assistant", "parts": [], "tool_calls": [{"id": ID, "function": {"name": "ls"}}]}]
    )
    items = read(
        tmp_path, [span({**told, "gen_ai.response.id": "resp_1", "gen_ai.output.messages": messages})]
    )
    assert [one.id for one in only(items, ToolUse)] == [ID], "since then in both"
