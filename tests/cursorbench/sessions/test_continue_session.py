"""Sessions of Continue's editor extensions and command line. Invented sessions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cursorbench.sessions import continue_session, kinds
from cursorbench.sessions.items import (
    AgentTurn,
    Edit,
    Quarantined,
    Read,
    SessionStart,
    ToolEnd,
    ToolUse,
    UserTurn,
)
from cursorbench.sessions.seen import Seen
from tests.cursorbench.sessions.garbage import FEW, damaged, retyped

SESSION = "11d13161-afac-4641-ac49-bf22172cf7d7"
SKIPPED = "The user skipped the tool call.\nIf the tool call is optional or non-critical, skip it."


def call(n: int, name: str, **given: Any) -> dict[str, Any]:
    asked = {"name": name, "arguments": json.dumps(given)}
    return {"id": f"call_000{n}", "type": "function", "function": asked}


def state(called: dict[str, Any], status: str, *output: str) -> dict[str, Any]:
    shown = [{"content": text, "name": "Tool Result", "description": "d"} for text in output]
    return {"toolCallId": called["id"], "toolCall": called, "status": status, "output": shown}


def said(role: str, content: Any, **more: Any) -> dict[str, Any]:
    inner = {name: more.pop(name) for name in ("toolCalls", "usage", "toolCallId") if name in more}
    return {"message": {"role": role, "content": content, **inner}, "contextItems": [], **more}


CALLS = [
    call(1, "Edit", file_path="/w/a.py", old_string="1", new_string="2"),
    call(2, "builtin_create_new_file", filepath="/w/b.py", contents="x\n"),
    call(3, "Bash", command="rm"),
    call(4, "Bash", cmd=1),
    call(5, "Bash", command="curl"),
    call(6, "Bash", command="wait"),
]
HISTORY = [
    said("system", "You are."),
    said("user", [{"type": "text", "text": "fix it"}]),
    said(
        "assistant",
        "I do.",
        toolCalls=CALLS,
        usage={"model": "m"},
        reasoning={"active": False, "text": "Hm."},
        toolCallStates=[
            state(CALLS[0], "done", "Successfully edited /w/a.py"),
            state(CALLS[1], "canceled", SKIPPED),
            state(CALLS[2], "canceled", "Permission denied by user"),
            state(CALLS[3], "errored", 'Required parameter "command" missing for tool "Bash"'),
            state(CALLS[4], "canceled", "Command blocked by security policy"),
            state(CALLS[5], "calling"),
        ],
    ),
    said("tool", "Successfully edited /w/a.py", toolCallId="call_0001"),
    said("assistant", "Done.", usage={"model": "m"}, conversationSummary="They fix it."),
    said("user", "that is wrong"),
    {"contextItems": []},
]
DOCUMENT = {"sessionId": SESSION, "title": "Fixing", "workspaceDirectory": "/w", "history": HISTORY}


def items(path: Path) -> list[Read]:
    found = list(kinds.read(path))
    assert {kind for kind, _ in found} == {"continue-session"}
    return [item for _, item in found]


def test_a_session_by_hand(tmp_path: Path) -> None:
    listed = [{"sessionId": SESSION, "title": "Fixing", "dateCreated": "1795943008773"}]
    (tmp_path / "sessions.json").write_text(json.dumps(listed))
    for name in (f"{SESSION}.json", "copy.json"):
        (tmp_path / name).write_text(json.dumps(DOCUMENT, indent=2))
    found = items(tmp_path)
    [start] = [item for item in found if isinstance(item, SessionStart)]
    assert (start.session, start.agent, start.cwd, start.at) == (SESSION, "continue", "/w", 1795943008773)
    assert [(item.text, item.automatic) for item in found if isinstance(item, UserTurn)] == [
        ("fix it", ""),
        ("They fix it.", "continuation"),
        ("that is wrong", ""),
    ]
    assert [(one.text, one.thinking, one.model) for one in found if isinstance(one, AgentTurn)] == [
        ("I do.", "Hm.", "m"),
        ("Done.", "", "m"),
    ]
    assert len([one for one in found if isinstance(one, ToolUse)]) == 6
    ends = [(one.id[-1], one.outcome) for one in found if isinstance(one, ToolEnd)]
    assert ends == [("1", "ok"), ("2", "rejected"), ("3", "rejected"), ("4", "error"), ("5", "error")]
    changes = [one for one in found if isinstance(one, Edit) and one.status != "proposed"]
    assert [(one.path, one.status, one.before, one.after) for one in changes] == [
        ("/w/a.py", "applied", "1", "2"),
        ("/w/b.py", "rejected", "", "x\n"),
    ]
    [bad, _] = [one for one in found if isinstance(one, Quarantined)]  # each copy has it
    assert bad.reason == "a message without content or with an unknown role"


@FEW
@given(st.data())
def test_wrong_types_and_damaged_bytes(tmp_path: Path, data: st.DataObject) -> None:
    raw = json.dumps(retyped(DOCUMENT, data)).encode()
    path = tmp_path / "a.json"
    path.write_bytes(damaged(raw, data, changes=2, least=len(raw) // 2))
    assert all(repr(one).encode(errors="replace") for one in continue_session.read(path, Seen()))


def test_the_model_of_an_editors_session(tmp_path: Path) -> None:
    """It stands with the prompt: it was not told."""
    options = {"model": "m:16b", "temperature": 0.5}
    prompts = [{"modelTitle": "first"}, {"modelTitle": "M", "completionOptions": options}]
    history = [
        said("user", "fix it"),
        said("assistant", "Done.", promptLogs=prompts),
        said("user", "and that"),
        said("assistant", "Too.", promptLogs=[{"modelTitle": "M", "prompt": "p"}]),
        said("assistant", "So.", promptLogs=[], usage={"model": "u"}),
        said("assistant", "Who?"),
    ]
    path = tmp_path / f"{SESSION}.json"
    path.write_text(json.dumps({**DOCUMENT, "history": history}))
    models = [one.model for one in items(path) if isinstance(one, AgentTurn)]
    assert models == ["m:16b", "M", "u", ""]
