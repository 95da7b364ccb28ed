"""Logged requests of Anthropic's Messages API: answers that came as a stream, and its own edit tool."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cursorbench.sessions import kinds
from cursorbench.sessions.items import AgentTurn, Edit, Read, ToolEnd, ToolUse, UserTurn

ASK = {"role": "user", "content": "fix"}
INPUT = {"command": "str_replace", "path": "a.py", "old_str": "1", "new_str": "2"}
NAME = "str_replace_based_edit_tool"
CALL = {"type": "tool_use", "id": "toolu_abcdefgh", "name": NAME, "input": INPUT}
ANSWER = [{"type": "text", "text": "I edit."}, CALL]
RESULT = {"type": "tool_result", "tool_use_id": "toolu_abcdefgh", "content": "edited"}


def events(*deltas: tuple[int, dict[str, Any]]) -> list[dict[str, Any]]:
    """A stream of a text, a thought and a call, each in the pieces of these deltas."""
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x", "content": []}
    starts: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "text", "text": ""},
        {**CALL, "input": {}},
    ]
    return [
        {"type": "message_start", "message": head},
        *(
            {"type": "content_block_start", "index": place, "content_block": block}
            for place, block in enumerate(starts)
        ),
        {"type": "ping"},
        *({"type": "content_block_delta", "index": place, "delta": delta} for place, delta in deltas),
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ]


WRITTEN = json.dumps(INPUT)
PIECES = (
    (0, {"type": "thinking_delta", "thinking": "h"}),
    (0, {"type": "thinking_delta", "thinking": "m"}),
    (0, {"type": "signature_delta", "signature": "x"}),
    (1, {"type": "text_delta", "text": "I "}),
    (1, {"type": "text_delta", "text": "edit."}),
    (2, {"type": "input_json_delta", "partial_json": WRITTEN[:9]}),
    (2, {"type": "input_json_delta", "partial_json": WRITTEN[9:]}),
)


def as_it_came(found: list[dict[str, Any]]) -> str:
    return "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in found)


def read(path: Path, *records: object) -> list[Read]:
    path.write_text("".join(json.dumps(one) + "\n" for one in records))
    assert kinds.kind_of(path) == "openai-log"
    return [item for _, item in kinds.read(path)]


@pytest.mark.parametrize("wrap", ["events", "text", "claude-trace"])
def test_an_answer_that_came_as_a_stream(tmp_path: Path, wrap: str) -> None:
    """It was in no item; its calls came with the next request, of no model."""
    found = events(*PIECES)
    body = {"model": "claude-x", "stream": True, "messages": [ASK]}
    again = {"role": "assistant", "content": ANSWER}
    more = {**body, "messages": [ASK, again, {"role": "user", "content": [RESULT]}]}
    if wrap == "claude-trace":
        first: dict[str, Any] = {
            "request": {"timestamp": 1_700_000_000.5, "method": "POST", "headers": {}, "body": body},
            "response": {"status_code": 200, "headers": {}, "body_raw": as_it_came(found)},
            "logged_at": "2023-11-14T22:13:21Z",
        }
    else:
        first = {"request": body, "response": found if wrap == "events" else as_it_came(found)}
    items = read(tmp_path / "log.jsonl", first, {"request": more, "response": {"content": []}})
    assert [one.text for one in items if isinstance(one, UserTurn)] == ["fix"]
    answers = [(one.id, one.text, one.thinking, one.model) for one in items if isinstance(one, AgentTurn)]
    assert answers == [("msg_1", "I edit.", "hm", "claude-x")]
    assert [(one.id, one.arguments) for one in items if isinstance(one, ToolUse)] == [(CALL["id"], WRITTEN)]
    assert [one.outcome for one in items if isinstance(one, ToolEnd)] == ["ok"]
    times = {one.at for one in items if isinstance(one, UserTurn)}
    assert times == {1_700_000_001_000 if wrap == "claude-trace" else None}


def test_a_call_without_arguments_in_a_stream(tmp_path: Path) -> None:
    pieces = ((1, {"type": "text_delta", "text": "."}), (2, {"type": "input_json_delta", "partial_json": ""}))
    record = {"request": {"model": "m", "messages": [ASK]}, "response": events(*pieces)}
    items = read(tmp_path / "log.jsonl", record)
    assert [(one.arguments, one.invalid) for one in items if isinstance(one, ToolUse)] == [("{}", "")]


@pytest.mark.parametrize("beside", [True, False])
def test_the_text_of_a_skill_is_nobodys(tmp_path: Path, beside: bool) -> None:
    """Behind the result of its call, in one message or in the next, as proxies to OpenAI's HTTP send it."""
    launched = {**RESULT, "content": "Launching skill: bake"}
    text = {"type": "text", "text": "Bake a cake."}
    behind = [[launched, text]] if beside else [[launched], [text]]
    told = [{"role": "user", "content": one} for one in behind]
    if not beside:
        told[0] = {"role": "tool", "tool_call_id": "toolu_abcdefgh", "content": "Launching skill: bake"}
    called = {"role": "assistant", "content": ANSWER}
    messages = [ASK, called, *told, {"role": "assistant", "content": "Baked."}, ASK]
    items = read(tmp_path / "log.jsonl", {"request": {"model": "m", "messages": messages}})
    turns = [(one.text, one.automatic) for one in items if isinstance(one, UserTurn)]
    assert turns == [("fix", ""), ("Bake a cake.", "meta"), ("fix", "")]


def test_the_edit_tool_of_the_api(tmp_path: Path) -> None:
    """Since Claude 4; its calls changed no file."""
    answer = {"id": "msg_1", "role": "assistant", "content": ANSWER}
    later = [ASK, {"role": "assistant", "content": ANSWER}, {"role": "user", "content": [RESULT]}]
    first = {"request": {"model": "m", "messages": [ASK]}, "response": answer}
    items = read(
        tmp_path / "log.jsonl", first, {"request": {"model": "m", "messages": later}, "response": {}}
    )
    edits = [one for one in items if isinstance(one, Edit)]
    assert [(one.path, one.before, one.after) for one in edits] == [("a.py", "1", "2")] * 2
    assert [one.status for one in edits] == ["proposed", "applied"]
