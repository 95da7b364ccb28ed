"""Qwen Code's chats: Gemini's messages in records like Claude Code's. Invented sessions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cursorbench.sessions import kinds
from cursorbench.sessions.invalid_calls import fault_of
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

SESSION = "52c73acd-bbab-4b22-a917-47b93035804f"
NO = "[Operation Cancelled] Reason: User did not allow tool call"
STOP = "[Operation Cancelled] Reason: User intentionally cancelled. Stop and await further instructions."
WHOLE = {"filePath": "/w/a.py", "originalContent": "x = 1\n", "newContent": "x = 2\n"}
CUT = {**WHOLE, "truncatedForSession": True}
CHANGE = {"file_path": "/w/a.py", "old_string": "1", "new_string": "2"}


def record(n: int, kind: str, *parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    about = {"uuid": f"u{n}", "sessionId": SESSION, "timestamp": f"2026-11-29T05:00:{n:02}.000Z"}
    about |= {"type": kind, "cwd": "/w", "version": "0.24.4", "gitBranch": "main"}
    message = {"message": {"role": "user" if kind != "assistant" else "model", "parts": list(parts)}}
    return about | (message if parts else {}) | more


def call(n: int, name: str, args: dict[str, Any]) -> dict[str, Any]:
    return {"functionCall": {"id": f"c{n}", "name": name, "args": args}}


def ended(n: int, call: int, status: str, given: str, shown: object = "") -> dict[str, Any]:
    response = {"output" if status == "success" else "error": given}
    part = {"functionResponse": {"id": f"c{call}", "name": "t", "response": response}}
    return record(n, "tool_result", part, toolCallResult={"status": status, "resultDisplay": shown})


def system(n: int, subtype: str, payload: dict[str, Any]) -> dict[str, Any]:
    return record(n, "system", subtype=subtype, systemPayload=payload)


RECORDS = [
    system(0, "ui_telemetry", {"uiEvent": {}}),
    record(1, "user", {"text": "fix it"}, provenance="real_user"),
    record(
        2,
        "assistant",
        {"text": "Hm.", "thought": True},
        {"text": "I do."},
        call(1, "edit", CHANGE),
        call(2, "write_file", {"file_path": "/w/b.py", "content": "y"}),
        call(3, "edit", CHANGE),
        model="m",
    ),
    ended(3, 1, "success", "The file has been updated.", WHOLE),
    ended(4, 2, "cancelled", NO, {**WHOLE, "filePath": "/w/b.py"}),
    ended(5, 3, "success", "The file has been updated.", CUT),
    record(6, "user", {"text": "look at it again, too"}, subtype="mid_turn_user_message"),
    record(7, "assistant", call(4, "run_shell_command", {"command": "make"}), call(5, "bake", {}), model="m"),
    ended(8, 4, "cancelled", STOP),
    ended(9, 5, "error", 'Tool "bake" not found in registry. Tools must use the exact names.'),
    record(10, "user", {"text": "A task has finished."}, subtype="notification", provenance="system"),
    system(11, "slash_command", {"phase": "invocation", "rawCommand": "/stats"}),
    system(12, "slash_command", {"phase": "result", "rawCommand": "/stats"}),
    record(13, "user", {"text": "still wrong"}),
    record(14, "poem", {"text": "x"}),
]


def items(path: Path, records: list[dict[str, Any]]) -> list[Read]:
    chats = path / "projects" / "-w" / "chats"
    chats.mkdir(parents=True)
    for name in ("a.jsonl", "copy.jsonl"):
        (chats / name).write_text("".join(json.dumps(one) + "\n" for one in records))
    assert {kinds.kind_of(one) for one in chats.iterdir()} == {"qwen-code"}, "not Claude Code's"
    return [item for _, item in kinds.read(path)]


def test_a_chat_by_hand(tmp_path: Path) -> None:
    found = items(tmp_path, RECORDS)
    [start] = [item for item in found if isinstance(item, SessionStart)]
    assert (start.session, start.agent, start.version, start.cwd) == (SESSION, "qwen-code", "0.24.4", "/w")
    users = [(item.text, item.automatic) for item in found if isinstance(item, UserTurn)]
    assert users == [
        ("fix it", ""),
        ("look at it again, too", ""),
        ("A task has finished.", "meta"),
        ("/stats", "command"),
        ("still wrong", ""),
    ]
    said = [(item.text, item.thinking, item.model) for item in found if isinstance(item, AgentTurn)]
    assert said == [("I do.", "Hm.", "m")]
    assert [item.id for item in found if isinstance(item, ToolUse)] == ["c1", "c2", "c3", "c4", "c5"]
    ends = [item for item in found if isinstance(item, ToolEnd)]
    assert [end.outcome for end in ends] == ["ok", "rejected", "ok", "interrupted", "error"]
    assert fault_of("qwen-code", "qwen-code", "bake", "error", ends[-1].text) == "unknown_tool"
    changes = [item for item in found if isinstance(item, Edit) and item.status != "proposed"]
    assert [(one.id, one.path, one.status, one.before, one.after) for one in changes] == [
        ("c1", "/w/a.py", "applied", "x = 1\n", "x = 2\n"),
        ("c2", "/w/b.py", "rejected", None, "y"),
        ("c3", "/w/a.py", "applied", "1", "2"),  # the whole file was cut in the chat
    ]
    assert [item.reason for item in found if isinstance(item, Quarantined)] == ["unknown_type"]


def test_a_command_that_failed_is_an_error_whatever_its_call_says(tmp_path: Path) -> None:
    """Up to 0.14: the call of a command that ran ended in `success`."""

    def ran(n: int, given: str, name: str = "run_shell_command") -> dict[str, Any]:
        part = {"functionResponse": {"id": f"c{n}", "name": name, "response": {"output": given}}}
        return record(n, "tool_result", part, toolCallResult={"status": "success"})

    told = "Command: make\nDirectory: (root)\nOutput: no rule\nError: (none)\nExit Code: {}\nSignal: (none)\n"
    calls = [call(n, "run_shell_command", {"command": "make"}) for n in range(1, 5)]
    found = items(
        tmp_path,
        [
            record(0, "assistant", *calls, call(5, "read_file", {"path": "log"})),
            ran(1, told.format(0)),
            ran(2, told.format(255)),
            ran(3, told.format("(none)")),
            ran(4, "Exit Code: 3\n" + told.format(0)),
            ran(5, told.format(2), "read_file"),
        ],
    )
    assert [one.outcome for one in found if isinstance(one, ToolEnd)] == ["ok", "error", "ok", "ok", "ok"]


def test_what_the_editor_has_open_and_a_no_there(tmp_path: Path) -> None:
    """The extension for VS Code writes files before a person's words, and has words of its own for a no."""
    found = items(
        tmp_path,
        [
            record(0, "user", {"text": "c:\\w\\a.py#3-4\nUntitled-1\n\nfix it"}),
            record(1, "user", {"text": "/w/src/a.py\n\nand\n\nthis"}),
            record(2, "user", {"text": "/w/src/a.py\nis wrong\n\nfix it"}),
            record(3, "user", {"text": "/bake a cake\n\nwith cream"}),
            record(4, "assistant", call(1, "edit", CHANGE), call(2, "edit", CHANGE)),
            ended(5, 1, "error", 'Tool "edit" was canceled by the user.'),
            ended(6, 2, "error", "Edit error: Failed to edit"),
        ],
    )
    assert [(one.text, one.automatic) for one in found if isinstance(one, UserTurn)] == [
        ("c:\\w\\a.py#3-4\nUntitled-1", "meta"), ("fix it", ""), ("/w/src/a.py", "meta"), ("and\n\nthis", ""),
        ("/w/src/a.py\nis wrong\n\nfix it", ""), ("/bake a cake\n\nwith cream", ""),
    ]  # fmt: skip
    assert [one.outcome for one in found if isinstance(one, ToolEnd)] == ["rejected", "error"]
    assert [one.id for one in found if isinstance(one, Edit) and one.status == "rejected"] == ["c1"]


def test_calls_that_the_tools_own_checks_refuse_are_broken() -> None:
    for said in (
        'Parameter "questions" must be an array.',
        'Question 1: "options" must contain between 2 and 4 options.',
        'Question 2, Option 1: "label" must be a non-empty string.',
        "Timeout cannot exceed 600000ms (10 minutes).",
    ):
        assert fault_of("qwen-code", "qwen-code", "t", "error", said) == "schema"
    assert not fault_of("qwen-code", "qwen-code", "t", "error", "Edit error: it must be there")
