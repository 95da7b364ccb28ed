"""Codex's OTel events, as 0.163 sends them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cursorbench.sessions import otel
from cursorbench.sessions.items import (
    AgentTurn,
    Edit,
    Interrupt,
    Read,
    SessionStart,
    ToolEnd,
    ToolUse,
    UserTurn,
)
from cursorbench.sessions.seen import Seen

PATCH = "*** Begin Patch\n*** Update File: a.py\n@@\n-x = 1\n+x = 2\n*** End Patch"
REFUSED = 'exec_command failed: CreateProcess { message: "Rejected(\\"rejected by user\\")" }'
TOOL = {"tool_name": "exec_command", "call_id": "c1"}


def event(name: str, second: int = 0, **told: Any) -> dict[str, Any]:
    """One export of one event; names with two underscores stand for dots."""
    plain = {
        "event.name": f"codex.{name}",
        "event.timestamp": f"2026-11-29T05:38:{second:02d}.000Z",
        "conversation.id": "s",
        "app.version": "0.163.0",
        "model": "m",
        **told,
    }
    attributes = [
        {"key": key.replace("__", "."), "value": {"stringValue": one}} for key, one in plain.items()
    ]
    record = {
        "timeUnixNano": "1",
        "eventName": "event otel/src/events/session_telemetry.rs:1",
        "attributes": attributes,
    }
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "codex_exec"}}]}
    return {"resourceLogs": [{"resource": resource, "scopeLogs": [{"logRecords": [record]}]}]}


def read(path: Path, *exports: object) -> list[Read]:
    log = path / "logs.jsonl"
    log.write_text("".join(json.dumps(one) + "\n" for one in exports))
    return list(otel.read(log, Seen()))


def test_a_session(tmp_path: Path) -> None:
    items = read(
        tmp_path,
        event("conversation_starts", sandbox_policy="read-only"),
        event("user_prompt", 1, prompt="make a file", prompt_length="11"),
        event("api_request", 2, duration_ms="136", http__response__status_code="200"),
        event("tool_decision", 3, decision="approved", source="Config", **TOOL),
        event(
            "tool_result",
            4,
            arguments='{"cmd": "ls"}',
            success="true",
            output="Process exited with code 0\n",
            **TOOL,
        ),
        event("api_request", 5, duration_ms="9", http__response__status_code="500"),
    )
    start, asked, answered, called, ended = items
    assert isinstance(start, SessionStart)
    assert (start.session, start.agent, start.version) == ("s", "codex", "0.163.0")
    assert isinstance(asked, UserTurn)
    assert (asked.text, asked.automatic) == ("make a file", "")
    assert isinstance(answered, AgentTurn)
    assert (answered.model, answered.duration_ms, answered.text) == ("m", 136.0, "")
    assert isinstance(called, ToolUse)
    assert (called.id, called.name, called.arguments) == ("c1", "exec_command", '{"cmd": "ls"}')
    assert isinstance(ended, ToolEnd)
    assert (ended.id, ended.outcome) == ("c1", "ok")


def test_how_calls_end(tmp_path: Path) -> None:
    items = read(
        tmp_path,
        event(
            "tool_result", 1, arguments="{}", success="true", output="Process exited with code 1\n", **TOOL
        ),
        event("tool_decision", 2, decision="denied", source="User", **(TOOL | {"call_id": "c2"})),
        event(
            "tool_result", 3, arguments="{}", success="false", output=REFUSED, **(TOOL | {"call_id": "c2"})
        ),
        event("tool_decision", 4, decision="abort", source="User", **(TOOL | {"call_id": "c3"})),
        event(
            "tool_result",
            5,
            arguments="{}",
            success="false",
            output="no such tool",
            **(TOOL | {"call_id": "c4"}),
        ),
    )
    ends = [(item.id, item.outcome) for item in items if isinstance(item, ToolEnd)]
    assert ends == [("c1", "error"), ("c2", "rejected"), ("c3", "interrupted"), ("c4", "error")]
    assert [item.id for item in items if isinstance(item, Interrupt)] == ["c3"]


def test_patches_are_edits(tmp_path: Path) -> None:
    patch = {"tool_name": "apply_patch"}
    named, refused = json.dumps({"input": PATCH}), "patch rejected by user"
    items = read(
        tmp_path,
        event("tool_result", 1, arguments=PATCH, success="true", output="Success.", call_id="a", **patch),
        event("tool_result", 2, arguments=named, success="false", output=refused, call_id="b", **patch),
    )
    edits = [(item.id, item.path, item.status) for item in items if isinstance(item, Edit)]
    assert edits == [("a", "a.py", "applied"), ("b", "a.py", "rejected")]


def test_what_is_sent_again_is_told_once_and_a_hidden_prompt_has_no_words(tmp_path: Path) -> None:
    prompt = event("user_prompt", 1, prompt="[REDACTED]")
    items = read(tmp_path, prompt, prompt, event("sse_event", 2), event("something_new", 3))
    assert [type(item) for item in items] == [SessionStart, UserTurn]
    assert isinstance(items[1], UserTurn)
    assert items[1].text == ""
