"""Entire's compact transcripts: read where the agent's own cannot be, and never beside it."""

import json
from pathlib import Path
from typing import Any

import pytest

from cursorbench.sessions import kinds
from cursorbench.sessions.items import (
    AgentTurn,
    Edit,
    Item,
    Quarantined,
    SessionStart,
    ToolEnd,
    ToolUse,
    UserTurn,
)

WHERE = {"checkpoint_id": "0123456789ab", "session_id": "s1", "agent": "Gemini CLI", "model": "gemini-3"}
WRITE = {
    "type": "tool_use", "id": "call-1", "name": "write_file",
    "input": {"file_path": "a.py", "content": "x = 1\n"}, "result": {"output": "done", "status": "success"},
}  # fmt: skip
SHELL = {"type": "tool_use", "id": "call-2", "name": "shell", "input": {"command": "false"},
         "result": {"output": "exit 1", "status": "error"}}  # fmt: skip


def line(kind: str, second: int, *content: dict[str, Any], **more: Any) -> str:
    told = {"v": 1, "agent": "gemini", "cli_version": "0.8.0", "type": kind}
    return json.dumps({**told, "ts": f"2026-07-01T10:00:{second:02}Z", "content": list(content), **more})


FIRST = [
    line("user", 0, {"text": "make it blue"}),
    line("assistant", 1, {"type": "text", "text": "Yes."}, WRITE, id="m1"),
]
MORE = [line("user", 2, {"text": "again"}), line("assistant", 3, SHELL, id="m2")]


def session(folder: Path, lines: list[str], **about: Any) -> Path:
    folder.mkdir(parents=True)
    (folder / "metadata.json").write_text(json.dumps(WHERE | about))
    (folder / "transcript.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def told(folder: Path) -> list[Item | Quarantined]:
    return [item for _, item in kinds.read(folder)]


@pytest.fixture(autouse=True)
def _few_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "ADAPTERS", ("claude_code", "entire"))


def test_what_the_agent_asks_a_sub_agent_is_no_persons(tmp_path: Path) -> None:
    """Copilot CLI's background agents, in a checkpoint of a public repository: the call's prompt, again."""
    task = {"type": "tool_use", "id": "call-3", "name": "task", "input": {"prompt": "Review the branch.\n"}}
    lines = [*FIRST, line("assistant", 2, task), line("user", 3, {"text": "Review the branch."})]
    turns = [item for item in told(session(tmp_path / "c", lines)) if isinstance(item, UserTurn)]
    assert [(turn.text, turn.automatic) for turn in turns] == [
        ("make it blue", ""),
        ("Review the branch.", "sub_agent"),
    ]


def test_several_texts_of_a_message_come_apart(tmp_path: Path) -> None:
    texts = ({"text": "[Image: original 2x2, displayed at 1x1.]"}, {"text": "this"}, {"text": "is small"})
    turns = [
        one for one in told(session(tmp_path / "1/0", [line("user", 0, *texts)])) if isinstance(one, UserTurn)
    ]
    assert [(one.automatic, one.text) for one in turns] == [
        ("meta", "[Image: original 2x2, displayed at 1x1.]"),
        ("", "this\nis small"),
    ]


def test_a_session_of_an_agent_without_a_reader(tmp_path: Path) -> None:
    folder = session(tmp_path / "1/0", FIRST)
    (folder / "full.jsonl").write_text('{"messages": [{"type": "gemini"}]}')
    later = session(tmp_path / "2/0", FIRST + MORE, checkpoint_id="ffffffffffff")
    items = told(tmp_path)
    assert [item.text for item in items if isinstance(item, UserTurn)] == ["make it blue", "again"]
    starts = [(one.agent, one.session) for one in items if isinstance(one, SessionStart)]
    assert starts == [("gemini", "s1")]
    answers = [(item.text, item.model, item.id) for item in items if isinstance(item, AgentTurn)]
    assert answers == [("Yes.", "gemini-3", "m1")]
    assert [item.name for item in items if isinstance(item, ToolUse)] == ["write_file", "shell"]
    assert [item.outcome for item in items if isinstance(item, ToolEnd)] == ["ok", "error"]
    assert [(item.path, item.status) for item in items if isinstance(item, Edit)] == [
        ("a.py", "proposed"), ("a.py", "applied"),
    ]  # fmt: skip
    at = [item.at for item in items if isinstance(item, UserTurn)]
    assert at == [1782900000000, 1782900002000]
    assert later.exists()


def test_beside_a_transcript_that_is_read_it_says_nothing(tmp_path: Path) -> None:
    folder = session(tmp_path / "1/0", FIRST)
    own = {"type": "user", "uuid": "u1", "sessionId": "s1", "message": {"content": "make it blue"}}
    (folder / "full.jsonl").write_text(json.dumps(own))
    assert sum(isinstance(item, UserTurn) for item in told(tmp_path)) == 1
    assert not any(isinstance(item, Quarantined) for item in told(tmp_path))
    (folder / "full.jsonl").write_text("")  # a clone that has not all objects: another checkpoint may tell it
    assert not any(isinstance(item, UserTurn) for item in told(tmp_path))


def test_what_is_no_message_is_quarantined(tmp_path: Path) -> None:
    session(tmp_path / "0", [*FIRST, line("hook", 4), '{"type": "user", "content": 3}', "{torn"])
    items = told(tmp_path)
    assert [item.reason for item in items if isinstance(item, Quarantined)] == [
        "unknown_type", "a message without content", "not valid JSON",
    ]  # fmt: skip
    assert sum(isinstance(item, UserTurn) for item in items) == 1
