"""A person's no to a tool call in logs of requests, by the words of the client."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cursorbench.sessions import kinds
from cursorbench.sessions.items import Edit, Read, ToolEnd

CLAUDE = "The user doesn't want to proceed with this tool use. The tool use was rejected"


def ended(tmp_path: Path, text: str, *, error: bool) -> list[Read]:
    edit = {"file_path": "a", "old_string": "x", "new_string": "y"}
    call = {"type": "tool_use", "id": "toolu_12345678", "name": "Edit", "input": edit}
    result = {"type": "tool_result", "tool_use_id": "toolu_12345678", "content": text, "is_error": error}
    messages = [
        {"role": "user", "content": "fix"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps({"request": {"model": "m", "messages": messages}, "response": "sorry"}) + "\n")
    return [item for _, item in kinds.read(path) if isinstance(item, ToolEnd | Edit)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"{CLAUDE}. STOP what you are doing", ""),
        (f"{CLAUDE}. To tell you how to proceed, the user said:\nnot there", "not there"),
        ("The user rejected permission to use this specific tool call.", ""),
        (
            "The user rejected permission to use this specific tool call "
            "with the following feedback: smaller",
            "smaller",
        ),
        ("The user denied this operation.", ""),
        (
            "The user denied this operation and provided the following feedback:\n"
            "<feedback>\nno\n</feedback>",
            "no",
        ),
        ("exec command rejected by user", ""),
        ('exec_command failed: CreateProcess { message: "Rejected(\\"rejected by user\\")" }', ""),
        ("[Operation Cancelled] Reason: User did not allow tool call", ""),
        ('{"error":"[Operation Cancelled] Reason: User denied execution."}', ""),
        ("The user has declined to run this tool. DO NOT attempt to call this tool again. If there", ""),
        ("Permission denied by user", ""),
        ('Tool "edit" was canceled by the user.', ""),
        ("The user skipped the tool call.\nIf the tool call is optional or non-critical, skip it.", ""),
        ("The user chose to skip the tool call, they want to proceed without running it", ""),
    ],
)
@pytest.mark.parametrize("error", [True, False])
def test_what_clients_say_of_a_persons_no(tmp_path: Path, text: str, reason: str, error: bool) -> None:
    proposed, end, edit = ended(tmp_path, text, error=error)
    assert isinstance(end, ToolEnd)
    assert (end.outcome, end.reason) == ("rejected", reason)
    assert [one.status for one in (proposed, edit) if isinstance(one, Edit)] == ["proposed", "rejected"]


@pytest.mark.parametrize(
    ("text", "error", "outcome"),
    [
        ("1: The user doesn't want to proceed with this tool use.", False, "ok"),
        ("patch failed", True, "error"),
        ("rejected by user-agent rules", True, "error"),
        (
            '1: exec_command failed: CreateProcess { message: "Rejected(\\"rejected by user\\")" }',
            False,
            "ok",
        ),
        ("", False, "ok"),
        ("Permission denied by user agent", True, "error"),
    ],
)
def test_what_only_looks_like_it(tmp_path: Path, text: str, error: bool, outcome: str) -> None:
    _, end, *_ = ended(tmp_path, text, error=error)
    assert isinstance(end, ToolEnd)
    assert end.outcome == outcome


@pytest.mark.parametrize(
    "text",
    [
        "[Operation Cancelled] Reason: User cancelled tool execution.",
        "aborted by user after 3.1s",
        "Tool execution aborted",
        "[Request interrupted by user for tool use]",
        "The user cancelled the tool call.",
        "-32603: Interrupted by the user to make a correction",
        "The user doesn't want to proceed with this tool use. Correction to the text above: "
        "this call was stopped while running, not refused before it ran. It may have run in part.",
    ],
)
@pytest.mark.parametrize("error", [True, False])
def test_what_a_person_stopped_changed_nothing(tmp_path: Path, text: str, error: bool) -> None:
    _, end, *edits = ended(tmp_path, text, error=error)
    assert isinstance(end, ToolEnd)
    assert (end.outcome, edits) == ("interrupted", [])
