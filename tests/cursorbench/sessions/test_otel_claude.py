"""Claude Code's OTel events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cursorbench.sessions import otel
from cursorbench.sessions.items import (
    AgentTurn,
    Commit,
    Edit,
    Feedback,
    Interrupt,
    Place,
    Quarantined,
    Read,
    SessionStart,
    ToolEnd,
    ToolUse,
    UserTurn,
)
from cursorbench.sessions.seen import Seen

AT = 1769335200000


def event(name: str, **told: Any) -> dict[str, Any]:
    """One export of one event; names with two underscores stand for dots."""
    plain = {"event.name": name, "event.timestamp": "2026-01-25T10:00:00.000Z", "session.id": "s", **told}
    attributes = [
        {
            "key": key.replace("__", "."),
            "value": {"stringValue": one} if isinstance(one, str) else {"intValue": str(one)},
        }
        for key, one in plain.items()
    ]
    record = {"timeUnixNano": "1", "body": {"stringValue": f"claude_code.{name}"}, "attributes": attributes}
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "claude-code"}}]}
    return {"resourceLogs": [{"resource": resource, "scopeLogs": [{"logRecords": [record]}]}]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "logs.jsonl"


def read(path: Path, *exports: object) -> list[Read]:
    path.write_text("".join(json.dumps(one) + "\n" for one in exports))
    return list(otel.read(path, Seen()))


def test_turns_and_calls(path: Path) -> None:
    write = '{"file_path": "a.py", "content": "x"}'
    bash = '{"full_command": "git commit", "git_commit_id": "c0ffee"}'
    items = read(
        path,
        event("user_prompt", prompt="go", prompt__id="p", app__version="2.1"),
        event("api_request", request_id="r", model="m", duration_ms=900, query_source="repl_main_thread"),
        event("api_request", request_id="q", model="m", query_source="compact"),
        event("assistant_response", request_id="r", model="m", response="on it"),
        event("tool_decision", tool_name="Write", tool_use_id="t", decision="accept", source="config"),
        event("tool_result", tool_name="Write", tool_use_id="t", success="true", tool_input=write),
        event("tool_result", tool_name="Bash", tool_use_id="b", success="true", tool_parameters=bash),
        event("tool_result", tool_name="Bash", tool_use_id="d", success="false", error_type="ShellError"),
    )
    places = [Place(str(path), n) for n in range(1, 9)]
    told: dict[str, Any] = {"session": "s", "at": AT}
    assert items == [
        SessionStart(place=places[0], agent="claude-code", version="2.1", **told),
        UserTurn(place=places[0], id="p", text="go", **told),
        AgentTurn(place=places[1], id="r", text="", model="m", duration_ms=900.0, **told),
        AgentTurn(place=places[3], id="r", text="on it", model="m", **told),
        ToolUse(place=places[5], id="t", name="Write", arguments=write, **told),
        ToolEnd(place=places[5], id="t", outcome="ok", **told),
        Edit(place=places[5], id="t", path="a.py", status="applied", **told),
        ToolUse(place=places[6], id="b", name="Bash", arguments=bash, **told),
        ToolEnd(place=places[6], id="b", outcome="ok", **told),
        Commit(place=places[6], id="b", sha="c0ffee", **told),
        ToolUse(place=places[7], id="d", name="Bash", **told),
        ToolEnd(place=places[7], id="d", outcome="error", text="ShellError", **told),
    ]


@pytest.mark.parametrize(
    ("source", "outcome", "text"),
    [
        ("user_reject", "rejected", ""),
        ("user_abort", "interrupted", ""),
        ("hook", "error", "refused by hook"),
    ],
)
def test_refusals(path: Path, source: str, outcome: Any, text: str) -> None:
    edit = '{"file_path": "a.py"}'
    decided = event(
        "tool_decision", tool_name="Edit", tool_use_id="t", decision="reject", source=source, tool_input=edit
    )
    place, told = Place(str(path), 1), {"session": "s", "at": AT, "id": "t", "place": Place(str(path), 1)}
    expected: list[Read] = [
        SessionStart(session="s", at=AT, place=place, agent="claude-code"),
        ToolUse(name="Edit", arguments=edit, **told),  # type: ignore[arg-type]
        ToolEnd(outcome=outcome, text=text, **told),  # type: ignore[arg-type]
        Edit(path="a.py", status="rejected", **told),  # type: ignore[arg-type]
    ]
    if outcome == "interrupted":
        expected.insert(3, Interrupt(during="tool", **told))  # type: ignore[arg-type]
    assert read(path, decided) == expected


def test_hidden_prompts_and_commands_are_turns_too(path: Path) -> None:
    items = read(
        path,
        event("user_prompt", prompt="<REDACTED>", prompt_length=7),
        event("user_prompt", prompt="/clear", command_name="clear"),
    )
    turns = [(one.text, one.automatic) for one in items if isinstance(one, UserTurn)]
    assert turns == [("", ""), ("/clear", "command")]


def test_cut_arguments_are_no_fault_of_the_agent(path: Path) -> None:
    items = read(path, event("tool_result", tool_name="Write", success="true", tool_input='{"file_path": "a'))
    assert [(one.arguments, one.invalid) for one in items if isinstance(one, ToolUse)] == [
        ('{"file_path": "a', "")
    ]


def test_half_a_character_costs_no_line(path: Path) -> None:
    prompt = json.dumps(event("user_prompt", prompt="cut X")).replace("cut X", r"cut \ud83d")
    path.write_text(prompt + json.dumps(event("user_prompt", prompt="two in a line")))
    turns = [one.text for one in otel.read(path, Seen()) if isinstance(one, UserTurn)]
    assert turns == ["cut \ufffd", "two in a line"]


def test_events_sent_twice_are_said_once(path: Path) -> None:
    sent = event("user_prompt", prompt="go", event__sequence=4)
    again = event("user_prompt", prompt="go", event__sequence=5)
    assert len([one for one in read(path, sent, sent, again) if isinstance(one, UserTurn)]) == 2


def test_the_survey(path: Path) -> None:
    asked = event("feedback_survey", event_type="appeared", appearance_id="a")
    answered = event(
        "feedback_survey", event_type="responded", appearance_id="a", survey_type="session", response="bad"
    )
    items = [one for one in read(path, asked, answered) if isinstance(one, Feedback)]
    assert [(one.id, one.name, one.value, one.target) for one in items] == [
        ("a", "claude_code.survey.session", "bad", "")
    ]


def test_known_and_unknown_events(path: Path) -> None:
    items = read(path, event("api_error", error="x"), event("managed_settings_resolved"), event("dream"))
    assert items == [Quarantined(Place(str(path), 3), "unknown_type")]


@pytest.mark.parametrize(
    ("source", "told"), [("compact", 0), ("Explore", 0), ("repl_main_thread", 1), ("sdk", 1)]
)
def test_texts_of_helpers_are_no_answers(path: Path, source: str, told: int) -> None:
    items = read(
        path,
        event("user_prompt", prompt="go"),
        event("assistant_response", request_id="r", model="m", response="a summary", query_source=source),
    )
    assert [one.text for one in items if isinstance(one, AgentTurn)] == ["a summary"] * told
