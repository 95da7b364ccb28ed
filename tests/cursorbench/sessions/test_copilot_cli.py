"""Copilot CLI's events: every kind by hand, real sessions, and lines nobody wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursorbench.sessions import copilot_cli
from cursorbench.sessions.items import (
    AgentTurn,
    Edit,
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
from tests.cursorbench.sessions.garbage import FEW, damaged, retyped
from tests.samples import DATA

AT = 1767323045000
STOPPED = "The execution of this tool, or a previous tool was interrupted."
CONTEXT = {"cwd": "/w", "branch": "main", "headCommit": "c0ffee", "repository": "o/shop"}


def event(kind: str, number: int, **data: Any) -> dict[str, Any]:
    time = f"2026-01-02T03:04:05.{number:03d}Z"
    return {"type": kind, "data": data, "id": f"e{number}", "timestamp": time, "parentId": None}


def use(number: int, call: str, name: str, **arguments: Any) -> dict[str, Any]:
    return event("tool.execution_start", number, toolCallId=call, toolName=name, arguments=arguments)


def done(number: int, call: str, **data: Any) -> dict[str, Any]:
    return event("tool.execution_complete", number, toolCallId=call, **data)


START = event("session.start", 0, sessionId="s-1", copilotVersion="1.0", selectedModel="m", context=CONTEXT)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


def read(path: Path, *given: dict[str, Any], seen: Seen | None = None) -> list[Read]:
    path.write_text("".join(json.dumps(one) + "\n" for one in given))
    return list(copilot_cli.read(path, seen or Seen()))


def test_start_turns_and_an_applied_edit(path: Path) -> None:
    arguments = {"path": "/w/a", "old_str": "one", "new_str": "two"}
    request = {"toolCallId": "t", "name": "edit", "arguments": json.dumps(arguments)}
    found = read(
        path,
        START,
        event("system.message", 1, content="be good"),
        event("user.message", 2, content="please", transformedContent="<x>please"),
        event("assistant.reasoning", 3, reasoningId="r", content="why"),
        event(
            "assistant.message",
            4,
            messageId="m1",
            content="Done.",
            reasoningText="why",
            toolRequests=[request],
        ),
        use(5, "t", "edit", **arguments),
        done(6, "t", success=True, result={"content": "ok"}),
    )
    one = {"session": "s-1"}
    places = [Place(str(path), number) for number in range(8)]
    edit = {**one, "id": "t", "path": "/w/a", "before": "one", "after": "two"}
    assert found == [
        SessionStart(
            **one, at=AT, place=places[1], agent="copilot-cli", version="1.0",
            cwd="/w", branch="main", commit="c0ffee", repository="o/shop",
        ),
        UserTurn(**one, id="e2", at=AT + 2, place=places[3], text="please"),
        AgentTurn(**one, id="r", at=AT + 3, place=places[4], text="", model="m", thinking="why"),
        AgentTurn(**one, id="m1", at=AT + 4, place=places[5], text="Done.", model="m"),
        ToolUse(
            **one, id="t", at=AT + 4, place=places[5], name="edit", model="m", arguments=json.dumps(arguments)
        ),
        Edit(**edit, at=AT + 4, place=places[5], status="proposed"),
        ToolEnd(**one, id="t", at=AT + 6, place=places[7], outcome="ok", text="ok"),
        Edit(**edit, at=AT + 6, place=places[7], status="applied"),
    ]  # fmt: skip


def refused(path: Path, **decision: Any) -> list[Any]:
    """A call that a person said no to, or who else says so in a person's words."""
    denied = {"kind": "denied-interactively-by-user", "feedback": "not there"}
    ask = {"kind": "write", "toolCallId": "t", "fileName": "/w/a", "diff": "@@\n-x\n"}
    return read(
        path,
        START,
        use(1, "t", "some_writer"),
        event("permission.requested", 2, requestId="p", permissionRequest=ask),
        event("permission.completed", 3, requestId="p", result=denied, **decision),
        done(4, "t", success=False, error={"code": "rejected", "message": "no"}),
        event("permission.completed", 5, requestId="q", result={"kind": "denied-by-rules", "rules": []}),
    )


def test_rejection_with_the_users_reason(path: Path) -> None:
    found = refused(path)
    edits = [(one.path, one.status, one.diff) for one in found if isinstance(one, Edit)]
    assert edits == [("/w/a", "proposed", "@@\n-x\n"), ("/w/a", "rejected", "@@\n-x\n")]
    ends = [(one.id, one.outcome, one.reason) for one in found if isinstance(one, ToolEnd)]
    assert ends == [("t", "rejected", "not there")]


@pytest.mark.parametrize(
    ("source", "outcome"),
    [
        ("human_response", "rejected"),
        ("assisted_approval", "error"),
        ("host_policy", "error"),
        ("unattended_fallback", "error"),
    ],
)
def test_who_said_no(path: Path, source: str, outcome: str) -> None:
    found = refused(path, decisionSource=source)
    assert [one.outcome for one in found if isinstance(one, ToolEnd)] == [outcome]
    kept = ["proposed", "rejected"] if outcome == "rejected" else ["proposed"]
    assert [one.status for one in found if isinstance(one, Edit)] == kept


@pytest.mark.parametrize(
    ("data", "outcome"),
    [
        ({"success": True}, "ok"),
        ({"success": True, "result": {"content": "x"}, "shellExecution": {"exitCode": 2}}, "error"),
        ({"success": False, "error": {"message": "no"}}, "error"),
        ({"success": False, "error": {"code": "rejected", "message": "no"}}, "rejected"),
        ({"success": False, "error": {"message": STOPPED}}, "interrupted"),
        ({"result": {"result_type": "success", "text_result_for_llm": "fine"}}, "ok"),
        ({"result": {"result_type": "failure", "text_result_for_llm": "bad"}}, "error"),
        (
            {
                "success": True,
                "result": {"content": "x", "contents": [{"type": "shell_exit", "exitCode": 2}]},
            },
            "error",
        ),
    ],
)
def test_how_a_call_ends(path: Path, data: dict[str, Any], outcome: str) -> None:
    found = read(path, START, use(1, "t", "bash", command="ls"), done(2, "t", **data))
    assert [one.outcome for one in found if isinstance(one, ToolEnd)] == [outcome]


@pytest.mark.parametrize(
    ("tool", "content", "outcome"),
    [
        ("bash", "no such file\n<exited with exit code 1>", "error"),
        ("bash", "fine\n<exited with exit code 0>", "ok"),
        ("powershell", "bad\n<shellId: 12 completed with exit code 2>\n", "error"),
        ("read_bash", "<exited with exit code 127>", "error"),
        ("powershell", "<exited with exit code -1>", "error"),
        ("bash", "<exited with exit code 1>\nis how a log ends\n<exited with exit code 0>", "ok"),
        ("bash", "the log says <exited with exit code 1> here", "ok"),
        ("bash", "<shellId: 3 running>", "ok"),
        ("view", "1. <exited with exit code 1>", "ok"),  # a file that quotes it
    ],
)
def test_the_exit_code_that_a_shell_shows(path: Path, tool: str, content: str, outcome: str) -> None:
    told = {"success": True, "result": {"content": content, "detailedContent": content}}
    found = read(path, START, use(1, "t", tool, command="x"), done(2, "t", **told))
    assert [one.outcome for one in found if isinstance(one, ToolEnd)] == [outcome]


def test_an_exit_code_in_a_field_is_the_one(path: Path) -> None:
    result = {"content": "<exited with exit code 1>", "contents": [{"type": "terminal", "exitCode": 0}]}
    found = read(path, START, use(1, "t", "bash"), done(2, "t", success=True, result=result))
    assert [one.outcome for one in found if isinstance(one, ToolEnd)] == ["ok"]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"source": "user"}, ""),
        ({"isAutopilotContinuation": True}, "continuation"),
        ({"source": "skill-pdf"}, "meta"),
        ({"source": "agent-7"}, "sub_agent"),
        ({"agentMode": "shell"}, "command"),
        ({"parentToolCallId": "call"}, "sub_agent"),
        ({"content": "", "transformedContent": "You have not yet marked the task"}, "continuation"),
        ({"content": "", "transformedContent": "<x>", "attachments": [{"type": "file"}]}, ""),
    ],
)
def test_who_wrote_a_message(path: Path, more: dict[str, Any], why: str) -> None:
    found = read(path, START, event("user.message", 1, **{"content": "x"} | more))
    assert [one.automatic for one in found if isinstance(one, UserTurn)] == [why]


def test_sub_agents_are_sessions_of_their_own(path: Path) -> None:
    found = read(path, START, {**event("assistant.message", 1, content="hi"), "agentId": "a-1"})
    starts = [one for one in found if isinstance(one, SessionStart)]
    assert [(one.session, one.parent) for one in starts] == [("s-1", ""), ("a-1", "s-1")]
    assert {(one.cwd, one.repository) for one in starts} == {("/w", "o/shop")}  # it works where that does


def test_abort_undo_and_the_users_own_commands(path: Path) -> None:
    found = read(
        path,
        START,
        event("user.message", 1, content="a"),
        use(2, "t", "create", path="/w/a", file_text="new"),
        done(3, "t", success=True),
        event("tool.user_requested", 4, toolCallId="u", toolName="bash", arguments={"command": "ls"}),
        use(5, "u", "bash", command="ls"),
        done(6, "u", success=True, isUserRequested=True),
        use(7, "v", "bash", command="sleep 9"),
        event("abort", 8, reason="user_initiated"),
        event("abort", 9, reason="autopilot_credit_limit"),
        event("session.snapshot_rewind", 10, upToEventId="e1", eventsRemoved=9),
        event("session.compaction_complete", 11, success=True, summaryContent="so far"),
        event("exit_plan_mode.completed", 12, requestId="p", approved=False, feedback="smaller"),
    )
    assert [one.during for one in found if isinstance(one, Interrupt)] == ["tool"]
    assert [(one.before, one.after, one.status) for one in found if isinstance(one, Edit)] == [
        ("", "new", "proposed"), ("", "new", "applied"), (None, None, "undone")
    ]  # fmt: skip
    turns = [(one.text, one.automatic) for one in found if isinstance(one, UserTurn)]
    assert turns == [("a", ""), ("ls", "command"), ("so far", "continuation")]
    ends = [(one.id, one.outcome, one.reason) for one in found if isinstance(one, ToolEnd)]
    assert ends == [("t", "ok", ""), ("p", "rejected", "smaller")]


def test_a_patch_as_plain_text_and_broken_arguments(path: Path) -> None:
    patch = (
        "*** Begin Patch\n*** Update File: a\n*** Move to: b\n@@\n-x\n+y\n*** Delete File: c\n*** End Patch"
    )
    requests = [
        {"toolCallId": "p", "name": "apply_patch", "arguments": patch},
        {"toolCallId": "q", "name": "bash", "arguments": "{"},
    ]
    found = read(path, START, event("assistant.message", 1, content="", toolRequests=requests))
    changes = [(one.path, one.after, one.diff) for one in found if isinstance(one, Edit)]
    assert changes == [("a", None, None), ("b", None, "@@\n-x\n+y\n"), ("c", "", None)]
    assert [one.invalid != "" for one in found if isinstance(one, ToolUse)] == [False, True]


def test_copies_are_said_once_and_the_unreadable_is_quarantined(path: Path) -> None:
    seen = Seen()
    given = [START, event("user.message", 1, content="a"), event("sandbox.decision", 6)]
    given += [event("agent.interrupted", 7), event("assistant.turn_retry", 8), event("model.call_start", 9)]
    assert len(read(path, *given, seen=seen)) == 2
    bad = [
        event("novel.kind", 2),
        {"type": "user.message", "data": 3},
        event("user.message", 4),
        {"x": 1},
        use(5, "t", ""),
    ]
    assert [one.reason for one in read(path, *given, *bad, seen=seen) if isinstance(one, Quarantined)] == [
        "unknown_type",
        "user.message without data",
        "user.message without content",
        "no type",
        "a tool call without a name",
    ]


@pytest.mark.parametrize(
    "sample", ["4f8edb57e3d1/1", "4f8edb57e3d1/2", "4f8edb57e3d1/3", "db325365b92c/0", "db325365b92c/1"]
)
def test_real_sessions(sample: str) -> None:
    path = DATA / "entire_agentv" / sample / "full.jsonl"
    if not path.exists():
        pytest.skip("the shared session logs are not here")
    assert copilot_cli.recognises(path, path.read_bytes()[: 64 << 10])
    found = list(copilot_cli.read(path, Seen()))
    assert sum(isinstance(one, UserTurn) and not one.automatic for one in found) == 1
    assert not [one for one in found if isinstance(one, Quarantined | Interrupt | Edit | ToolEnd)]


LOG = [
    START,
    event("user.message", 1, content="a"),
    event(
        "assistant.message",
        2,
        content="b",
        toolRequests=[{"toolCallId": "t", "name": "create", "arguments": {"path": "p"}}],
    ),
    done(3, "t", success=True, result={"content": "c"}),
    event(
        "permission.completed",
        4,
        requestId="p",
        result={"kind": "denied-interactively-by-user", "feedback": "d"},
    ),
    event("session.snapshot_rewind", 5, upToEventId="e1", eventsRemoved=3),
]
ROWS = [json.dumps(one).encode() + b"\n" for one in LOG]


def placeless(found: list[Read]) -> list[str]:
    good = [one for one in found if not isinstance(one, Quarantined)]
    return [repr([getattr(one, key) for key in one.__struct_fields__ if key != "place"]) for one in good]


@FEW
@given(st.integers(0, len(LOG)), st.binary(max_size=60).map(lambda given: given.replace(b"\n", b"")))
def test_a_garbage_line_takes_nothing_with_it(path: Path, at: int, garbage: bytes) -> None:
    path.write_bytes(b"".join(ROWS))
    whole = placeless(list(copilot_cli.read(path, Seen())))
    path.write_bytes(b"".join([*ROWS[:at], b"{" + garbage + b"\xff\n", *ROWS[at:]]))
    assert placeless(list(copilot_cli.read(path, Seen()))) == whole


@FEW
@given(st.data())
def test_wrong_types_and_damaged_bytes(path: Path, data: st.DataObject) -> None:
    row = retyped(data.draw(st.sampled_from(LOG)), data)
    path.write_bytes(damaged(b"".join(ROWS) + json.dumps(row).encode(), data, changes=4))
    assert all(repr(one).encode(errors="replace") for one in copilot_cli.read(path, Seen()))


def test_objects_that_share_a_line_are_read(path: Path) -> None:
    path.write_bytes(b"".join(ROWS))
    whole = placeless(list(copilot_cli.read(path, Seen())))
    path.write_bytes(ROWS[0][:30] + b"".join(ROWS).replace(b"\n", b""))
    assert placeless(list(copilot_cli.read(path, Seen()))) == whole
