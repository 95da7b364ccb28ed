"""Which session a span is of, where its traces are many."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cursorbench.sessions.items import AgentTurn, SessionStart, ToolUse, UserTurn
from tests.cursorbench.sessions.test_otel_spellings import CHAT, only, read, span


@pytest.mark.parametrize("name", ["langfuse.session.id", "traceloop.association.properties.session_id"])
def test_a_session_of_several_traces(tmp_path: Path, name: str) -> None:
    """Each trace was a session, with all messages before it again."""
    asked = [{"role": "user", "content": "fix"}]
    answered = {"gen_ai.output.messages": json.dumps(["fixed"])}
    spans = []
    for trace in range(2):
        told = {**CHAT, name: "s-1", "gen_ai.input.messages": json.dumps(asked), **answered}
        spans.append({**span(told, start=trace, end=trace + 1), "traceId": f"tr{trace}"})
        asked += [{"role": "assistant", "content": "fixed"}, {"role": "user", "content": "and now?"}]
    items = read(tmp_path, spans)
    assert [one.session for one in only(items, SessionStart)] == ["s-1"]
    assert [one.text for one in only(items, UserTurn)] == ["fix", "and now?"]


def test_a_conversation_that_nothing_names_over_several_traces(tmp_path: Path) -> None:
    """Where each call is a trace, and another conversation begins with the same words."""

    def call(trace: str, start: int, asked: list[Any], answer: Any) -> dict[str, Any]:
        texts = {"gen_ai.input.messages": json.dumps(asked), "gen_ai.output.messages": json.dumps([answer])}
        return {**span({**CHAT, **texts}, start=start, end=start + 1), "traceId": trace}

    tool = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "ls",
        "gen_ai.tool.call.id": "call_abcdefgh",
    }
    part = {"type": "tool_call", "id": "call_abcdefgh", "name": "ls", "arguments": {}}
    first = [{"role": "user", "content": "fix"}]
    looks = {"role": "assistant", "parts": [part]}
    second = [*first, looks, {"role": "tool", "tool_call_id": "call_abcdefgh", "content": "a.py"}]
    fixed = {"role": "assistant", "content": "fixed"}
    third = [*second, fixed, {"role": "user", "content": "and now?"}]
    items = read(
        tmp_path,
        [
            call("t1", 0, first, looks),
            call("t2", 2, second, fixed),
            call("t3", 4, third, {"role": "assistant", "content": "yes"}),
            {**span(tool, start=6, end=7), "traceId": "t3"},
            call("t4", 8, first, {"role": "assistant", "content": "done"}),
        ],
    )
    told = [(one.session, one.text) for one in items if isinstance(one, UserTurn | AgentTurn) and one.text]
    assert told == [
        ("t1", "fix"),
        ("t1", "fixed"),
        ("t1", "and now?"),
        ("t1", "yes"),
        ("t4", "fix"),
        ("t4", "done"),
    ]
    assert {one.session for one in only(items, ToolUse)} == {"t1"}
