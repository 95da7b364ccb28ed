"""Conversations of OpenHands: events of its SDK, a file each or in a list. Invented conversations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cursorbench.sessions import kinds, openhands
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
from tests.cursorbench.sessions.garbage import FEW, damaged, retyped

SESSION = "11111111-2222-3333-4444-555555555555"
STATE = {
    "id": SESSION,
    "agent": {"llm": {"model": "m"}, "kind": "Agent"},
    "workspace": {"working_dir": "/w", "kind": "LocalWorkspace"},
    "execution_status": "paused",
}


def event(n: int, kind: str, source: str = "agent", **more: Any) -> dict[str, Any]:
    about = {"id": f"{n:08}-aaaa-bbbb", "timestamp": f"2026-06-16T05:39:{n:02}.8", "source": source}
    return about | {"kind": kind, **more}


def texts(*words: str) -> list[dict[str, Any]]:
    return [{"cache_prompt": False, "type": "text", "text": word} for word in words]


def message(n: int, source: str, words: str, **more: Any) -> dict[str, Any]:
    said = {"role": "user" if source == "user" else "assistant", "content": texts(words)}
    return event(n, "MessageEvent", source, llm_message=said, **more)


def action(n: int, call: int, tool: str, thought: str = "", **given: Any) -> dict[str, Any]:
    asked = {"id": f"call_{call}", "name": tool, "arguments": json.dumps(given), "origin": "completion"}
    about = {"thought": texts(thought) if thought else [], "action": {**given, "kind": "XAction"}}
    return event(n, "ActionEvent", tool_name=tool, tool_call_id=f"call_{call}", tool_call=asked, **about)


def ended(n: int, call: int, kind: str = "ObservationEvent", **more: Any) -> dict[str, Any]:
    return event(n, kind, "environment", tool_name="t", tool_call_id=f"call_{call}", action_id="x", **more)


def saw(words: str, **more: Any) -> dict[str, Any]:
    return {"content": texts(words), "is_error": False, "kind": "XObservation", **more}


EDIT = {"command": "str_replace", "path": "/w/a.py", "old_str": "1", "new_str": "2"}
EVENTS = [
    event(0, "SystemPromptEvent", system_prompt={"type": "text", "text": "You are."}, tools=[]),
    message(1, "user", "fix it"),
    action(2, 1, "file_editor", "I do.", **EDIT),
    action(3, 2, "file_editor", command="create", path="/w/b.py", file_text="y\n"),
    action(4, 3, "terminal", command="make"),
    ended(5, 1, observation=saw("edited", command="str_replace", path="/w/a.py", old_content="x = 1\n",
                                new_content="x = 2\n")),
    ended(6, 2, "UserRejectObservation", rejection_reason="not there", rejection_source="user"),
    ended(7, 3, observation=saw("no rule", exit_code=2)),
    action(8, 4, "bake"),
    ended(9, 4, "AgentErrorEvent", error="Tool 'bake' not found."),
    action(10, 5, "terminal", command="rm"),
    ended(11, 5, "UserRejectObservation", rejection_reason="a rule", rejection_source="hook"),
    action(12, 6, "terminal", command="sleep 9"),
    event(13, "InterruptEvent", "user"),
    event(14, "Condensation", "environment", summary="They fix it.", forgotten_event_ids=[]),
    message(15, "user", "from your parent", sender="planner"),
    message(16, "user", "go on"),
    action(17, 7, "finish", "So.", message="I am done."),
    ended(18, 7, observation=saw("I am done.")),
    event(19, "PauseEvent", "user"),
    event(20, "PoemEvent"),
]  # fmt: skip


def items(path: Path) -> list[Read]:
    found = list(kinds.read(path))
    assert {kind for kind, _ in found} == {"openhands"}
    return [item for _, item in found]


def folder(path: Path) -> Path:
    (events := path / "conversations" / SESSION / "events").mkdir(parents=True)
    (events.parent / "base_state.json").write_text(json.dumps(STATE))
    for n, one in enumerate(EVENTS):
        (events / f"event-{n:05}-{one['id']}.json").write_text(json.dumps(one))
    return events


def test_a_folder_of_events_is_one_log(tmp_path: Path) -> None:
    events = folder(tmp_path)
    found = items(tmp_path)
    [start] = [item for item in found if isinstance(item, SessionStart)]
    assert (start.session, start.agent, start.cwd) == (SESSION, "openhands", "/w")
    assert [(item.text, item.automatic) for item in found if isinstance(item, UserTurn)] == [
        ("fix it", ""),
        ("They fix it.", "continuation"),
        ("from your parent", "sub_agent"),
        ("go on", ""),
    ]
    said = [(item.text, item.model) for item in found if isinstance(item, AgentTurn)]
    assert said == [("I do.", "m"), ("So.\nI am done.", "m")]
    assert len([item for item in found if isinstance(item, ToolUse)]) == 7
    ends = [(item.id, item.outcome, item.reason) for item in found if isinstance(item, ToolEnd)]
    assert ends == [
        ("call_1", "ok", ""),
        ("call_2", "rejected", "not there"),
        ("call_3", "error", ""),
        ("call_4", "error", ""),
        ("call_5", "error", ""),
        ("call_7", "ok", ""),
    ]
    changes = [item for item in found if isinstance(item, Edit) and item.status != "proposed"]
    assert [(one.id, one.path, one.status, one.before, one.after) for one in changes] == [
        ("call_1", "/w/a.py", "applied", "x = 1\n", "x = 2\n"),
        ("call_2", "/w/b.py", "rejected", "", "y\n"),
    ]
    assert [item.during for item in found if isinstance(item, Interrupt)] == ["tool", "answer"]
    [bad] = [item for item in found if isinstance(item, Quarantined)]
    assert (bad.reason, Path(bad.place.file).name[:11]) == ("unknown_type", "event-00020")
    assert len(items(next(events.iterdir()))) == len(found), "named by one of its files"


def test_a_list_of_events_is_the_same_but_for_the_state(tmp_path: Path) -> None:
    path = tmp_path / "events.json"
    lines = "\n".join(map(json.dumps, EVENTS))
    for text in (json.dumps(EVENTS, indent=1), json.dumps({"items": EVENTS}), lines):
        path.write_text(text)
        found = items(path)
        [start] = [item for item in found if isinstance(item, SessionStart)]
        assert (start.session, start.cwd) == (EVENTS[0]["id"], "")
        assert len([item for item in found if isinstance(item, ToolEnd)]) == 6


@FEW
@given(st.data())
def test_wrong_types_and_damaged_bytes(tmp_path: Path, data: st.DataObject) -> None:
    raw = json.dumps(retyped(EVENTS, data)).encode()
    path = tmp_path / "a.json"
    path.write_bytes(damaged(raw, data, changes=2, least=len(raw) // 2))
    assert all(repr(one).encode(errors="replace") for one in openhands.read(path, Seen()))
