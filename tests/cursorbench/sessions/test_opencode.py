"""OpenCode's exports: every kind of part by hand, real sessions, and documents nobody wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from cursorbench.sessions import kinds, opencode
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
from tests.cursorbench.sessions.garbage import FEW, JSON, damaged, retyped
from tests.samples import DATA

AT = 1767323045000
INFO = {"id": "ses_1", "directory": "/w", "version": "1.2", "time": {"created": AT}}


def user(number: int, *parts: dict[str, Any]) -> dict[str, Any]:
    return {
        "info": {"id": f"msg_{number}", "role": "user", "time": {"created": AT + number}},
        "parts": list(parts),
    }


def agent(number: int, *parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    time = {"created": AT + number, "completed": AT + number + 500}
    info = {"id": f"msg_{number}", "role": "assistant", "modelID": "m", "time": time, **more}
    return {"info": info, "parts": list(parts)}


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, "id": "prt_t", **more}


def tool(name: str, call: str = "c", status: str = "completed", **state: Any) -> dict[str, Any]:
    given = {"status": status, "input": {}, "time": {"start": AT + 10, "end": AT + 20}, **state}
    return {"type": "tool", "tool": name, "callID": call, "id": "prt_c", "state": given}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "export.json"


def read(
    path: Path, *messages: Any, info: dict[str, Any] | None = None, seen: Seen | None = None
) -> list[Read]:
    path.write_text(json.dumps({"info": info or INFO, "messages": messages}, indent=2))
    return list(opencode.read(path, seen or Seen()))


def test_start_turns_and_an_applied_edit(path: Path) -> None:
    edit = {"filePath": "/w/a", "oldString": "one", "newString": "two"}
    found = read(
        path,
        user(1, text("please"), text("<file>", synthetic=True), {"type": "file", "url": "file:///w/a"}),
        agent(
            2,
            {"type": "step-start"},
            {"type": "reasoning", "text": "why", "id": "prt_r", "time": {"start": AT + 3}},
            tool("edit", input=edit, output="ok", metadata={"diff": "@@\n-one\n+two\n"}),
            tool("bash", "c2", output=""),
            {"type": "patch", "hash": "h", "id": "prt_p", "files": ["/w/a", "/w/b"]},
            text("Done."),
            {"type": "step-finish"},
        ),
    )
    one: dict[str, Any] = {"session": "ses_1", "place": Place(str(path))}
    change: dict[str, Any] = {"path": "/w/a", "before": "one", "after": "two", "diff": "@@\n-one\n+two\n"}
    assert found == [
        SessionStart(**one, id="ses_1", at=AT, agent="opencode", version="1.2", cwd="/w"),
        UserTurn(**one, id="msg_1", at=AT + 1, text="please"),
        UserTurn(**one, id="prt_t", at=AT + 1, text="<file>", automatic="meta"),
        AgentTurn(**one, id="prt_r", at=AT + 3, text="", thinking="why", model="m"),
        ToolUse(
            **one,
            id="c",
            at=AT + 10,
            name="edit",
            model="m",
            arguments=json.dumps(edit, separators=(",", ":")),
        ),
        Edit(**one, id="c", at=AT + 10, **change, status="proposed"),
        ToolEnd(**one, id="c", at=AT + 20, outcome="ok", text="ok"),
        Edit(**one, id="c", at=AT + 20, **change, status="applied"),
        ToolUse(**one, id="c2", at=AT + 10, name="bash", model="m", arguments="{}"),
        ToolEnd(**one, id="c2", at=AT + 20, outcome="ok", text=""),
        Edit(**one, id="prt_p", at=AT + 2, path="/w/b", status="applied"),
        AgentTurn(**one, id="prt_t", at=AT + 2, text="Done.", model="m", duration_ms=482.0),
    ]  # since its tool had ended


def test_an_answer_does_not_last_as_long_as_its_tools(path: Path) -> None:
    """A question waits for a person; the message is complete behind it."""
    asks = tool("question", output="yes")
    found = read(path, agent(2, text("Which?"), asks, asks), agent(3, text("So.")))
    assert [one.duration_ms for one in found if isinstance(one, AgentTurn)] == [8.0, 500.0]


TIMED_OUT = "shell tool terminated command after exceeding timeout"


def noted(words: str) -> str:
    return f"x\n\n<shell_metadata>\n{words}\n</shell_metadata>"


@pytest.mark.parametrize(
    ("state", "outcome", "reason"),
    [
        (
            {"status": "error", "error": "The user rejected permission to use this specific tool call."},
            "rejected",
            "",
        ),
        (
            {
                "status": "error",
                "error": "The user rejected permission to use this specific tool call "
                "with the following feedback: smaller\nsteps",
            },
            "rejected",
            "smaller\nsteps",
        ),
        ({"status": "error", "error": "The user dismissed this question"}, "rejected", ""),
        ({"status": "error", "error": "Tool execution aborted"}, "interrupted", ""),
        ({"status": "error", "error": "File not found"}, "error", ""),
        ({"output": "x", "metadata": {"exit": 2}}, "error", ""),
        ({"output": "x", "metadata": {"exit": 0}}, "ok", ""),
        ({"output": noted("User aborted the command"), "metadata": {"exit": None}}, "interrupted", ""),
        ({"output": noted(f"{TIMED_OUT} 120000 ms."), "metadata": {"exit": None}}, "error", ""),
        ({"output": noted("User aborted the command"), "metadata": {"exit": 0}}, "ok", ""),
        ({"output": "<shell_metadata>\nUser aborted the command", "metadata": {}}, "ok", ""),
    ],
)
def test_how_a_call_ends(path: Path, state: dict[str, Any], outcome: str, reason: str) -> None:
    written = {"filePath": "/w/a", "content": "new"}
    found = read(path, agent(1, tool("write", input=written, **state)))
    assert [(one.outcome, one.reason) for one in found if isinstance(one, ToolEnd)] == [(outcome, reason)]
    last = {"ok": ["applied"], "rejected": ["rejected"]}.get(outcome, [])
    assert [one.status for one in found if isinstance(one, Edit)] == ["proposed", *last]


def test_interrupts(path: Path) -> None:
    error = {"name": "MessageAbortedError", "data": {}}
    cut = tool("bash", status="error", error="Tool execution aborted")
    found = read(
        path,
        agent(1, text("I"), error=error),
        agent(2, cut, error=error),
        agent(3, tool("bash", status="running")),
    )
    assert [one.during for one in found if isinstance(one, Interrupt)] == ["answer", "tool"]
    assert [one.outcome for one in found if isinstance(one, ToolEnd)] == ["interrupted"]


def test_what_the_user_took_back_is_undone(path: Path) -> None:
    def write(name: str) -> dict[str, Any]:
        return tool("write", call=name, input={"filePath": name, "content": "x"}, output="ok")

    messages = [user(1, text("a")), agent(2, write("kept")), user(3, text("b")), agent(4, write("gone"))]
    found = read(path, *messages, info={**INFO, "revert": {"messageID": "msg_3"}})
    assert [one.path for one in found if isinstance(one, Edit) and one.status == "undone"] == ["gone"]


def test_what_the_user_took_back_from_the_middle_of_a_message(path: Path) -> None:
    def write(name: str) -> dict[str, Any]:
        made = tool("write", call=name, input={"filePath": name, "content": "x"}, output="ok")
        return {**made, "id": f"prt_{name}"}

    messages = [user(1, text("a")), agent(2, write("kept"), write("gone"), write("too"))]
    revert = {"messageID": "msg_2", "partID": "prt_gone"}
    found = read(path, *messages, info={**INFO, "revert": revert})
    assert [one.path for one in found if isinstance(one, Edit) and one.status == "undone"] == ["gone", "too"]


def test_a_list_of_messages_as_the_server_gives_it(tmp_path: Path) -> None:
    messages = [user(1, text("a")), agent(2, text("b")), user(3, text("c"))]
    for message, session in zip(messages, ("ses_1", "ses_1", "ses_2"), strict=True):
        message["info"]["sessionID"] = session
    path = tmp_path / "messages.json"
    path.write_text(json.dumps(messages))
    found = [item for _, item in kinds.read(path)]
    turns = [(one.session, one.text) for one in found if isinstance(one, UserTurn | AgentTurn)]
    assert turns == [("ses_1", "a"), ("ses_1", "b"), ("ses_2", "c")]
    assert not [one for one in found if isinstance(one, Quarantined)]


def test_who_wrote_a_message(path: Path) -> None:
    found = read(
        path,
        user(1, {"type": "subtask", "prompt": "look", "command": "review", "id": "prt_s"}),
        user(2, {"type": "compaction", "auto": True}, text("Continue", synthetic=True)),
        user(3, text("mine")),
    )
    turns = [(one.text, one.automatic) for one in found if isinstance(one, UserTurn)]
    assert turns == [("look", "command"), ("Continue", "continuation"), ("mine", "")]
    found = read(path, user(1, text("task")), info={**INFO, "id": "ses_2", "parentID": "ses_1"})
    assert [(one.parent) for one in found if isinstance(one, SessionStart)] == ["ses_1"]
    assert [one.automatic for one in found if isinstance(one, UserTurn)] == ["sub_agent"]


def test_a_command_that_a_person_ran_is_no_call_of_the_agents(path: Path) -> None:
    ran = user(1, text("The following tool was executed by the user", synthetic=True))
    shell = tool("bash", input={"command": "ls /oven"}, metadata={"exit": 2})
    found = read(path, ran, agent(2, shell), user(3, text("mine")), agent(4, tool("bash", "d")))
    turns = [(one.text, one.automatic) for one in found if isinstance(one, UserTurn)]
    assert turns == [(ran["parts"][0]["text"], "meta"), ("ls /oven", "command"), ("mine", "")]
    assert [one.id for one in found if isinstance(one, ToolUse | ToolEnd)] == ["d", "d"]


def test_what_a_compaction_writes_is_nobodys(path: Path) -> None:
    """Its summary was the last answer; where the context overflowed OpenCode writes the request once more."""
    picture = {"type": "file", "mime": "image/png", "url": "data:", "id": "prt_f"}
    compaction = user(3, {"type": "compaction", "auto": True, "overflow": True})
    summary = agent(4, text("## Goal\na cart"), summary=True, mode="compaction")
    before = [user(1, text("add a cart"), picture), agent(2, text("Working.")), compaction, summary]
    again = user(5, text("add a cart"), text("[Attached image/png: file]"))
    found = read(path, *before, again, agent(6, text("Done.")), user(7, text("add a cart")))
    turns = [(one.text, getattr(one, "automatic", "agent")) for one in found[1:]]
    assert turns == [
        ("add a cart", ""),
        ("Working.", "agent"),
        ("## Goal\na cart", "continuation"),
        ("add a cart\n[Attached image/png: file]", "continuation"),
        ("Done.", "agent"),
        ("add a cart", ""),
    ]
    found = read(path, *before[:2], user(3, {"type": "compaction", "auto": False}), summary, again)
    assert [one.automatic for one in found if isinstance(one, UserTurn)] == ["", "continuation", ""]


def test_a_person_who_says_the_same_behind_a_compaction_is_not_taken_for_its_copy(path: Path) -> None:
    """The second "continue", "yes", "go on" was OpenCode's: what it says of the answer before was lost."""

    def told(*behind: dict[str, Any], error: str = "", **overflow: bool) -> list[str]:
        compaction = user(3, {"type": "compaction", "auto": True, **overflow})
        failed = {"error": {"name": error}} if error else {}
        summary = agent(4, text("## Goal"), summary=True, **failed)
        before = [user(1, text("continue")), agent(2, text("Working.")), compaction, summary]
        found = read(path, *before, *behind, agent(8, text("More.")), user(9, text("continue")))
        return [one.automatic for one in found if isinstance(one, UserTurn) and one.text == "continue"]

    goes_on = user(5, text("Continue if you have next steps", synthetic=True))
    assert told(goes_on) == told(goes_on, overflow=True) == ["", ""]
    assert told(goes_on, user(6, text("continue")), overflow=True) == ["", "", ""]
    assert told(agent(5, text("Done.")), overflow=True) == ["", ""]
    assert told(user(5, text("continue"))) == ["", "", ""]  # nothing overflowed: no copy is written
    stopped = user(5, text("continue"))
    assert told(stopped, overflow=True, error="MessageAbortedError") == ["", "", ""]
    assert told(user(5, text("continue")), overflow=True) == ["", "continuation", ""]


def test_later_exports_add_what_is_new_and_hidden_ids_are_none(path: Path) -> None:
    seen = Seen()
    asked = user(1, text("a"))
    asked["info"]["id"] = "REDACTED"
    running = [asked, agent(2, tool("bash", call="REDACTED", status="running"))]
    ended = [asked, agent(2, tool("bash", call="REDACTED")), user(3, text("b"))]
    assert [one.id for one in read(path, *running, seen=seen)] == ["ses_1", "", "prt_c"]
    found = read(path, *ended, seen=seen)
    assert [one.text for one in found if isinstance(one, UserTurn)] == ["b"]
    assert [one.outcome for one in found if isinstance(one, ToolEnd)] == ["ok"]
    assert not [one for one in found if isinstance(one, ToolUse)]


def test_sessions_whose_ids_entire_masked_are_not_one(path: Path) -> None:
    """Its metadata beside the export tell the id; whose sub-agent it is nobody knows."""
    metadata = {"checkpoint_id": "0123456789ab", "session_id": "ses_2"}
    (path.parent / "metadata.json").write_text(json.dumps(metadata))
    for masked, parent in (("REDACTED", "ses_2/parent"), ("ses_0", "ses_0")):
        start, asked = read(path, user(1, text("a")), info=INFO | {"id": "REDACTED", "parentID": masked})
        assert isinstance(start, SessionStart)
        assert isinstance(asked, UserTurn)
        assert (start.session, start.parent, asked.automatic) == ("ses_2", parent, "sub_agent")


def test_what_cannot_be_read_is_quarantined(path: Path) -> None:
    nobody = {"info": {"role": "x"}, "parts": []}
    found = read(
        path,
        3,
        nobody,
        agent(1, {"type": "novel"}, {"type": "text"}, tool("")),
        user(2, {"type": 3}, text("a")),
    )
    assert [one.reason for one in found if isinstance(one, Quarantined)] == [
        "a message without info and parts",
        "a message of no known role",
        "unknown_type",
        "text without text",
        "a tool call without a name or state",
        "unknown_type",
    ]
    assert [one.text for one in found if isinstance(one, UserTurn)] == ["a"]
    path.write_text('{"info": {}')
    assert [type(one) for one in opencode.read(path, Seen())] == [Quarantined]


@pytest.mark.parametrize(
    ("sample", "calls"), [("23b83d9c8d3b/1", 5), ("23b83d9c8d3b/2", 3), ("a6f07388c421/8", 4)]
)
def test_real_sessions_of_sub_agents(sample: str, calls: int) -> None:
    path = DATA / "entire_nimbus" / sample / "full.jsonl"
    if not path.exists():
        pytest.skip("the shared session logs are not here")
    assert opencode.recognises(path, path.read_bytes()[: 64 << 10])
    found = list(opencode.read(path, Seen()))
    assert [one.automatic for one in found if isinstance(one, UserTurn)] == ["sub_agent"]
    assert [one.outcome for one in found if isinstance(one, ToolEnd)] == ["ok"] * calls
    assert not [one for one in found if isinstance(one, Quarantined | Interrupt | Edit)]


DOCUMENT = {
    "info": {**INFO, "revert": {"messageID": "msg_1"}},
    "messages": [
        user(1, text("a")),
        agent(2, tool("write", input={"filePath": "f", "content": "x"}), text("b")),
    ],
}


@FEW
@given(st.data())
def test_wrong_types_and_damaged_bytes(path: Path, data: st.DataObject) -> None:
    text = json.dumps(retyped(DOCUMENT, data)).encode()
    path.write_bytes(damaged(text, data, changes=2, least=len(text) // 2))
    assert all(repr(one).encode(errors="replace") for one in opencode.read(path, Seen()))


@FEW
@given(st.integers(0, 2), JSON)
def test_a_garbage_message_takes_nothing_with_it(path: Path, at: int, garbage: Any) -> None:
    messages: list[Any] = list(DOCUMENT["messages"])  # type: ignore[call-overload]
    whole = read(path, *messages)
    found = read(path, *messages[:at], garbage, *messages[at:])
    assert [one for one in found if not isinstance(one, Quarantined)] == whole


def test_a_list_of_documents_is_recognised_and_read(tmp_path: Path) -> None:
    path = tmp_path / "exports.json"
    path.write_text(json.dumps([DOCUMENT, {**DOCUMENT, "info": {**INFO, "id": "ses_other"}}], indent=1))
    assert kinds.kind_of(path) == "opencode"
    starts = [one for one in opencode.read(path, Seen()) if isinstance(one, SessionStart)]
    assert len(starts) == 2


def test_on_windows_the_snapshot_spells_a_path_otherwise(path: Path) -> None:
    edit = {"filePath": "C:\\w\\a.py", "oldString": "a", "newString": "b"}
    snapshot = {"type": "patch", "id": "prt_p", "hash": "h", "files": ["C:/w/a.py", "C:/w/b.py"]}
    calls = tool("edit", input=edit, output="ok"), tool("bash", "c2", output="")
    found = read(path, user(1, text("do it")), agent(2, *calls, snapshot))
    applied = [one.path for one in found if isinstance(one, Edit) and one.status == "applied"]
    assert applied == ["C:\\w\\a.py", "C:/w/b.py"]


def test_what_a_person_changes_meanwhile_is_not_the_agents(path: Path) -> None:
    """A snapshot has it, too: it counted as the agent's while a page was fetched, and behind another edit."""
    files = ["/w/src/a.py", "/w/notes.md"]
    snapshot = {"type": "patch", "id": "prt_p", "hash": "h", "files": files}
    patch = "*** Begin Patch\n*** Add File: src/a.py\n+one\n*** End Patch"
    tells = tool("apply_patch", input={"patchText": patch}, output="Done")

    def applied(*calls: Any) -> list[str]:
        found = read(path, user(1, text("look")), agent(2, *calls, text("So."), snapshot))
        return [one.path for one in found if isinstance(one, Edit) and one.status == "applied"]

    assert applied() == []
    assert applied(tool("webfetch", output="page"), tool("read", "c2", output="text")) == []
    assert applied(tells) == ["src/a.py"]
    assert applied(tells, tool("bash", "c2", output="")) == ["src/a.py", "/w/notes.md"]
    assert applied(tool("some_mcp_server", output="")) == files


def test_the_folder_of_older_versions(tmp_path: Path) -> None:
    """Each of its files was of no known kind. What they tell is what the export of the session tells."""
    messages = [user(1, text("fix")), agent(2, tool("bash", "call_1"), text("Done.", id="prt_u"))]
    export = tmp_path / "export.json"
    export.write_text(json.dumps({"info": {**INFO, "projectID": "p"}, "messages": messages}))
    storage = tmp_path / "storage"
    files = {
        "session/p/ses_1": {**INFO, "projectID": "p"},
        "project/p": {"id": "p"},
        "session_diff/ses_1": [],
    }
    for message in messages:
        one = message["info"]["id"]
        files[f"message/ses_1/{one}"] = {**message["info"], "sessionID": "ses_1"}
        files |= {f"part/{one}/{part['id']}": {**part, "sessionID": "ses_1"} for part in message["parts"]}
    for name, value in files.items():
        (storage / name).parent.mkdir(parents=True, exist_ok=True)
        (storage / name).with_suffix(".json").write_text(json.dumps(value, indent=2))
    assert {kinds.kind_of(file) for file in kinds.files(storage)} == {"opencode"}
    told = [structs.replace(item, place=Place("")) for _, item in kinds.read(storage)]
    assert told == [structs.replace(item, place=Place("")) for _, item in kinds.read(export)]
    assert [one.text for one in told if isinstance(one, UserTurn | AgentTurn)] == ["fix", "Done."]
    for torn in (part := storage / "part" / "msg_2" / "prt_u.json", storage / "message/ses_1/msg_1.json"):
        torn.write_text(torn.read_text()[:-9])
    again = [one for _, one in kinds.read(storage)]
    found = {one.place.file for one in again if isinstance(one, Quarantined)}
    assert (found, sum(isinstance(one, Quarantined) for one in again)) == ({str(part), str(torn)}, 2)
    assert [type(one) for one in again if isinstance(one, UserTurn | AgentTurn | ToolUse)] == [ToolUse]


def test_folders_of_others_are_none_of_its(tmp_path: Path) -> None:
    log = tmp_path / "storage" / "share" / "log.jsonl"
    log.parent.mkdir(parents=True)
    log.write_text(json.dumps({"model": "m", "messages": [{"role": "user", "content": "fix"}]}) + "\n")
    assert kinds.kind_of(log) == "openai-log"


def test_an_export_behind_what_the_command_said_of_itself(path: Path) -> None:
    """`opencode export ses_1 > export.json 2>&1`."""
    whole = json.dumps({"info": INFO, "messages": [user(1, text("go"))]}, indent=2)
    path.write_text(f"[plugin] ready\nExporting session: ses_1\n{whole}\n")
    items = [item for kind, item in kinds.read(path) if kind == "opencode"]
    assert [type(item) for item in items] == [SessionStart, UserTurn]
    path.write_text(f"# Notes\n\nExporting session: ses_1\n\nIt begins with\n{whole}\n")
    assert kinds.kind_of(path) is None
