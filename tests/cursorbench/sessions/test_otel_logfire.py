"""Spans of Logfire's instrumentations of OpenAI's and Anthropic's clients, in their default form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cursorbench.sessions.items import AgentTurn, Edit
from tests.cursorbench.sessions.test_otel_spellings import (
    ARGUMENTS,
    CHAT,
    only,
    read,
    said_and_done,
    span,
    told_once,
)

ASKED: list[Any] = [{"role": "system", "content": "s"}, {"role": "user", "content": "fix"}]


def openai() -> tuple[Any, list[Any]]:
    """The answer that calls, and what the next request repeats of it."""
    function = {"name": "str_replace", "arguments": json.dumps(ARGUMENTS)}
    call = {"id": "call_abcdefgh", "type": "function", "function": function}
    looks = {"role": "assistant", "content": "let me see", "tool_calls": [call], "refusal": None}
    return looks, [looks, {"role": "tool", "tool_call_id": "call_abcdefgh", "content": "ok"}]


def anthropic() -> tuple[Any, list[Any]]:
    function = {"name": "str_replace", "arguments": json.dumps({"input": ARGUMENTS})}
    looks = {
        "role": "assistant",
        "content": "let me see",
        "tool_calls": [{"id": "call_abcdefgh", "function": function}],
    }
    call = {"type": "tool_use", "id": "call_abcdefgh", "name": "str_replace", "input": ARGUMENTS}
    result = {"type": "tool_result", "tool_use_id": "call_abcdefgh", "content": "ok"}
    text = {"type": "text", "text": "let me see"}
    return looks, [{"role": "assistant", "content": [text, call]}, {"role": "user", "content": [result]}]


def request(*messages: Any) -> dict[str, Any]:
    return {**CHAT, "request_data": json.dumps({"model": "m", "messages": list(messages)})}


def answered(asked: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    return {**asked, "response_data": json.dumps(data)}


@pytest.mark.parametrize("client", [openai, anthropic])
@pytest.mark.parametrize("streamed", [True, False])
def test_two_calls_of_the_model(tmp_path: Path, client: Any, streamed: bool) -> None:
    """Their texts were in no attribute that was read: a span was an answer without text, or nothing."""
    looks, repeated = client()
    first, second = request(*ASKED), request(*ASKED, *repeated)
    spans = [span(answered(first, {"message": looks, "usage": None}))]
    if streamed:  # the answer in a record of its own
        spans += [
            span(second, start=2, end=3),
            span(answered(second, {"combined_chunk_content": "fixed", "chunk_count": 1}), start=4, end=4),
        ]
    else:
        done = {"message": {"role": "assistant", "content": "fixed"}}
        spans.append(span(answered(second, done), start=2, end=3))
    items = read(tmp_path, spans)
    assert said_and_done(items) == told_once()
    assert {one.model for one in only(items, AgentTurn)} == {"m"}
    assert [one.status for one in only(items, Edit)] == ["proposed", "applied"]
