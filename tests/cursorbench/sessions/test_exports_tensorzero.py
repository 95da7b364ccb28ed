"""Inferences that TensorZero's gateway stored, and the feedback about them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cursorbench.sessions import kinds
from cursorbench.sessions.items import AgentTurn, Feedback, Quarantined, Read, ToolEnd, ToolUse, UserTurn

FIRST, SECOND = "019562dc-d5b0-7e43-800d-000000000001", "019562dc-d5b0-7e43-800d-000000000002"
EPISODE = "019562dc-d5b0-7e43-800d-00000000000e"
CALL = {"type": "tool_call", "id": "call_abcdef", "name": "run", "arguments": {"at": "."}}
RAW = {**CALL, "raw_name": "run", "raw_arguments": '{"at": "."}'}
ASK = {"role": "user", "content": [{"type": "text", "text": "rename f"}]}
DID = {
    "role": "user",
    "content": [{"type": "tool_result", "id": "call_abcdef", "name": "run", "result": "ok"}],
}


def rows() -> list[dict[str, Any]]:
    """As the API gives them."""
    common = {"function_name": "code", "variant_name": "v", "episode_id": EPISODE, "processing_time_ms": 900}
    called = {"role": "assistant", "content": [{**CALL, "arguments": '{"at": "."}'}]}
    thought = {"type": "thought", "text": "Hm."}
    first = {"system": "Help.", "messages": [ASK]}
    second = {"system": "Help.", "messages": [ASK, called, DID]}
    return [
        {
            **common, "inference_id": FIRST, "timestamp": "2026-11-01T10:00:00Z", "input": first,
            "output": [RAW],
        },
        {
            **common, "inference_id": SECOND, "timestamp": "2026-11-01T10:01:00Z", "input": second,
            "output": [thought, {"type": "text", "text": "Done."}],
        },
    ]  # fmt: skip


def of_table(row: dict[str, Any]) -> dict[str, Any]:
    """As ClickHouse has it: the newest first, JSON as text."""
    told = {name: json.dumps(one) if name in ("input", "output") else one for name, one in row.items()}
    return {**told, "id": told.pop("inference_id"), "timestamp": row["timestamp"].replace("T", " ")[:-1]}


def read(path: Path, *lines: object) -> list[Read]:
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    return [item for _, item in kinds.read(path)]


@pytest.mark.parametrize(
    "lines",
    [rows(), [*map(of_table, rows()[::-1])], [{"inferences": rows()}]],
    ids=["rows", "of the table", "a page"],
)
def test_an_episode_is_a_session(tmp_path: Path, lines: list[object]) -> None:
    """They were of no known kind, and so was all feedback about them about nothing."""
    items = read(tmp_path / "inferences.jsonl", *lines)
    assert not [one for one in items if isinstance(one, Quarantined) or one.session != EPISODE]
    answers = [(one.id, one.text, one.thinking) for one in items if isinstance(one, AgentTurn)]
    assert answers == [(FIRST, "", ""), (SECOND, "Done.", "Hm.")]
    (told,) = {(one.model, one.duration_ms) for one in items if isinstance(one, AgentTurn)}
    assert told == ("tensorzero::function_name::code::variant_name::v", 900.0)
    assert [one.text for one in items if isinstance(one, UserTurn)] == ["rename f"]
    assert [json.loads(one.arguments) for one in items if isinstance(one, ToolUse)] == [{"at": "."}]
    assert [one.outcome for one in items if isinstance(one, ToolEnd)] == ["ok"]


def test_a_call_that_did_not_parse_is_what_the_model_wrote(tmp_path: Path) -> None:
    row = {**rows()[0], "output": [{**RAW, "name": None, "arguments": None, "raw_arguments": "{"}]}
    (use,) = [one for one in read(tmp_path / "one.jsonl", row) if isinstance(one, ToolUse)]
    assert (use.name, use.invalid) == ("run", "not valid JSON")


def test_a_template_and_an_answer_in_json(tmp_path: Path) -> None:
    ask = {"role": "user", "content": [{"type": "template", "name": "user", "arguments": {"file": "a.py"}}]}
    row = {
        **rows()[0],
        "input": {"messages": [ask]},
        "output": {"raw": '{"ok": true}', "parsed": {"ok": True}},
    }
    items = read(tmp_path / "one.jsonl", row)
    assert [one.text for one in items if isinstance(one, UserTurn | AgentTurn)] == [
        '{"file":"a.py"}', '{"ok": true}',
    ]  # fmt: skip


def test_a_page_of_feedback(tmp_path: Path) -> None:
    told = {"type": "boolean", "id": FIRST, "target_id": SECOND, "metric_name": "thumbs_up", "value": True}
    (said,) = read(tmp_path / "feedback.json", {"feedback": [told]})
    assert isinstance(said, Feedback)
    assert (said.target, said.name, said.value) == (SECOND, "thumbs_up", True)
