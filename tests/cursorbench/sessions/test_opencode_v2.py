"""Exports of OpenCode 2, whose messages are one table each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cursorbench.sessions import opencode
from cursorbench.sessions.items import (
    AgentTurn,
    Edit,
    Interrupt,
    Quarantined,
    Read,
    SessionStart,
    ToolEnd,
    ToolUse,
    UserTurn,
)
from cursorbench.sessions.seen import Seen

AT = 1790000000000
INFO = {"id": "ses_1", "projectID": "p", "location": {"directory": "/w"}, "time": {"created": AT}}
PATCH = "--- a\n+++ a\n@@ -1 +1 @@\n-one\n+two\n"
MODEL = {"id": "m", "providerID": "p"}


def message(kind: str, number: int, **fields: Any) -> dict[str, Any]:
    return {"id": f"msg_{number}", "type": kind, "time": {"created": AT + number}, **fields}


def agent(number: int, *content: dict[str, Any], **fields: Any) -> dict[str, Any]:
    time = {"created": AT + number, "completed": AT + number + 500}
    return message("assistant", number, agent="build", model=MODEL, content=content, **fields) | {
        "time": time
    }


def tool(name: str, call: str, status: str = "completed", **state: Any) -> dict[str, Any]:
    time = {"created": AT + 5, "ran": AT + 6, "completed": AT + 9}
    if status == "error":
        state["error"] = {"type": "aborted", "message": state["error"]}
    return {"type": "tool", "id": call, "name": name, "time": time, "state": {"status": status, **state}}


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "export.json"


def read(path: Path, *messages: dict[str, Any], seen: Seen | None = None) -> list[Read]:
    path.write_text(json.dumps({"info": INFO, "messages": messages}))
    assert opencode.recognises(path, path.read_bytes())
    return list(opencode.read(path, seen or Seen()))


def test_turns_calls_and_an_applied_edit(path: Path) -> None:
    edit = {"path": "src/a", "oldString": "one", "newString": "two"}
    done: dict[str, Any] = {
        "content": [said("Edited src/a (1 replacement)")],
        "metadata": {"files": [{"file": "src/a", "patch": PATCH}]},
    }
    failed: dict[str, Any] = {"content": [said("no such test")], "metadata": {"exit": 2, "truncated": False}}
    lines = [
        message("agent-switched", 1, agent="build"),
        message("system", 2, text="You are OpenCode."),
        message("user", 3, text="make it two"),
        agent(
            4,
            {"type": "reasoning", "text": "hm", "time": {"created": AT + 5}},
            tool("edit", "call_1", input=edit, **done),
            tool("shell", "call_2", input={"command": "pytest"}, **failed),
            said("Done."),
            snapshot={"start": "x", "end": "y", "files": ["app/src/a", "log"]},
        ),
        message("idle", 5, outcome="succeeded"),
        message("user", 6, text="no, three"),
    ]
    start, *found = read(path, *lines)
    assert isinstance(start, SessionStart)
    assert (start.session, start.cwd, start.at) == ("ses_1", "/w", AT)
    turns = [(one.text, one.automatic, one.at) for one in found if isinstance(one, UserTurn)]
    assert turns == [("make it two", "", AT + 3), ("no, three", "", AT + 6)]
    answers = [one for one in found if isinstance(one, AgentTurn)]
    assert [(one.text, one.thinking, one.model, one.duration_ms) for one in answers] == [
        ("", "hm", "m", None),
        ("Done.", "", "m", 495.0),
    ]
    assert [(one.id, one.name, one.at) for one in found if isinstance(one, ToolUse)] == [
        ("call_1", "edit", AT + 6),
        ("call_2", "shell", AT + 6),
    ]
    ends = [(one.id, one.outcome, one.text, one.at) for one in found if isinstance(one, ToolEnd)]
    assert ends == [
        ("call_1", "ok", "Edited src/a (1 replacement)", AT + 9),
        ("call_2", "error", "no such test", AT + 9),
    ]
    edits = [(one.path, one.status, one.before, one.diff) for one in found if isinstance(one, Edit)]
    assert edits == [
        ("src/a", "proposed", "one", PATCH),
        ("src/a", "applied", "one", PATCH),
        ("log", "applied", None, None),
    ]
    assert not [one for one in found if isinstance(one, Quarantined)]


def test_a_call_that_is_still_being_written_is_no_broken_one(path: Path) -> None:
    found = read(path, message("user", 1, text="go"), agent(2, tool("edit", "c", "streaming", input='{"pa')))
    uses = [(one.id, one.arguments, one.invalid) for one in found if isinstance(one, ToolUse)]
    assert uses == [("c", "", "")]


@pytest.mark.parametrize(
    ("words", "outcome", "stops"),
    [
        ("The user declined this tool call", "rejected", 0),
        ("The user dismissed this question", "rejected", 0),
        ("Tool execution interrupted", "interrupted", 1),
    ],
)
def test_refusals_and_stops(path: Path, words: str, outcome: str, stops: int) -> None:
    """A no to a call ends the turn as a stop does."""
    call = tool("write", "call_1", "error", input={"path": "a", "content": "x"}, error=words)
    aborted = {"type": "aborted", "message": "Step interrupted"}
    found = read(path, message("user", 1, text="bake"), agent(2, call, error=aborted))
    assert [one.outcome for one in found if isinstance(one, ToolEnd)] == [outcome]
    assert len([one for one in found if isinstance(one, Interrupt)]) == stops


def test_what_no_person_wrote(path: Path) -> None:
    found = read(
        path,
        message("synthetic", 1, text="The command finished."),
        message("skill", 2, skill="s", name="s", text="How to bake."),
        message("shell", 3, shellID="sh", command="ls", status="exited", exit=0),
        message("compaction", 4, status="completed", reason="auto", summary="So far.", recent=""),
        message("compaction", 5, status="failed", reason="auto", error={"type": "x", "message": "y"}),
        message("not-known", 6),
    )
    assert [(one.text, one.automatic) for one in found if isinstance(one, UserTurn)] == [
        ("The command finished.", "meta"),
        ("How to bake.", "meta"),
        ("ls", "command"),
        ("So far.", "continuation"),
    ]
    assert len([one for one in found if isinstance(one, Quarantined)]) == 1


def test_a_longer_export_tells_only_what_is_new(path: Path) -> None:
    seen, first = Seen(), [message("user", 1, text="one"), agent(2, said("Yes."))]
    assert len(read(path, *first, seen=seen)) == 3
    assert len(read(path, *first, message("user", 3, text="two"), seen=seen)) == 1


@pytest.mark.parametrize("kind", [{}, [], None, 7])
def test_a_type_that_is_none_spoils_no_other_message(path: Path, kind: object) -> None:
    """Tables cannot be looked up in a set."""
    found = read(path, message("user", 1, text="one"), message("user", 2) | {"type": kind})
    assert [type(one) for one in found][-2:] == [UserTurn, Quarantined]
