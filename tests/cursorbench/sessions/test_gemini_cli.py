"""Gemini CLI's chats: one document, or a message a line, told again as it grows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cursorbench.sessions import kinds
from cursorbench.sessions.invalid_calls import fault_of
from cursorbench.sessions.items import (
    AgentTurn,
    Edit,
    Feedback,
    Interrupt,
    Quarantined,
    Read,
    SessionStart,
    ToolEnd,
    ToolUse,
    UserTurn,
)
from cursorbench.sessions.reading import milliseconds

SESSION = "52c73acd-bbab-4b22-a917-47b93035804f"
HEAD = {"sessionId": SESSION, "projectHash": "a1", "startTime": "2026-04-25T08:00:00Z", "kind": "main"}
HEAD |= {"lastUpdated": "2026-04-25T08:00:00Z"}
NO = "[Operation Cancelled] Reason: User did not allow tool call"
STOP = "[Operation Cancelled] User cancelled the operation."


def message(n: int, kind: str, content: object = "", **more: Any) -> dict[str, Any]:
    return {"id": f"m{n}", "timestamp": f"2026-04-25T08:00:{n:02}Z", "type": kind, "content": content, **more}


def call(n: int, name: str, args: object, status: str, given: str = "", **shown: Any) -> dict[str, Any]:
    response = {"error" if status != "success" else "output": given}
    result = [{"functionResponse": {"id": f"c{n}", "name": name, "response": response}}]
    at = f"2026-04-25T08:00:{n + 30}Z"
    told = {"id": f"c{n}", "name": name, "args": args, "status": status, "timestamp": at, "result": result}
    return told | ({"resultDisplay": shown} if shown else {})


REPLACE = {"file_path": "a.py", "old_string": "1", "new_string": "2"}
WHOLE = {"fileName": "a.py", "filePath": "/w/a.py", "originalContent": "x = 1\n", "newContent": "x = 2\n"}
# what it takes line ends for
STAT = {"user_added_lines": 0, "user_removed_lines": 9}
CALLS = [
    call(1, "replace", REPLACE, "success", "Successfully modified file", **WHOLE, diffStat=STAT),
    call(2, "write_file", {"file_path": "b.py", "content": "y"}, "cancelled", NO),
    call(3, "run_shell_command", {"command": "make"}, "success", "Output: no\nExit Code: 2\n"),
    call(4, "run_shell_command", {"command": "ls"}, "success", "Output: a\nExit Code: 0\n"),
    call(5, "replace", REPLACE, "error", 'Tool "replace" not found in registry. Tools must'),
    call(6, "run_shell_command", {"command": "sleep"}, "cancelled", STOP),
    call(
        7,
        "write_file",
        {"file_path": "c.py", "content": "z"},
        "success",
        "User modified the `content` to be: q",
    ),
]
THOUGHTS = [{"subject": "Hm", "description": "it is 1"}]
MESSAGES = [
    message(1, "info", "Authentication succeeded"),
    message(2, "user", "x is @a.py, fix it", displayContent=[{"text": "fix it"}]),
    message(3, "user", "[Function Response: read_many_files]--- a.py ---\nx = 1"),
    message(4, "gemini", "I do.", thoughts=THOUGHTS, model="gemini-x", toolCalls=CALLS),
    message(5, "info", "Request cancelled."),
    message(6, "user", [{"text": "System: Please continue."}]),
    message(7, "error", "[API Error: quota]"),
    message(8, "user", [{"text": "now the tests"}]),
]


def as_lines(messages: list[dict[str, Any]]) -> str:
    """As it is written: a message before its calls have ended, and again."""
    lines: list[dict[str, Any]] = [HEAD]
    for one in messages:
        if one.get("toolCalls"):
            lines.append({**one, "toolCalls": []})
        lines += [one, {"$set": {"lastUpdated": one["timestamp"]}}]
    return "".join(json.dumps(one) + "\n" for one in lines)


def read(folder: Path) -> list[Read]:
    found = list(kinds.read(folder))
    assert {kind for kind, _ in found} == {"gemini-cli"}
    return [item for _, item in found]


@pytest.mark.parametrize("form", ["json", "indented", "jsonl"])
def test_a_chat(tmp_path: Path, form: str) -> None:
    """It was of no known kind."""
    chats = tmp_path / "shop" / "chats"
    chats.mkdir(parents=True)
    (chats.parent / ".project_root").write_text("/w/shop")
    (chats.parent / "logs.json").write_text('[{"sessionId": "s", "messageId": 0, "message": "/clear"}]')
    whole = {**HEAD, "messages": MESSAGES}
    text = (
        as_lines(MESSAGES) if form == "jsonl" else json.dumps(whole, indent=2 if form == "indented" else None)
    )
    (chats / f"session-1.{'jsonl' if form == 'jsonl' else 'json'}").write_text(text)
    (chats / "session-0.json").write_text(json.dumps({**whole, "messages": MESSAGES[:3]}))  # resumed
    found = read(tmp_path)
    starts = [(one.session, one.agent, one.cwd) for one in found if isinstance(one, SessionStart)]
    assert starts == [(SESSION, "gemini-cli", "/w/shop")]
    assert [(one.text[:14], one.automatic) for one in found if isinstance(one, UserTurn)] == [
        ("fix it", ""),
        ("[Function Resp", "tool_result"),
        ("System: Please", "continuation"),
        ("now the tests", ""),
    ]
    [turn] = [one for one in found if isinstance(one, AgentTurn)]
    assert (turn.text, turn.thinking, turn.model) == ("I do.", "Hm it is 1", "gemini-x")
    assert [one.id for one in found if isinstance(one, ToolUse)] == [f"c{n}" for n in range(1, 8)]
    ends = [one for one in found if isinstance(one, ToolEnd)]
    outcomes = ["ok", "rejected", "error", "ok", "error", "interrupted", "ok"]
    assert [one.outcome for one in ends] == outcomes
    assert ends[0].at == milliseconds("2026-04-25T08:00:31Z")
    edits = [(one.id, one.status, one.path, one.before, one.after) for one in found if isinstance(one, Edit)]
    assert [one for one in edits if one[1] != "proposed"] == [
        ("c1", "applied", "/w/a.py", "x = 1\n", "x = 2\n"),
        ("c2", "rejected", "b.py", None, "y"),
        ("c7", "applied", "c.py", None, "z"),
    ]
    assert [one.target for one in found if isinstance(one, Feedback)] == ["c7"]
    assert len([one for one in found if isinstance(one, Interrupt)]) == 1
    assert not [one for one in found if isinstance(one, Quarantined)]


def test_a_sub_agent(tmp_path: Path) -> None:
    chats = tmp_path / "chats" / SESSION
    chats.mkdir(parents=True)
    head = {**HEAD, "sessionId": "3seg2q", "kind": "subagent"}
    (chats / "3seg2q.json").write_text(json.dumps({**head, "messages": [message(1, "user", "look")]}))
    start, task = read(tmp_path)
    assert isinstance(start, SessionStart)
    assert (start.session, start.parent) == (f"{SESSION}/agent-3seg2q", SESSION)
    assert isinstance(task, UserTurn)
    assert task.automatic == "sub_agent"


def test_what_is_no_message_is_quarantined(tmp_path: Path) -> None:
    rows = [HEAD, {"id": "x", "content": "?"}, message(1, "robot", "?"), message(2, "user", "hi")]
    (tmp_path / "chat.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows) + "{torn\n")
    reasons = sorted(one.reason for one in read(tmp_path) if isinstance(one, Quarantined))
    assert reasons == ["a message without a type", "not valid JSON", "unknown_type"]


def test_calls_that_were_none() -> None:
    told = {
        'Tool "ls" not found in registry. Tools must use': "unknown_tool",
        'Tool "l" not found. Did you mean one of: "ls", "glob", "edit"?': "unknown_tool",  # since March 2026
        "params must have required property 'old_string'": "schema",
        "Failed to edit, 0 occurrences found": "",
    }
    assert {text: fault_of("gemini-cli", "gemini-cli", "ls", "error", text) for text in told} == told


PLAN = "\n\nThe plan is stored at: /w/plan.md\nRevise it."


@pytest.mark.parametrize(
    ("tool", "result", "outcome", "reason"),
    [
        (
            "exit_plan_mode",
            f"Plan rejected. User feedback: no salt\n\nat all{PLAN}",
            "rejected",
            "no salt\n\nat all",
        ),
        ("exit_plan_mode", f"Plan rejected. No feedback provided.{PLAN}", "rejected", ""),
        ("exit_plan_mode", "User cancelled the plan approval dialog. The plan was", "rejected", ""),
        ("exit_plan_mode", "Plan approved. Switching to Default mode.", "ok", ""),
        ("enter_plan_mode", "User cancelled entering Plan Mode.", "rejected", ""),
        ("ask_user", "User dismissed ask_user dialog without answering.", "rejected", ""),
        ("ask_user", '{"answers":{"0":"Plan rejected. No feedback provided."}}', "ok", ""),
        ("read_file", "Plan rejected. No feedback provided.", "ok", ""),
    ],
)
def test_a_no_to_a_plan_or_a_question(
    tmp_path: Path, tool: str, result: str, outcome: str, reason: str
) -> None:
    """Its call ended well, and what the person said was in no figure."""
    calls = [call(1, tool, {}, "success", result)]
    _, _, found = told(tmp_path, [message(1, "gemini", "So.", model="gemini-x", toolCalls=calls)])
    assert [(one.outcome, one.reason) for one in found if isinstance(one, ToolEnd)] == [(outcome, reason)]


def test_a_stop_in_other_words(tmp_path: Path) -> None:
    _, _, found = told(
        tmp_path, [message(1, "user", "go"), message(2, "info", "User cancelled the request.")]
    )
    assert [type(one) for one in found][-1] is Interrupt


def given(n: int, *more: dict[str, Any], of: int = 1) -> dict[str, Any]:
    """What a call gave, as a message of its own: since May 2026."""
    return message(n, "user", [*more, {"functionResponse": {"id": f"c{of}", "response": {"output": "ok"}}}])


def whole(*messages: dict[str, Any]) -> dict[str, Any]:
    """The history as the model sees it from then on."""
    return {"$set": {"messages": list(messages), "lastUpdated": "2026-04-25T08:00:00Z"}}


def told(tmp_path: Path, lines: list[dict[str, Any]]) -> tuple[list[str], list[str], list[Read]]:
    """What a person said and what the agent said, of a chat of these lines."""
    (tmp_path / "session-1.jsonl").write_text("".join(json.dumps(one) + "\n" for one in [HEAD, *lines]))
    found = read(tmp_path)
    asked = [one.text for one in found if isinstance(one, UserTurn) and not one.automatic]
    return asked, [one.text for one in found if isinstance(one, AgentTurn)], found


CONTEXT = "This is the Gemini CLI. We are setting up the context for our chat.\nToday's date is Friday."
HINT = (
    "User steering update:\n<user_input>\nuse tabs\n</user_input>\n"
    "Internal instruction: Re-evaluate the active plan using this user steering update."
)


def test_what_calls_gave_is_no_message(tmp_path: Path) -> None:
    """Each was an empty message of a person, and the request of an episode of its own."""
    answer = message(2, "gemini", "I read it.", model="gemini-x", toolCalls=CALLS[3:4])
    lines = [message(1, "user", [{"text": "look"}]), answer, given(3), given(4, {"text": HINT})]
    asked, said, found = told(tmp_path, [*lines, message(5, "gemini", "Done.", model="gemini-x")])
    assert (asked, said) == (["look", "use tabs"], ["I read it.", "Done."])
    assert [one.automatic for one in found if isinstance(one, UserTurn)] == ["", "meta", ""]


def test_a_history_that_was_shortened_is_told_once(tmp_path: Path) -> None:
    """Each time that outputs of tools were shortened, all that was said before was said again."""
    context, text = message(1, "user", [{"text": CONTEXT}]), {"text": "fix it"}
    asked = [message(2, "user", [text]), message(3, "gemini", "I look.", model="gemini-x"), given(4)]
    asked += [message(5, "user", [{"text": "and now?"}]), message(6, "gemini", "Soon.", model="gemini-x")]
    thought = {"text": "hm", "thought": True}
    copies = [
        message(12, "user", [{"text": CONTEXT}, text]),  # of two messages in a row one is made
        message(13, "gemini", [thought, {"text": "I look. "}, {"functionCall": {"name": "ls"}}]),
        given(14),
        message(15, "user", [{"text": "and now?"}]),
        message(16, "gemini", [{"text": "Soon."}]),
    ]
    again = [one | {"id": f"n{i}"} for i, one in enumerate(copies)]
    later = [message(20, "user", [{"text": "and now?"}]), message(21, "gemini", "Now.", model="gemini-x")]
    lines = [whole(context), *asked, *copies, whole(*copies), *later, *again, *later, whole(*again, *later)]
    lines += [
        {"$set": {"sessionId": SESSION}},
        whole(*again, *later),
        message(30, "user", [{"text": "thanks"}]),
    ]
    asks, said, _ = told(tmp_path, lines)
    assert asks == ["fix it", "and now?", "and now?", "thanks"]
    assert said == ["I look.", "Soon.", "Now."]


def test_a_history_that_was_summed_up(tmp_path: Path) -> None:
    """What is kept of it has new ids, and stands in the whole history alone; so may what is new."""
    kept = message(3, "user", [{"text": "and now?"}])
    lines = [message(1, "user", [{"text": "fix it"}]), message(2, "gemini", "Ok.", model="gemini-x"), kept]
    summary = message(11, "user", [{"text": "<state_snapshot>x</state_snapshot>"}])
    ack = message(12, "gemini", [{"text": "Got it. Thanks for the additional context!"}])
    lines.append(whole(summary, ack, kept | {"id": "n3"}, message(13, "user", [{"text": "and then?"}])))
    asked, said, found = told(tmp_path, lines)
    assert (asked, said) == (["fix it", "and now?", "and then?"], ["Ok."])
    assert [one.automatic for one in found if isinstance(one, UserTurn)] == ["", "", "continuation", ""]


def test_thoughts_among_an_answers_parts_are_no_words_of_it(tmp_path: Path) -> None:
    parts = [{"text": "hm", "thought": True}, {"text": "Done."}, {"functionCall": {"name": "ls"}}]
    lines = [message(1, "user", "fix it"), message(2, "gemini", "Done.", model="gemini-x")]
    _, said, found = told(tmp_path, [*lines, message(2, "gemini", parts, model="gemini-x")])
    [turn] = [one for one in found if isinstance(one, AgentTurn)]
    assert (said, turn.thinking) == (["Done."], "hm")


def test_a_way_back_tells_what_it_took_out(tmp_path: Path) -> None:
    lines = [message(n, "user" if n % 2 else "gemini", f"say {n}", model="gemini-x") for n in range(1, 7)]
    lines.insert(4, given(9))
    back = [{"$rewindTo": "m3"}, {"$rewindTo": "m99"}, message(10, "user", "say 3")]
    asked, _, found = told(tmp_path, [*lines, *back])
    assert asked == ["say 1", "say 3", "say 5", "say 3"]
    assert [(one.name, one.value) for one in found if isinstance(one, Feedback)] == [("rolled_back_turns", 2)]


def test_a_no_in_an_editor_is_a_refusal(tmp_path: Path) -> None:
    """Where an editor asks (ACP), the call that a person refused ends in an error."""
    calls = [
        call(1, "replace", REPLACE, "error", 'Tool "replace" was canceled by the user.'),
        call(2, "replace", REPLACE, "error", "Failed to edit, could not find the string to replace."),
    ]
    whole = {**HEAD, "messages": [message(1, "user", "fix it"), message(2, "gemini", toolCalls=calls)]}
    (tmp_path / "session-1.json").write_text(json.dumps(whole))
    found = read(tmp_path)
    assert [one.outcome for one in found if isinstance(one, ToolEnd)] == ["rejected", "error"]
    assert [one.id for one in found if isinstance(one, Edit) and one.status == "rejected"] == ["c1"]
