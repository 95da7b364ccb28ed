"""Claude Code's logs: what each kind of line becomes, by hand-written logs."""

import json
from pathlib import Path
from typing import Any

import pytest

from cursorbench.sessions import claude_code
from cursorbench.sessions.items import (
    AgentTurn,
    Commit,
    Edit,
    Feedback,
    Interrupt,
    Item,
    Place,
    Quarantined,
    SessionStart,
    ToolEnd,
    ToolUse,
    UserTurn,
)
from cursorbench.sessions.reading import milliseconds
from cursorbench.sessions.seen import Seen

AT = 1768000000000  # 2026-01-09T23:06:40Z
REFUSED = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was a file "
    "edit, the new_string was NOT written to the file). "
)


class Log:
    """A log as Claude Code writes it, line by line."""

    def __init__(self, path: Path) -> None:
        self.path, self.lines = path, list[str]()

    def add(self, kind: str, **fields: Any) -> "Log":
        number = len(self.lines) + 1
        line = {"parentUuid": f"u{number - 1}", "isSidechain": False, "sessionId": "s1", "version": "2.1.0"}
        line |= {"cwd": "/w", "gitBranch": "main", "type": kind, "uuid": f"u{number}"}
        line |= {"timestamp": "2026-01-09T23:06:40.000Z"} | fields
        return self.raw(json.dumps(line))

    def raw(self, line: str) -> "Log":
        self.lines.append(line)
        return self

    def user(self, content: Any, **fields: Any) -> "Log":
        return self.add("user", message={"role": "user", "content": content}, **fields)

    def agent(self, *blocks: Any) -> "Log":
        return self.add("assistant", message={"role": "assistant", "model": "m", "content": list(blocks)})

    def call(self, name: str, given: Any, call: str = "t1") -> "Log":
        return self.agent({"type": "tool_use", "id": call, "name": name, "input": given})

    def end(self, text: Any, result: Any = None, error: bool = False, call: str = "t1") -> "Log":
        block = {"type": "tool_result", "tool_use_id": call, "content": text, "is_error": error}
        return self.user([block], toolUseResult=result)

    def read(self, seen: Seen | None = None) -> list[Any]:
        self.path.write_text("\n".join(self.lines) + "\n")
        return list(claude_code.read(self.path, seen or Seen()))

    def after_start(self) -> list[Any]:
        start, *rest = self.read()
        assert isinstance(start, SessionStart)
        return rest

    def common(self, line: int, **own: Any) -> dict[str, Any]:
        return {"session": "s1", "id": f"u{line}", "at": AT, "place": Place(str(self.path), line)} | own


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "log.jsonl")


def test_turns_and_the_session(log: Log) -> None:
    log.user("make it blue")
    log.agent({"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Blue."})
    log.add("system", subtype="turn_duration", durationMs=1500)
    assert log.read() == [
        SessionStart(
            session="s1", id="s1", at=AT, place=Place(str(log.path), 1), agent="claude-code",
            version="2.1.0", cwd="/w", branch="main",
        ),
        UserTurn(**log.common(1), text="make it blue"),
        AgentTurn(**log.common(2), text="Blue.", thinking="hm", model="m"),
        AgentTurn(**log.common(3, id="u2"), text="", duration_ms=1500.0),
    ]  # fmt: skip


def test_a_turn_that_a_prompt_joined_is_not_the_answers_to_that_prompt(log: Log) -> None:
    """It began with the prompt before. The next prompt's turn is its own."""
    log.user("make it blue").call("Bash", {"command": "make"})
    log.add("attachment", attachment={"type": "queued_command", "prompt": "are you there?"})
    log.agent({"type": "text", "text": "Yes."}).add("system", subtype="turn_duration", durationMs=429_000)
    log.user("go on").agent({"type": "text", "text": "Blue."})
    log.add("system", subtype="turn_duration", durationMs=1500)
    times = [one.duration_ms for one in log.after_start() if isinstance(one, AgentTurn) and one.duration_ms]
    assert times == [1500.0]


def test_how_long_a_turn_took_is_no_answer_of_its_own(log: Log) -> None:
    """Entire's older transcripts begin behind the answer; others end in what a tool gave."""
    log.add("system", subtype="turn_duration", durationMs=137_740)
    log.user("make it blue").add("system", subtype="turn_duration", durationMs=20)
    log.call("Bash", {"command": "make"}).end("stopped by a hook")
    log.add("system", subtype="turn_duration", durationMs=1500)
    items = log.read()
    assert [type(item) for item in items] == [SessionStart, UserTurn, ToolUse, ToolEnd]
    assert items[0].place.line == 2


def test_an_edit_is_proposed_then_applied_with_the_whole_file(log: Log) -> None:
    given = {"file_path": "a.py", "old_string": "b", "new_string": "c"}
    log.call("Edit", given)
    log.end("done", {"filePath": "a.py", "oldString": "b", "newString": "c", "originalFile": "a\nb\nb\n"})
    assert log.after_start() == [
        ToolUse(
            **log.common(1, id="t1"),
            name="Edit",
            model="m",
            arguments='{"file_path":"a.py","old_string":"b","new_string":"c"}',
        ),
        Edit(**log.common(1, id="t1"), path="a.py", status="proposed", before="b", after="c"),
        ToolEnd(**log.common(2, id="t1"), outcome="ok", text="done"),
        Edit(**log.common(2, id="t1"), path="a.py", status="applied", before="a\nb\nb\n", after="a\nc\nb\n"),
    ]


def test_a_change_the_user_altered_before_accepting_it(log: Log) -> None:
    log.call("Edit", {"file_path": "a", "old_string": "b", "new_string": "c"})
    log.end(
        "ok", {"filePath": "a", "oldString": "b", "newString": "C", "originalFile": "b", "userModified": True}
    )
    expected = Feedback(**log.common(2), target="t1", name="user_modified", value=True)
    assert [item for item in log.read() if isinstance(item, Feedback)] == [expected]


def test_a_rejection_with_its_reason(log: Log) -> None:
    text = REFUSED + "To tell you how to proceed, the user said:\nnot here"
    log.call("Edit", {"file_path": "a", "old_string": "b", "new_string": "c"}).end(
        text, f"Error: {text}", True
    )
    assert log.after_start()[2:] == [
        ToolEnd(**log.common(2, id="t1"), outcome="rejected", text=text, reason="not here"),
        Edit(**log.common(2, id="t1"), path="a", status="rejected", before="b", after="c"),
    ]


def test_interrupts_and_errors(log: Log) -> None:
    log.user([{"type": "text", "text": "[Request interrupted by user]"}])
    log.user([{"type": "text", "text": "[Request interrupted by user for tool use]"}])
    log.user("why does it print [Request interrupted by user] here?")
    log.end("[Request interrupted by user for tool use]", None, True)
    log.end("exit 1", "Error: exit 1", True)
    log.end("", {"stdout": "", "interrupted": True})
    stopped, tool, turn, *ends = log.after_start()
    assert stopped == Interrupt(**log.common(1), during="answer")
    assert tool == Interrupt(**log.common(2), during="tool")
    assert turn.automatic == ""
    assert [end.outcome for end in ends] == ["interrupted", "error", "interrupted"]


def test_a_commit_made_by_the_agent(log: Log) -> None:
    out = "[lint] ok\n[main 0a1b2c3] Make it blue\n 1 file changed"
    log.call("Bash", {"command": "git add . && git commit -m x"}).end(
        out, {"stdout": out, "interrupted": False}
    )
    log.call("Bash", {"command": "cat log"}, "t2").end(out, {"stdout": out}, call="t2")
    found = [item for item in log.read() if isinstance(item, Commit)]
    assert found == [Commit(**log.common(2), sha="0a1b2c3", message="Make it blue")]


def test_blocks_of_one_message_are_told_apart(log: Log) -> None:
    log.user([
        {"type": "text", "text": "<ide_opened_file>a</ide_opened_file>"},
        {"type": "image", "source": {}},
        {"type": "text", "text": "like this"},
        {"type": "text", "text": "but red"},
    ])  # fmt: skip
    log.user([{"type": "image", "source": {}}])
    assert [(item.text, item.automatic) for item in log.after_start()] == [
        ("<ide_opened_file>a</ide_opened_file>", "meta"), ("like this\nbut red", ""), ("", ""),
    ]  # fmt: skip


def test_prompts_typed_while_the_agent_worked(log: Log) -> None:
    def queue(operation: str, **fields: Any) -> None:
        log.raw(json.dumps({"type": "queue-operation", "operation": operation, "sessionId": "s1"} | fields))

    def attached(text: str, **fields: Any) -> None:
        log.add("attachment", attachment={"type": "queued_command", "prompt": text} | fields)

    queue("enqueue", content="later")
    queue("dequeue")
    log.user("later")
    queue("enqueue", content="also this")
    attached("also this", commandMode="prompt", origin={"kind": "human"})
    queue("remove", content="also this")
    queue("enqueue", content="taken back")
    queue("popAll")
    queue("enqueue", content="of an older log")
    queue("remove")
    attached("<task-notification>x</task-notification>", commandMode="task-notification")
    log.add("attachment", attachment={"type": "todo_reminder", "content": []})
    turns = [(item.text, item.automatic, item.place.line) for item in log.after_start()]
    assert turns == [
        ("later", "", 3), ("also this", "", 5),
        ("<task-notification>x</task-notification>", "meta", 11), ("of an older log", "", 9),
    ]  # fmt: skip


def test_a_prompt_that_only_the_queue_tells_comes_before_what_answers_it(log: Log) -> None:
    def queue(operation: str, text: str, **fields: Any) -> None:
        line = {"type": "queue-operation", "operation": operation, "sessionId": "s1", "content": text}
        log.raw(json.dumps(line | fields))

    def absorbed(text: str, **fields: Any) -> None:
        queue("enqueue", text, sessionId=fields.get("sessionId", "s1"))
        queue("remove", text, timestamp="2026-01-09T23:06:41.000Z", **fields)

    def answer(text: str) -> None:
        log.agent({"type": "text", "text": text})

    def attached(text: str) -> None:
        log.add("attachment", attachment={"type": "queued_command", "prompt": text})

    log.user("one")
    answer("Looking.")
    absorbed("not there")
    absorbed("also here", reason="absorbed_mid_turn")
    absorbed("taken back", reason="cancelled")
    answer("Here, then.")
    attached("also here")  # told already
    log.user("two")
    absorbed("three", sessionId="s2")
    absorbed("four", reason="absorbed_mid_turn")
    absorbed("five")
    attached("four")
    attached("five")
    absorbed("six")
    log.user("seven")
    answer("Done.")
    found = log.read()
    assert [item.text for item in found if isinstance(item, UserTurn | AgentTurn)] == [
        "one", "Looking.", "not there", "also here", "Here, then.", "two", "four", "five", "six", "seven",
        "Done.", "three",
    ]  # fmt: skip
    at = {item.text: item.at for item in found if isinstance(item, UserTurn)}
    assert (at["one"], at["not there"], at["six"]) == (AT, AT + 1000, AT + 1000)
    assert [item.session for item in found if isinstance(item, SessionStart)] == ["s1", "s2"]


def test_what_the_client_says_in_the_agents_place_is_no_answer(log: Log) -> None:
    def client(text: str, **fields: Any) -> None:
        message = {"role": "assistant", "model": "<synthetic>", "content": [{"type": "text", "text": text}]}
        log.add("assistant", message=message | fields.pop("own", {}), **fields)

    log.agent({"type": "text", "text": "Done."}).user("<command-name>/exit</command-name>")
    client("No response requested.", isApiErrorMessage=False)
    log.user("it is not done")
    client("API Error: 529", isApiErrorMessage=True)
    client("API Error: 400", isApiErrorMessage=True, own={"model": "m"})
    log.add("system", subtype="turn_duration", durationMs=40_000)
    client("[Request interrupted by user]")
    log.user("Try again").agent({"type": "text", "text": "Done now."})
    log.add("system", subtype="turn_duration", durationMs=1500)
    items = log.after_start()
    assert [(item.id, item.text) for item in items if isinstance(item, AgentTurn)] == [
        ("u1", "Done."), ("u10", "Done now."), ("u10", ""),
    ]  # fmt: skip
    assert [(item.text, item.automatic) for item in items if isinstance(item, UserTurn)] == [
        ("<command-name>/exit</command-name>", "command"), ("No response requested.", "meta"),
        ("it is not done", ""), ("API Error: 529", "meta"), ("API Error: 400", "meta"), ("Try again", ""),
    ]  # fmt: skip
    assert [item.id for item in items if isinstance(item, Interrupt)] == ["u8"]


def test_an_answer_that_was_stopped_while_it_was_written_is_an_answer(log: Log) -> None:
    def cut(text: str, **fields: Any) -> None:
        message = {"role": "assistant", "model": "<synthetic>", "content": [{"type": "text", "text": text}]}
        log.add("assistant", message=message, **{"isApiErrorMessage": False} | fields)

    log.user("which key?")
    cut("It is the key in")
    log.add("last-prompt", lastPrompt="which key?").user("[Request interrupted by user]", parentUuid="u2")
    log.user("no, the other")
    cut("API Error: 529", isApiErrorMessage=True)
    log.user("[Request interrupted by user]").user("go on")
    cut("No response requested.")
    log.user("[Request interrupted by user]").user("and now?")
    cut("Out of credits")  # nobody stopped it
    log.user("hm")
    cut("the end")
    items = log.after_start()
    assert [(one.id, one.model, one.text) for one in items if isinstance(one, AgentTurn)] == [
        ("u2", "", "It is the key in")
    ]
    assert [one.text for one in items if isinstance(one, UserTurn) and one.automatic == "meta"] == [
        "API Error: 529", "No response requested.", "Out of credits", "the end",
    ]  # fmt: skip
    assert [one.id for one in items if isinstance(one, Interrupt)] == ["u4", "u7", "u10"]


def test_the_clients_word_of_a_background_task_is_nobodys_prompt(log: Log) -> None:
    told = {
        "task_id": "b1",
        "tool_use_id": "toolu_1",
        "description": 'Start "vite"',
        "task_type": "local_bash",
    }
    word = json.dumps(told, separators=(",", ":"))
    log.user("start it").call("Bash", {"command": "vite"})
    log.add("queue-operation", operation="enqueue", content=word)
    log.add("queue-operation", operation="enqueue", content="and open it")
    log.add("queue-operation", operation="remove").add("queue-operation", operation="remove")
    log.agent({"type": "text", "text": "Started."})
    told_by = [(item.text, item.automatic) for item in log.read() if isinstance(item, UserTurn)]
    assert told_by == [("start it", ""), (word, "meta"), ("and open it", "")]


def test_a_shutdown_of_the_client_is_no_stop_and_no_refusal_by_the_user(log: Log) -> None:
    log.user("go").call("Edit", {"file_path": "a", "old_string": "b", "new_string": "c"})
    block = {"type": "tool_result", "tool_use_id": "t1", "content": REFUSED, "is_error": True}
    log.user([block], interruptedByShutdown=True, toolDenialKind="user-rejected")
    mark = "[Request interrupted by user for tool use]"
    log.user([{"type": "text", "text": mark}], interruptedByShutdown=True)
    log.user(mark, interruptedMessageId="m1")
    items = log.after_start()
    assert [(end.outcome, end.reason) for end in items if isinstance(end, ToolEnd)] == [("interrupted", "")]
    assert [edit.status for edit in items if isinstance(edit, Edit)] == ["proposed"]
    assert [(item.text, item.automatic) for item in items if isinstance(item, UserTurn)] == [
        ("go", ""), (mark, "meta"),
    ]  # fmt: skip
    assert [item.id for item in items if isinstance(item, Interrupt)] == ["u5"]


@pytest.mark.parametrize(
    "asked",
    [
        "Your task is to create a detailed summary of the conversation so far",
        "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.\n\nYour task is",
        "[SUGGESTION MODE: Suggest what the user might naturally type next",
    ],
)
def test_agents_that_the_client_runs_for_itself_have_no_tasks(log: Log, asked: str) -> None:
    helper: dict[str, Any] = {"isSidechain": True, "agentId": "acompact-0f1e2d"}
    log.user("bake", **helper)  # the session's, copied
    log.user(asked, **helper)
    for block in ({"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "<summary>"}):
        log.add("assistant", message={"role": "assistant", "model": "m", "content": [block]}, **helper)
    log.user([{"type": "tool_result", "tool_use_id": "t1", "content": "ok"}], **helper | {"parentUuid": "u1"})
    log.user(asked, isSidechain=True, agentId="acafe0123")
    told = [(item.id, item.session) for item in log.read() if not isinstance(item, SessionStart)]
    copied, own = "s1/agent-acompact-0f1e2d", "s1/agent-acafe0123"
    assert told == [("u1", copied), ("t1", copied), ("u6", own)]


def test_what_an_agent_of_the_client_calls_at_once_is_nobodys_either(log: Log) -> None:
    """The result of the first call goes on from the first call: it was told, and so was all after it."""
    helper: dict[str, Any] = {"isSidechain": True, "agentId": "acompact-0f1e2d"}
    log.user("CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.", **helper)
    for call in ("t1", "t2"):
        block = {"type": "tool_use", "id": call, "name": "Read", "input": {}}
        log.add("assistant", message={"role": "assistant", "model": "m", "content": [block]}, **helper)
    for call, asked in (("t2", "u3"), ("t1", "u2")):
        refused = {"type": "tool_result", "tool_use_id": call, "is_error": True, "content": "not allowed"}
        log.user([refused], **helper | {"parentUuid": asked})
    block = {"type": "text", "text": "<summary>"}
    log.add("assistant", message={"role": "assistant", "model": "m", "content": [block]}, **helper)
    assert log.read() == []


def test_sub_agents_are_sessions_of_their_own(log: Log) -> None:
    log.user("go", isSidechain=True, agentId="a1").user("go", isSidechain=True)
    items = [(type(item), item.session, getattr(item, "parent", item.id)) for item in log.read()]
    assert items == [
        (SessionStart, "s1/agent-a1", "s1"), (UserTurn, "s1/agent-a1", "u1"),
        (SessionStart, "s1/sidechain", "s1"), (UserTurn, "s1/sidechain", "u2"),
    ]  # fmt: skip
    assert {item.automatic for item in log.read() if isinstance(item, UserTurn)} == {"sub_agent"}


@pytest.mark.parametrize(
    ("fields", "ended"),
    [
        ({}, ("rejected", "")),
        ({"toolDenialKind": "user-rejected"}, ("rejected", "")),
        ({"toolDenialKind": "user-rejected", "userFeedback": "not that file"}, ("rejected", "not that file")),
        ({"toolDenialKind": "interrupted"}, ("interrupted", "")),
        ({"toolDenialKind": "permission-rule"}, ("error", "")),
        ({"toolDenialKind": "automode-blocked"}, ("error", "")),
    ],
)
def test_who_denied_a_call(log: Log, fields: dict[str, str], ended: tuple[str, str]) -> None:
    """Claude Code 2.1.205 and later say it; the words are those of a person's no in all of them."""
    log.user("go").call("Write", {"file_path": "a", "content": "b"})
    result = {"type": "tool_result", "tool_use_id": "t1", "content": REFUSED, "is_error": True}
    log.user([result], toolUseResult="User rejected tool use", **fields)
    items = log.after_start()
    assert [(end.outcome, end.reason) for end in items if isinstance(end, ToolEnd)] == [ended]
    rejected = [edit for edit in items if isinstance(edit, Edit) and edit.status == "rejected"]
    assert len(rejected) == (ended[0] == "rejected")


@pytest.mark.parametrize(
    ("source", "words", "ended"),
    [
        ("user_reject", True, ("rejected", "use tabs")),
        ("user_reject", False, ("rejected", "")),
        ("user_abort", False, ("interrupted", "")),
        ("hook", False, ("error", "")),
        ("config", True, ("error", "")),
    ],
)
def test_whose_decision_a_denial_was(log: Log, source: str, words: bool, ended: tuple[str, str]) -> None:
    """2.1.332 says it of a no that an editor or another program asked a person for, in words of theirs."""
    log.user("go").call("Write", {"file_path": "a", "content": "b"})
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "use tabs", "is_error": True}
    told: dict[str, Any] = {"permissionDecision": {"decision": "reject", "source": source}}
    told |= {"toolDenialKind": "permission-rule", "toolUseResult": "Error: use tabs"}
    log.user([result], **told, **({"holdsPersonsWords": True} if words else {}))
    items = log.after_start()
    assert [(end.outcome, end.reason) for end in items if isinstance(end, ToolEnd)] == [ended]
    statuses = [edit.status for edit in items if isinstance(edit, Edit)]
    assert statuses == ["proposed", *(["rejected"] if ended[0] == "rejected" else [])]


def test_a_call_that_was_stopped_while_it_ran_was_not_refused(log: Log) -> None:
    log.user("go").call("Bash", {"command": "make"})
    running = "Correction to the text above: this call was stopped while running, not refused before it ran."
    block = {"type": "tool_result", "tool_use_id": "t1", "content": f"{REFUSED} {running}", "is_error": True}
    log.user([block], toolUseResult="User rejected tool use", toolDenialKind="user-rejected")
    assert [end.outcome for end in log.read() if isinstance(end, ToolEnd)] == ["interrupted"]


def test_what_a_person_said_of_a_call_makes_it_a_rejection(log: Log) -> None:
    """Not that the client calls it rejected alone: nobody is asked of a command that needs approval in a run
    without a terminal."""
    for feedback in ("", "not that file"):
        log.call("Bash", {"command": "a && b"})
        result = {"type": "tool_result", "tool_use_id": "t1", "content": "needs approval", "is_error": True}
        log.user([result], toolDenialKind="user-rejected", userFeedback=feedback)
    ends = [(end.outcome, end.reason) for end in log.read() if isinstance(end, ToolEnd)]
    assert ends == [("error", ""), ("rejected", "not that file")]


@pytest.mark.parametrize("reminder", ["You must answer this question directly", "Answer it directly"])
def test_a_side_question_is_a_persons_in_a_session_of_its_own(log: Log, reminder: str) -> None:
    aside: dict[str, Any] = {"isSidechain": True, "agentId": "aside_question-0f1e2d"}
    one = "0f1e2d3c-4b5a-4678-9abc-def012345678"
    log.user("bake", uuid=one).user("bake", uuid=one, **aside)  # the session's, copied
    note = f"<system-reminder>This is a side question from the user. {reminder}.</system-reminder>"
    log.user(f"{note}\n\nhow hot?", **aside)
    block = {"type": "text", "text": "220"}
    log.add("assistant", message={"role": "assistant", "model": "m", "content": [block]}, **aside)
    told = [(item.session, item.text) for item in log.read() if isinstance(item, UserTurn | AgentTurn)]
    mine = "s1/agent-aside_question-0f1e2d"
    assert told == [("s1", "bake"), (mine, note), (mine, "how hot?"), (mine, "220")]
    turns = [item.automatic for item in log.read() if isinstance(item, UserTurn)]
    assert turns == ["", "meta", ""]
    assert [item.parent for item in log.read() if isinstance(item, SessionStart)] == ["", "s1"]


def test_a_longer_copy_of_a_transcript_tells_only_what_is_new(log: Log) -> None:
    seen = Seen()
    log.user("one").call("Edit", {"file_path": "a", "old_string": "b", "new_string": "c"})
    assert len(log.read(seen)) == 4
    log.end("ok", {"originalFile": "b", "oldString": "b", "newString": "c"}).user("two")
    assert log.read(seen) == [
        ToolEnd(**log.common(3, id="t1"), outcome="ok", text="ok"),
        Edit(**log.common(3, id="t1"), path="a", status="applied", before="b", after="c"),
        UserTurn(**log.common(4), text="two"),
    ]


def test_forks_of_the_sdk_have_ids_of_their_own(tmp_path: Path) -> None:
    """Each copy names the line that it is of; a fork of a fork names the fork's."""
    old, fork, again = (Log(tmp_path / f"{name}.jsonl") for name in ("old", "fork", "again"))
    for number, (log, mine) in enumerate([(old, "add1"), (fork, "f0f0"), (again, "aaaa")]):
        uuids = [f"0000000{n}-{mine}-4678-9abc-def012345678" for n in range(3)]
        told: list[dict[str, Any]] = [{"uuid": uuid, "sessionId": f"s{number}"} for uuid in uuids]
        if number:
            for one in told:
                source = one["uuid"].replace(mine, "add1" if log is fork else "f0f0")
                one["forkedFrom"] = {"sessionId": f"s{number - 1}", "messageUuid": source}
        edit = {"type": "tool_use", "id": "t1", "name": "Write", "input": {"file_path": "a", "content": "x"}}
        log.user("bake it", **told[0])
        log.add("assistant", message={"role": "assistant", "model": "m", "content": [edit]}, **told[1])
        block = {"type": "tool_result", "tool_use_id": "t1", "content": "ok"}
        log.user([block], toolUseResult={"type": "create", "filePath": "a", "content": "x"}, **told[2])
        log.user(f"and {mine}", sessionId=f"s{number}", uuid=f"00000009-{mine}-4678-9abc-def012345678")
    for order in ((old, fork, again), (again, fork, old), (fork, old, again)):
        seen = Seen()
        items = [item for log in order for item in log.read(seen)]
        texts = sorted(item.text for item in items if isinstance(item, UserTurn))
        assert texts == ["and aaaa", "and add1", "and f0f0", "bake it"]
        assert [item.status for item in items if isinstance(item, Edit)] == ["proposed", "applied"]


def test_ids_blacked_out_by_entire_are_no_ids(log: Log) -> None:
    log.call("Bash", {}, "REDACTED").end("x", call="REDACTED").call("Bash", {}, "REDACTED")
    log.user("a", uuid="REDACTED").user("b", uuid="REDACTED")
    items = log.after_start()
    assert [item.id for item in items] == ["u1", "u1", "u3", "REDACTED", "REDACTED"]


def test_what_cannot_be_read_is_quarantined_and_known_notes_are_not(log: Log) -> None:
    notes = ("summary", "pr-link", "ai-title", "progress", "relocated", "continued-in", "tools-used")
    for kind in (*notes, "api-request", "api-request-shape", "api-request-blob", "session-owner"):
        log.add(kind)
    # of 2.1.263 to 2.1.289
    log.raw('{"type":"history-suppression","sessionId":"s1","cause":"fork_inherit"}')
    for kind in ("artifact-comment-monitor", "fork-context-ref", "speculation-accept", "ended-by-model"):
        log.add(kind)
    for kind in ("hybrid-organization", "host-row", "repl-mode", "data-flow-handover"):  # of 2.1.332
        log.add(kind)
    log.raw("{broken").raw("[]").raw("7").raw('{"a":1}').raw('{"type":3}').raw('{"type":"new thing\\u0000!"}')
    log.add("user", message=4).add("user", message={"content": None})
    log.user([3, {"type": "odd"}, {"type": "text", "text": "good"}])
    *bad, start, odd, named, good = log.read()
    assert all(isinstance(item, Quarantined) for item in bad)
    reasons = [(item.place.line, item.reason) for item in bad]
    assert reasons[0] == (21, "not valid JSON")
    assert reasons[1:] == [
        (22, "not a JSON object"), (23, "not a JSON object"), (24, "no_type"), (25, "no_type"),
        (26, "unknown_type"), (27, "user_without_content"), (28, "user_without_content"),
    ]  # fmt: skip
    assert isinstance(start, SessionStart)
    assert (odd.reason, named.reason, good.text) == ("malformed_block", "unknown_block", "good")


def test_a_text_that_is_none_is_told(log: Log) -> None:
    log.user([{"type": "text", "text": [{"type": "text", "text": "deep"}]}, {"type": "text", "text": "flat"}])
    log.add("assistant", message={"role": "assistant", "content": [{"type": "text", "text": None}]})
    found = log.read()
    assert [item.reason for item in found if isinstance(item, Quarantined)] == ["malformed_block"] * 2
    assert [item.text for item in found if isinstance(item, UserTurn)] == ["flat"]


def test_a_bad_line_does_not_stand_for_a_good_one_with_its_id(log: Log) -> None:
    log.add("user", message=None, uuid="u9").user("good", uuid="u9")
    assert [item.text for item in log.read() if isinstance(item, Item) and hasattr(item, "text")] == ["good"]


def test_fields_of_wrong_types_are_survived(log: Log) -> None:
    for odd in (None, 3, [], {}, "x", True, 10**30, [[]]):
        log.add(
            "user", sessionId=odd, timestamp=odd, origin=odd, toolUseResult=odd, agentId=odd,
            isSidechain=odd,
            message={"content": [{"type": "tool_result", "tool_use_id": odd, "content": odd}]},
        )  # fmt: skip
        log.add(
            "assistant", message={"model": odd, "content": [{"type": "tool_use", "id": odd, "input": odd}]}
        )
        log.call("Edit", {"file_path": "a", "old_string": odd, "new_string": odd, "edits": odd})
        log.end(odd, {"filePath": odd, "structuredPatch": odd, "originalFile": odd, "edits": odd})
        log.add("system", subtype="turn_duration", durationMs=odd).add("attachment", attachment=odd)
        log.raw(json.dumps({"type": "queue-operation", "operation": odd, "content": odd}))
    assert len([item for item in log.read() if isinstance(item, ToolUse)]) == 16


def test_a_number_of_thousands_of_digits_is_no_time() -> None:
    assert milliseconds("9" * 5000) is None


@pytest.mark.parametrize("zero", ["0001-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "0001-01-01", 0, -1])
def test_the_zero_of_a_language_is_no_time(zero: object) -> None:
    assert milliseconds(zero) is None


def test_a_time_that_says_utc_in_words() -> None:
    assert milliseconds("2026-08-01 10:00:00.5 UTC") == milliseconds("2026-08-01T10:00:00.500Z")


def test_a_model_that_stepped_in_and_a_published_page_say_nothing(log: Log) -> None:
    log.add("frame-link", frameUrl="https://example.org/a")
    block = {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}}
    log.add("assistant", message={"model": "b", "content": [block, {"type": "text", "text": "done"}]})
    assert [type(item).__name__ for item in log.read()] == ["SessionStart", "AgentTurn"]


def test_which_files_are_claude_codes(log: Log) -> None:
    def known(*lines: str) -> bool:
        return claude_code.recognises(Path("x"), "\n".join(lines).encode())

    assert known(*log.user("hi").lines)
    assert known("garbage", '{"type":"summary","summary":"x","leafUuid":"y"}')
    assert known('{"type":"teleported-from","remoteSessionId":"session_x","messageCount":0}')
    assert known('{"parentUuid":null,"sessionId":"s","type":"user","message":{"content":"' + "x" * 70000)
    assert not known('{"type":"session.start","data":{"sessionId":"s"},"id":"x","parentId":null}')
    assert not known('{"timestamp":"x","type":"session_meta","payload":{}}')
    assert not known('{"type":"message","id":"x","message":{"role":"user","content":"x"}}')
    assert not known('{"sessionId": "x", "parentUuid"', "")
    assert not known("")


def test_what_a_tool_gave_before_its_call_was_written_is_of_that_call(log: Log) -> None:
    """The client writes a few of a hundred so: which edit was applied, or refused, was not known."""
    made = {"type": "create", "filePath": "/w/a.py", "content": "x = 1\n", "structuredPatch": []}
    log.user("do it").end("File created", made).agent({"type": "text", "text": "I write."})
    log.call("Write", {"file_path": "/w/a.py", "content": "x = 1\n"})
    log.end(REFUSED, error=True, call="t2").call("Write", {"file_path": "/w/b.py", "content": "y"}, "t2")
    log.end("of another file's call", call="t0").user("go on").agent({"type": "text", "text": "Done."})
    told = [(type(one).__name__, getattr(one, "status", ""), one.place.line) for one in log.after_start()]
    assert told == [
        ("UserTurn", "", 1),
        ("AgentTurn", "", 3),
        ("ToolUse", "", 4),
        ("Edit", "proposed", 4),
        ("ToolEnd", "", 2),
        ("Edit", "applied", 2),
        ("ToolUse", "", 6),
        ("Edit", "proposed", 6),
        ("ToolEnd", "", 5),
        ("Edit", "rejected", 5),
        ("ToolEnd", "", 7),
        ("UserTurn", "", 8),
        ("AgentTurn", "", 9),
    ]
