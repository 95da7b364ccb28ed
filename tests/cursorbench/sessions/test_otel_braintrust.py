"""Spans of Braintrust's SDK."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cursorbench.sessions.items import AgentTurn, Feedback, ToolEnd, ToolUse, UserTurn
from tests.cursorbench.sessions.test_otel_spellings import only, read, span

ASKED = [{"role": "system", "content": "Help."}, {"role": "user", "content": "fix"}]
CALL = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"at": "."}'}}
ANSWER = {"role": "assistant", "content": None, "tool_calls": [CALL], "refusal": None}
END = {"role": "tool", "tool_call_id": "c1", "content": "a.py"}


def call(asked: Any, answer: Any, start: int, **more: Any) -> dict[str, Any]:
    told = {
        "braintrust.span_attributes": '{"type": "llm", "name": "x"}',
        "braintrust.input_json": json.dumps(asked),
        "braintrust.output_json": json.dumps(answer),
        "braintrust.metadata": '{"model": "m"}',
        **more,
    }
    return {**span(told, start=start, end=start + 1), "traceId": "t"}


@pytest.mark.parametrize("choices", [True, False])
def test_messages_and_scores(tmp_path: Path, choices: bool) -> None:
    """They were passed over."""
    first: Any = [{"index": 0, "finish_reason": "tool_calls", "message": ANSWER}] if choices else [ANSWER]
    last = {"role": "assistant", "content": "Done."}
    scores = {"braintrust.scores": '{"correctness": 1.0, "tone": null}'}
    spans = [call(ASKED, first, 1), call([*ASKED, ANSWER, END], [last], 3, **scores)]
    task = {"braintrust.span_attributes": '{"type": "task"}', "braintrust.input_json": '"a program\'s"'}
    found = read(tmp_path, [*spans, {**span(task, start=5, end=6), "traceId": "t"}])
    assert [one.text for one in only(found, UserTurn)] == ["fix"]
    assert [(one.model, one.text) for one in only(found, AgentTurn)] == [("m", ""), ("m", "Done.")]
    assert [(one.id, one.name) for one in only(found, ToolUse)] == [("c1", "ls")]
    assert [(one.id, one.text) for one in only(found, ToolEnd)] == [("c1", "a.py")]
    [score] = only(found, Feedback)
    assert (score.name, score.value, score.session) == ("correctness", 1.0, "t")
    assert score.target == only(found, AgentTurn)[1].span == "sp3-4"
