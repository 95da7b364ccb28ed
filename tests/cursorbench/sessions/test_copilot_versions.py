"""Copilot CLI's events of 1.0.81 and later: the trace of its calls, and what other sessions sent."""

from __future__ import annotations

from pathlib import Path

from cursorbench.sessions.items import AgentTurn, Edit, Quarantined, SessionStart, UserTurn
from cursorbench.sessions.seen import Seen
from tests.cursorbench.sessions.test_copilot_cli import START, event, read

TRACE = """
    model.turn_started model.model_call_started model.captured_assignment_context model.model_call_success
    model.message model.response model.turn_ended model.messages_snapshot model.call_finished
    session.mode_notice_delivered session.fusion_resolved assistant.fusion_phase_completed
    session.completion_receipt session.mcp_server_removed permission.carriedForward subagent.configured
"""


def test_the_trace_of_a_turn_says_nothing_of_its_own(tmp_path: Path) -> None:
    said = {"role": "assistant", "content": "I bake it."}
    trace = [event(kind, 2 + n, message=said, messages=[said]) for n, kind in enumerate(TRACE.split())]
    found = read(
        tmp_path / "events.jsonl",
        START,
        event("user.message", 1, content="bake it"),
        *trace,
        event("assistant.message", 90, messageId="m", content="I bake it."),
    )
    assert not [one for one in found if isinstance(one, Quarantined)]
    assert [type(one) for one in found] == [SessionStart, UserTurn, AgentTurn]


def test_what_another_session_sent_is_no_persons(tmp_path: Path) -> None:
    label = {"version": 1, "origin": "authenticated-cross-session", "integrity": "untrusted"}
    sent = event("user.message", 1, content="the oven is free", crossSession=label)
    found = read(tmp_path / "events.jsonl", START, sent)
    assert [one.automatic for one in found if isinstance(one, UserTurn)] == ["meta"]


def test_what_a_fork_copied_is_told_once(tmp_path: Path) -> None:
    """VS Code writes the events before the fork again, with another session and ids, and their times."""
    edit = {"toolCallId": "c", "toolName": "create", "arguments": {"path": "/w/a", "file_text": "x\n"}}
    begun = [
        event("user.message", 1, content="bake it", interactionId="i-1"),
        event("tool.execution_start", 2, **edit),
        event("tool.execution_complete", 3, toolCallId="c", success=True, result={"content": "ok"}),
        event("assistant.message", 4, messageId="m-1", content="Done."),
    ]
    start = {**START, "id": "start-2", "data": {**START["data"], "sessionId": "the-fork"}}
    copied = [{**one, "id": f"f-{n}"} for n, one in enumerate(begun)]
    old = [START, *begun, event("user.message", 20, content="thanks")]
    fork = [start, *copied, event("user.message", 30, content="and another")]
    for order in ([old, fork], [fork, old], [old, fork, fork, old]):
        seen = Seen()
        found = [one for log in order for one in read(tmp_path / "events.jsonl", *log, seen=seen)]
        texts = sorted(one.text for one in found if isinstance(one, UserTurn))
        assert texts == ["and another", "bake it", "thanks"]
        assert [one.status for one in found if isinstance(one, Edit)] == ["proposed", "applied"]
        assert sum(isinstance(one, SessionStart) for one in found) == 2
