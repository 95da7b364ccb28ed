"""Logs of the Responses API: its own tools, items told again one by one, cut streams; older forms too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cursorbench.sessions import kinds
from cursorbench.sessions.items import AgentTurn, Edit, Read, SessionStart, ToolEnd, ToolUse, UserTurn

ASK = {"role": "user", "content": "fix a.py"}
TEXT = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "ok"}],
}
PATCH = {
    "type": "apply_patch_call", "call_id": "call_patch_1", "status": "completed",
    "operation": {"type": "update_file", "path": "a.py", "diff": "@@\n-x = 1\n+x = 2\n"},
}  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "requests.jsonl"


def read(path: Path, *records: object) -> list[Read]:
    path.write_text("".join(json.dumps(one) + "\n" for one in records))
    found = list(kinds.read(path))
    assert {kind for kind, _ in found} == {"openai-log"}
    return [item for _, item in found if not isinstance(item, SessionStart)]


def asked(given: list[Any], one: str, *output: object, **more: Any) -> dict[str, Any]:
    request = {"model": "m", "input": given, **more}
    return {"request": request, "response": {"id": one, "created_at": 1_700_000_000, "output": list(output)}}


def only(items: list[Read], kind: type[Any]) -> list[Any]:
    return [one for one in items if isinstance(one, kind)]


@pytest.mark.parametrize(
    ("status", "outcome", "statuses"),
    [("completed", "ok", ["proposed", "applied"]), ("failed", "error", ["proposed"])],
)
def test_the_patch_tool(path: Path, status: str, outcome: str, statuses: list[str]) -> None:
    end = {"type": "apply_patch_call_output", "call_id": "call_patch_1", "status": status, "output": "said"}
    items = read(
        path, asked([ASK], "resp_1", PATCH), asked([end], "resp_2", TEXT, previous_response_id="resp_1")
    )
    edits = only(items, Edit)
    assert [one.status for one in edits] == statuses
    assert {(one.path, one.diff, one.id) for one in edits} == {
        ("a.py", "@@\n-x = 1\n+x = 2\n", "call_patch_1")
    }
    (ended,) = only(items, ToolEnd)
    assert (ended.id, ended.outcome, ended.text) == ("call_patch_1", outcome, "said")
    assert [(one.name, json.loads(one.arguments)) for one in only(items, ToolUse)] == [
        ("apply_patch", PATCH["operation"])
    ]


def test_files_that_the_patch_tool_makes_and_deletes(path: Path) -> None:
    new = {"type": "create_file", "path": "b.py", "diff": "+y = 1\n+z = 2"}
    calls = [
        {**PATCH, "operation": new},
        {**PATCH, "call_id": "call_patch_2", "operation": {"type": "delete_file", "path": "c.py"}},
    ]
    made, gone = only(read(path, asked([ASK], "resp_1", *calls)), Edit)
    assert (made.path, made.before, made.after) == ("b.py", "", "y = 1\nz = 2\n")
    assert (gone.path, gone.before, gone.after) == ("c.py", None, "")


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        ({"type": "exit", "exit_code": 0}, "ok"),
        ({"type": "exit", "exit_code": 1}, "error"),
        ({"type": "timeout"}, "error"),
    ],
)
def test_the_shell(path: Path, outcome: dict[str, Any], told: str) -> None:
    call = {"type": "shell_call", "call_id": "call_shell_1", "action": {"commands": ["pytest"]}}
    part = {"stdout": "1 test", "stderr": "slow", "outcome": outcome}
    end = {"type": "shell_call_output", "call_id": "call_shell_1", "output": [part]}
    items = read(path, asked([ASK, call, end], "resp_1", TEXT))
    assert [(one.name, one.arguments) for one in only(items, ToolUse)] == [
        ("shell", '{"commands":["pytest"]}')
    ]
    assert [(one.outcome, one.text) for one in only(items, ToolEnd)] == [(told, "1 test\nslow")]


def test_a_call_of_a_server_that_a_person_refused(path: Path) -> None:
    question = {"type": "mcp_approval_request", "id": "mcpr_000001", "name": "drop", "arguments": '{"t": 1}'}
    no = {
        "type": "mcp_approval_response",
        "approval_request_id": "mcpr_000001",
        "approve": False,
        "reason": "why",
    }
    items = read(path, asked([ASK], "resp_1", question), asked([ASK, question, no], "resp_2", TEXT))
    assert [(one.id, one.name) for one in only(items, ToolUse)] == [("mcpr_000001", "drop")]
    assert [(one.outcome, one.reason) for one in only(items, ToolEnd)] == [("rejected", "why")]


def test_a_call_of_a_server_that_a_person_allowed_is_one_call(path: Path) -> None:
    question = {"type": "mcp_approval_request", "id": "mcpr_000001", "name": "find", "arguments": "{}"}
    yes = {"type": "mcp_approval_response", "approval_request_id": "mcpr_000001", "approve": True}
    call = {
        **question,
        "type": "mcp_call",
        "id": "mcp_000001",
        "approval_request_id": "mcpr_000001",
        "output": "7",
    }
    items = read(
        path,
        asked([ASK], "resp_1", question),
        asked([ASK, question, yes], "resp_2", call, TEXT),
        asked([ASK, question, yes, call, TEXT, {"role": "user", "content": "more"}], "resp_3", TEXT),
    )
    assert [one.id for one in only(items, ToolUse)] == ["mcpr_000001"]
    assert [(one.id, one.outcome, one.text) for one in only(items, ToolEnd)] == [("mcpr_000001", "ok", "7")]


@pytest.mark.parametrize(
    ("status", "ended"), [("completed", ["ok"]), ("failed", ["error"]), ("searching", [])]
)
def test_what_runs_at_the_service_ends_behind_its_call(path: Path, status: str, ended: list[str]) -> None:
    call = {"type": "web_search_call", "id": "ws_000001", "status": status, "action": {"query": "q"}}
    items = read(path, asked([ASK], "resp_1", call, TEXT))
    assert [type(one) for one in items[2:]] == [ToolUse, *(ToolEnd for _ in ended)]
    assert [one.name for one in only(items, ToolUse)] == ["web_search"]
    assert [one.outcome for one in only(items, ToolEnd)] == ended


def test_an_answer_that_the_next_request_repeats_item_by_item_is_told_once(path: Path) -> None:
    think = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "deep"}]}
    call = {"type": "function_call", "call_id": "call_list_1", "name": "ls", "arguments": "{}"}
    end = {"type": "function_call_output", "call_id": "call_list_1", "output": "a.py"}
    items = read(
        path,
        asked([ASK], "resp_1", think, TEXT, call),
        asked([ASK, think, TEXT, call, end], "resp_2", TEXT),
        asked([ASK, think, TEXT, call, end, TEXT, {"role": "user", "content": "more"}], "resp_3", TEXT),
    )
    told = [(one.id, one.text, one.thinking) for one in only(items, AgentTurn)]
    assert told == [("resp_1", "ok", "deep"), ("resp_2", "ok", ""), ("resp_3", "ok", "")]
    assert [one.text for one in only(items, UserTurn)] == ["fix a.py", "more"]


def test_what_was_asked_and_answered_in_one_object(path: Path) -> None:
    whole = {"id": "resp_1", "object": "response", "created_at": 1_700_000_000, "model": "m-1"}
    items = read(
        path,
        {**whole, "input": [ASK], "output": [TEXT, PATCH]},
        {"model": "m", "input": "hi", "output": [TEXT]},
    )
    assert [(one.id, one.model, one.text) for one in only(items, AgentTurn)] == [
        ("resp_1", "m-1", "ok"), ("", "m", "ok")
    ]  # fmt: skip
    assert [one.path for one in only(items, Edit)] == ["a.py"]


def test_a_stream_that_was_cut(path: Path) -> None:
    call = {"type": "function_call", "call_id": "call_list_1", "name": "ls", "arguments": "{}"}
    events = [
        {"type": "response.created", "response": {"id": "resp_9", "model": "m-1", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**call, "arguments": ""}},
        {"type": "response.output_item.done", "output_index": 0, "item": call},
        {"type": "response.output_item.added", "output_index": 1, "item": {**TEXT, "content": []}},
        {"type": "response.output_text.delta", "output_index": 1, "delta": "let me "},
        {"type": "response.output_text.delta", "output_index": 1, "delta": "lo"},
    ]
    items = read(path, {"request": {"model": "m", "input": "go"}, "response": events})
    assert [(one.id, one.model, one.text) for one in only(items, AgentTurn)] == [
        ("resp_9", "m-1", "let me lo")
    ]
    assert [(one.name, one.arguments) for one in only(items, ToolUse)] == [("ls", "{}")]


@pytest.mark.parametrize("streamed", [False, True])
def test_refusals_of_the_model_are_its_words(path: Path, streamed: bool) -> None:
    pieces = [{"choices": [{"delta": {"refusal": text}}]} for text in ("I ", "cannot")]
    whole = {"choices": [{"message": {"role": "assistant", "content": None, "refusal": "I cannot"}}]}
    items = read(
        path, {"request": {"model": "m", "messages": [ASK]}, "response": pieces if streamed else whole}
    )
    assert [one.text for one in only(items, AgentTurn)] == ["I cannot"]


@pytest.mark.parametrize("streamed", [False, True])
def test_the_older_form_of_calls(path: Path, streamed: bool) -> None:
    arguments = '{"path": "a", "old_str": "1", "new_str": "2"}'
    call = {"role": "assistant", "content": None, "function_call": {"name": "edit", "arguments": arguments}}
    pieces = [
        {"choices": [{"delta": {"function_call": {"name": "edit", "arguments": ""}}}]},
        {"choices": [{"delta": {"function_call": {"arguments": arguments}}}]},
    ]
    response = pieces if streamed else {"choices": [{"message": call}]}
    done = {"role": "function", "name": "edit", "content": "ok"}
    items = read(
        path,
        {"request": {"model": "m", "messages": [ASK]}, "response": response},
        {"request": {"model": "m", "messages": [ASK, call, done]}, "response": "fine"},
    )
    assert [(one.name, one.arguments) for one in only(items, ToolUse)] == [("edit", arguments)]
    assert [one.status for one in only(items, Edit)] == ["proposed", "applied"]


def test_what_an_agent_of_codex_gets_from_another_is_no_persons(path: Path) -> None:
    task = {
        "type": "agent_message",
        "author": "/root",
        "recipient": "/root/cook",
        "content": [
            {"type": "input_text", "text": "Message Type: NEW_TASK\nSender: /root\nPayload:\n"},
            {"type": "encrypted_content", "encrypted_content": "bake"},
        ],
    }
    items = read(path, asked([task], "resp_1", TEXT))
    told = "Message Type: NEW_TASK\nSender: /root\nPayload:\nbake"
    assert [(one.text, one.automatic) for one in only(items, UserTurn)] == [(told, "sub_agent")]
