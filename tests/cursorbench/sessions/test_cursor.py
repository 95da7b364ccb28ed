"""Cursor's transcripts: messages without ids, and the ends of turns. Invented sessions."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursorbench.sessions import cursor, kinds
from cursorbench.sessions.items import (
    AgentTurn,
    Edit,
    Interrupt,
    Quarantined,
    Read,
    SessionStart,
    ToolUse,
    UserTurn,
)
from cursorbench.sessions.seen import Seen
from tests.cursorbench.sessions.garbage import FEW, damaged, retyped

SESSION = "b41ca925-a315-4d4f-beb8-4869fb9fe926"
STAMP = "<timestamp>Tuesday, Jul 28, 2026, {} (UTC+5:30)</timestamp>\n"


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def line(role: str, *content: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "message": {"content": list(content)}}


def asked(words: str, time: str = "12:06 AM") -> dict[str, Any]:
    return line("user", text(STAMP.format(time) + f"<user_query>\n{words}\n</user_query>"))


def call(name: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "name": name, "input": given}


ENDED = {"type": "turn_ended", "status": "success"}
LINES = [
    asked("fix it"),
    line("assistant", text("I do.\n\n[REDACTED]"), call("Read", path="/w/a.py")),
    line("assistant", text("[REDACTED]"), call("StrReplace", path="/w/a.py", old_string="1", new_string="2")),
    line("assistant", text("[REDACTED]")),
    ENDED,
    asked("continue", "1:10 PM"),
    line("assistant", call("Write", path="/w/b.py", contents="x\n"), call("Shell", command="make")),
    asked("continue", "1:10 PM"),
    {"type": "turn_ended", "status": "error", "error": "User aborted request"},
    asked("continue", "1:12 PM"),
    line("assistant", text("Done.")),
    {"type": "turn_ended", "status": "aborted"},
    line("user", text("<task-notification>x</task-notification>")),
    {"type": "poem"},
]


def items(path: Path) -> list[Read]:
    found = list(kinds.read(path))
    assert {kind for kind, _ in found} == {"cursor"}
    return [item for _, item in found]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (made := tmp_path / "w" / "agent-transcripts" / SESSION).mkdir(parents=True)
    return made


def write(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))


def test_a_transcript_by_hand(folder: Path) -> None:
    write(folder / f"{SESSION}.jsonl", LINES)
    found = items(folder)
    [start] = [item for item in found if isinstance(item, SessionStart)]
    assert (start.session, start.agent, start.parent) == (SESSION, "cursor", "")
    whole = [one for one in found if isinstance(one, UserTurn)]
    assert [(one.text, one.automatic) for one in whole if not one.text.startswith("<timestamp>")] == [
        ("fix it", ""),
        ("continue", ""),
        ("continue", ""),
        ("<task-notification>x</task-notification>", "meta"),
    ]
    again = [one for one in whole if one.automatic == "continuation"]
    assert len(again) == 1, "said once more in the same turn: what the client does behind a summary"
    assert start.at == int(datetime(2026, 7, 27, 18, 36, tzinfo=UTC).timestamp() * 1000)
    assert [one.text for one in found if isinstance(one, AgentTurn)] == ["I do.", "Done."]
    calls = [(one.id, one.name) for one in found if isinstance(one, ToolUse)]
    assert calls == [("2.1", "Read"), ("3.1", "StrReplace"), ("7.1", "Write"), ("7.2", "Shell")]
    changes = [(one.id, one.path, one.status) for one in found if isinstance(one, Edit)]
    assert changes == [("3.1", "/w/a.py", "proposed"), ("7.1", "/w/b.py", "proposed")]
    assert [one.during for one in found if isinstance(one, Interrupt)] == ["tool", "answer"]
    assert [one.reason for one in found if isinstance(one, Quarantined)] == ["unknown_type"]


def test_a_sub_agents_transcript_and_copies(folder: Path) -> None:
    (folder / "subagents").mkdir()
    write(folder / "subagents" / "child.jsonl", [line("user", text("look for it")), LINES[10]])
    write(folder / f"{SESSION}.jsonl", LINES)
    (folder / "copy").mkdir()
    write(folder / "copy" / f"{SESSION}.jsonl", LINES[:7])
    found = items(folder)
    [child] = [one for one in found if isinstance(one, SessionStart) and one.parent]
    assert (child.session, child.parent) == ("child", SESSION)
    assert [one.automatic for one in found if isinstance(one, UserTurn) and one.session == "child"] == [
        "sub_agent"
    ]
    assert len([one for one in found if isinstance(one, ToolUse)]) == 4
    assert len([one for one in found if isinstance(one, Interrupt)]) == 2


def test_without_ends_of_turns_nothing_tells_a_repetition(folder: Path) -> None:
    write(folder / "x.jsonl", [asked("continue"), LINES[1], asked("continue"), LINES[10]])
    turns = [one for one in items(folder) if isinstance(one, UserTurn) and not one.automatic]
    assert [one.text for one in turns] == ["continue", "continue"]


def test_entires_copy_of_one_is_left_to_entire(tmp_path: Path) -> None:
    """Its name is no session's, and what calls gave stands in the transcript beside it."""
    write(tmp_path / "full.jsonl", LINES)
    assert kinds.kind_of(tmp_path / "full.jsonl") is None


@FEW
@given(st.data())
def test_wrong_types_and_damaged_bytes(tmp_path: Path, data: st.DataObject) -> None:
    raw = "\n".join(map(json.dumps, retyped(LINES, data))).encode()
    path = tmp_path / "a.jsonl"
    path.write_bytes(damaged(raw, data, changes=2, least=len(raw) // 2))
    assert all(repr(one).encode(errors="replace") for one in cursor.read(path, Seen()))
