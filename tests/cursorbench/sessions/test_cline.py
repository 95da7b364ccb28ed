"""Tasks of Cline, Roo and Kilo: one list of messages, with what calls gave in texts."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from cursorbench.sessions import kinds, spoken
from cursorbench.sessions.calls import Change, changes_of
from cursorbench.sessions.items import (
    AgentTurn,
    Edit,
    Feedback,
    Quarantined,
    Read,
    SessionStart,
    ToolEnd,
    ToolUse,
    UserTurn,
)

TS = 1_777_073_160_794
NOON = "<environment_details>\n# Current Working Directory (c:/w/shop) Files\na.py\n</environment_details>"
BLOCKS = (
    "------- SEARCH\nx = 1\n=======\nx = 2\n+++++++ REPLACE\n\n------- SEARCH\ny\n=======\n+++++++ REPLACE\n"
)


def user(n: int, *texts: str) -> dict[str, Any]:
    content = [{"type": "text", "text": text} for text in (*texts, NOON)]
    return {"role": "user", "content": content, "ts": TS + 1000 * n}


def calls(n: int, *named: tuple[str, dict[str, str]]) -> dict[str, Any]:
    content = [
        {"type": "tool_use", "id": f"tooluse_{n}{k}_abcdef", "name": name, "input": given}
        for k, (name, given) in enumerate(named)
    ]
    told = {"modelInfo": {"modelId": "m", "mode": "act"}, "ts": TS + 1000 * n}
    return {"role": "assistant", "content": [{"type": "text", "text": f"step {n}"}, *content], **told}


WRITE = {"absolutePath": "c:\\w\\shop\\b.py", "content": "y = 1\n"}
REPLACE = {"path": "a.py", "diff": BLOCKS}
TASK = [
    user(0, "<task>\nfix it\n</task>", "# task_progress RECOMMENDED\n\nx"),
    calls(1, ("read_file", {"path": "a.py"}), ("write_to_file", WRITE)),
    user(
        2,
        "[read_file for 'a.py'] Result:\n1 | x = 1",
        "[write_to_file for 'c:\\w\\shop\\b.py'] Result:\n"
        "The user made the following updates to your content:\n\n@@ -1 +1 @@\n-y = 1\n+y = 3",
        "# TODO LIST UPDATE REQUIRED - You MUST include the task_progress parameter in your NEXT tool call.",
    ),
    calls(3, ("replace_in_file", REPLACE), ("execute_command", {"command": "make"})),
    user(
        4,
        "[replace_in_file for 'a.py'] Result:\nThe user denied this operation. The file was not updated.",
        "[execute_command for 'make'] Result:\nCommand failed with exit code 2.\nOutput:\nno rule",
    ),
    calls(5, ("attempt_completion", {"result": "done"})),
    user(6, "[attempt_completion] Result: Done", "The user has provided feedback on the results.",
         "<feedback>\nstill wrong\n</feedback>"),
]  # fmt: skip


def write(folder: Path, found: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "api_conversation_history.json"
    path.write_text(json.dumps(found))
    return path


def read(path: Path) -> list[Read]:
    found = list(kinds.read(path))
    assert {kind for kind, _ in found} <= {"cline"}
    return [item for _, item in found]


def test_a_task(tmp_path: Path) -> None:
    """It was a file of no known kind."""
    found = read(write(tmp_path / "tasks" / str(TS), TASK).parent)
    starts = [(one.session, one.agent, one.cwd) for one in found if isinstance(one, SessionStart)]
    assert starts == [(str(TS), "cline", "c:/w/shop")]
    turns = [one for one in found if isinstance(one, UserTurn)]
    assert [(one.text, one.at) for one in turns if not one.automatic] == [
        ("fix it", TS),
        ("still wrong", TS + 6000),
    ]
    assert [(one.text, one.model) for one in found if isinstance(one, AgentTurn)] == [
        (f"step {n}", "m") for n in (1, 3, 5)
    ]
    assert len([one for one in found if isinstance(one, ToolUse)]) == 5
    ends = [(one.outcome, one.id[8:10]) for one in found if isinstance(one, ToolEnd)]
    assert ends == [("ok", "10"), ("ok", "11"), ("rejected", "30"), ("error", "31"), ("ok", "50")]
    edits = [(one.status, one.path, one.before, one.after) for one in found if isinstance(one, Edit)]
    written, blocks = ("c:\\w\\shop\\b.py", None, "y = 1\n"), [("x = 1\n", "x = 2\n"), ("y\n", "")]
    assert edits[:2] == [("proposed", *written), ("applied", *written)]
    assert edits[2:] == [(status, "a.py", *block) for status in ("proposed", "rejected") for block in blocks]
    altered = [(one.target[8:10], one.name, one.value) for one in found if isinstance(one, Feedback)]
    assert altered == [("11", "user_modified", True)]


def test_a_task_that_has_grown_or_was_copied_tells_what_is_new(tmp_path: Path) -> None:
    write(tmp_path / "a" / str(TS), TASK[:3])
    write(tmp_path / "b" / str(TS), TASK)
    found = read(tmp_path)
    assert [one.text for one in found if isinstance(one, UserTurn) and not one.automatic] == [
        "fix it",
        "still wrong",
    ]
    assert len([one for one in found if isinstance(one, ToolUse)]) == 5


@pytest.mark.parametrize(
    ("folder", "agent"),
    [("rooveterinaryinc.roo-cline", "roo"), ("kilocode.kilo-code", "kilo"), ("exports", "cline")],
)
def test_whose_task_it_is_and_what_lies_beside_it(tmp_path: Path, folder: str, agent: str) -> None:
    path = write(tmp_path / folder / "tasks" / "one", TASK[:2])
    path.with_name("ui_messages.json").write_text(
        '[{"ts": 1, "type": "say", "say": "text", "text": "fix it"}]'
    )
    path.with_name("task_metadata.json").write_text("{}")
    found = read(path.parent)
    assert [one.agent for one in found if isinstance(one, SessionStart)] == [agent]
    assert {one.session for one in found if not isinstance(one, Quarantined)} == {str(TS)}
    path.rename(path.with_name("task.json"))  # an export has any name
    assert kinds.kind_of(path.with_name("task.json")) == "cline"
    alone = read(path.with_name("ui_messages.json"))
    why = "what Cline shows of a task: name api_conversation_history.json of its folder instead"
    assert [one.reason for one in alone if isinstance(one, Quarantined)] == [why]
    path.with_name("ui_messages.json").write_text("{}")
    assert kinds.kind_of(path.with_name("ui_messages.json")) is None


def test_what_is_no_list_of_messages_is_quarantined(tmp_path: Path) -> None:
    path = write(tmp_path, [*TASK[:1], {"role": "robot", "content": "x"}, 7])
    why = "a message without content or with an unknown role"
    assert [one.reason for one in read(path) if isinstance(one, Quarantined)] == [why, why]


def test_blocks_of_roo_have_the_line_that_they_begin_with() -> None:
    diff = "<<<<<<< SEARCH\n:start_line:3\n-------\nx = 1\n=======\nx = 2\n>>>>>>> REPLACE"
    assert changes_of("apply_diff", {"path": "a.py", "diff": diff}) == (
        Change("a.py", before="x = 1\n", after="x = 2\n"),
    )
    assert changes_of("apply_diff", {"path": "a.py", "diff": "<<<<<<< SEARCH\nx"}) == ()


@pytest.mark.parametrize(
    "unit", ["------- SEARCH\n", "------- SEARCH\n=======\n", "------- SEARCH\n:start_line:1\n", "\n"]
)
def test_blocks_without_end_are_read_in_a_time_that_is_linear(unit: str) -> None:
    """120 kB took 8 s, and of the second kind minutes."""
    began = time.process_time()
    assert changes_of("replace_in_file", {"path": "a.py", "diff": unit * 100_000}) == ()
    assert time.process_time() - began < 5


@pytest.mark.parametrize("unit", ["\n", " \n", "x\n", "</task>", "\n </task>x"])
@pytest.mark.parametrize("head", ["<task>\n", "[TASK RESUMPTION] ", ""])
def test_a_message_is_looked_at_in_a_time_that_is_linear(head: str, unit: str) -> None:
    """Two thousand blank lines behind a tag took 6 s, and twice as many eight times that."""
    began = time.process_time()
    assert spoken.parts(head + unit * 50_000)
    assert time.process_time() - began < 5


def test_a_session_of_the_command_line(tmp_path: Path) -> None:
    """It was taken for a log of one request: no calls, no edits, no next message."""

    def said(n: int, text: str) -> dict[str, Any]:
        content = [{"type": "text", "text": f'<user_input mode="act">{text}</user_input>'}]
        return {"id": f"u{n}", "role": "user", "content": content, "ts": TS + n}

    def gave(n: int, call: str, content: object, **more: Any) -> dict[str, Any]:
        result = {"type": "tool_result", "tool_use_id": call, "name": "t", "content": content, **more}
        return {"id": f"r{n}", "role": "user", "content": [result], "ts": TS + n}

    def answer(n: int, *content: dict[str, Any]) -> dict[str, Any]:
        model = {"id": "m", "provider": "p"}
        return {
            "id": f"a{n}",
            "role": "assistant",
            "content": list(content),
            "ts": TS + n,
            "modelInfo": model,
        }

    def use(call: str, name: str, **given: Any) -> dict[str, Any]:
        return {"type": "tool_use", "id": call, "name": name, "input": given}

    failed = [{"query": "make", "result": "no", "error": "Command exited with code 1", "success": False}]
    no = '{"error":"This tool call was rejected by the user and not executed."}'
    messages = [
        said(0, "bake"),
        answer(1, use("call_0000001", "editor", path="/w/a.py", new_text="x")),
        gave(2, "call_0000001", '{"query":"edit:/w/a.py","result":"File created","success":true}'),
        answer(3, use("call_0000002", "run_commands", commands=["make"])),
        gave(4, "call_0000002", failed),
        answer(5, use("call_0000003", "editor", path="/w/a.py", old_text="x", new_text="y")),
        gave(6, "call_0000003", no, is_error=True),
        answer(7, {"type": "text", "text": "Done."}),
        said(8, "too sweet"),
    ]
    head = {"version": 1, "updated_at": "2026-11-29T05:00:00Z", "agent": "lead", "sessionId": "17_ab"}
    folder = tmp_path / "sessions" / "17_ab"
    folder.mkdir(parents=True)
    document = head | {"origin": {"version": "3.0.65"}, "messages": messages}
    (folder / "17_ab.messages.json").write_text(json.dumps(document, indent=2))
    (folder / "17_ab.json").write_text(json.dumps({"session_id": "17_ab", "cwd": "/w"}))
    told = [item for kind, item in kinds.read(tmp_path) if kind == "cline"]
    assert not [item for item in told if isinstance(item, Quarantined)]
    [start] = [item for item in told if isinstance(item, SessionStart)]
    assert (start.session, start.agent, start.version, start.cwd) == ("17_ab", "cline", "3.0.65", "/w")
    assert [(item.text, item.automatic) for item in told if isinstance(item, UserTurn)] == [
        ("bake", ""),
        ("too sweet", ""),
    ]
    assert [item.outcome for item in told if isinstance(item, ToolEnd)] == ["ok", "error", "rejected"]
    assert [(item.status, item.before, item.after) for item in told if isinstance(item, Edit)] == [
        ("proposed", "", "x"),
        ("applied", "", "x"),
        ("proposed", "x", "y"),
        ("rejected", "x", "y"),
    ]
    assert {item.model for item in told if isinstance(item, AgentTurn)} == {"m"}
