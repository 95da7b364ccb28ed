"""Chats of VS Code: whole, as a log of changes, and exported. Invented chats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursorbench.sessions import kinds, vscode_chat
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
from cursorbench.sessions.seen import Seen
from tests.cursorbench.sessions.garbage import FEW, damaged, retyped

SESSION = "7de89a80-6d93-43e7-be0a-0a9afe980198"
COPILOT = {"extensionId": {"value": "GitHub.copilot-chat"}, "extensionVersion": "0.37.1"}
SKIPPED = "The user chose to skip the tool call, they want to proceed without running it"
INVALID = "ERROR: Your input to the tool was invalid (must have required property 'name')"


def call(n: int, name: str, **given: Any) -> dict[str, Any]:
    return {"id": f"call_{n}__vscode-1770580233568", "name": name, "arguments": json.dumps(given)}


def result(*texts: str) -> dict[str, Any]:
    """As Copilot's own tools have it: a tree."""
    lines = [{"type": 2, "text": text, "lineBreakBefore": n > 0} for n, text in enumerate(texts)]
    return {"content": [{"$mid": 23, "value": {"node": {"type": 1, "children": lines}}}]}


def shown(n: int, confirmed: object = None, **more: Any) -> dict[str, Any]:
    about = {"kind": "toolInvocationSerialized", "toolId": "copilot_x", "isComplete": True}
    return about | {"toolCallId": f"call_{n}", "isConfirmed": confirmed or {"type": 1}} | more


def request(n: int, text: str, rounds: list[Any] | None = None, **more: Any) -> dict[str, Any]:
    results = more.pop("results", {})
    metadata = {"toolCallRounds": rounds, "toolCallResults": results, "sessionId": SESSION}
    asked = {"requestId": f"request_{n}", "timestamp": 1770580000000 + n * 60000, "message": {"text": text}}
    asked |= {"responseId": f"response_{n}", "modelId": "copilot/gpt-4o", "agent": COPILOT, "response": []}
    asked["result"] = {"timings": {"totalElapsed": 5000}, "metadata": metadata if rounds else {}}
    return asked | more


def round_(n: int, said: str, *calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": f"round_{n}", "response": said, "toolCalls": list(calls), **more}


def patch(path: str) -> str:
    return f"*** Begin Patch\n*** Update File: {path}\n@@\n-a\n+b\n*** End Patch"


CALLS = [
    call(1, "apply_patch", input=patch("/w/a.py")),
    call(2, "create_file", filePath="/w/b.py", content="x\n"),
    call(3, "run_in_terminal", command="make"),
    call(4, "run_in_terminal", command="rm -r /"),
    call(5, "run_vscode_command"),
]
RESULTS = {
    CALLS[0]["id"]: result("The following files were successfully edited:", "/w/a.py"),
    CALLS[1]["id"]: result("The following files were successfully edited:", "/w/b.py"),
    CALLS[2]["id"]: {"content": [{"value": "make: *** No rule\n\n\nCommand exited with code 2"}]},
    CALLS[3]["id"]: {"content": [{"value": SKIPPED}]},
    CALLS[4]["id"]: {"content": [{"value": INVALID}]},
}
STOPPED = call(6, "create_file", filePath="/w/c.py", content="")
DENIED = call(7, "create_file", filePath="/w/d.py", content="")
FILE = {"$mid": 1, "fsPath": "/w/a.py", "path": "/w/a.py", "scheme": "file"}
REQUESTS = [
    request(
        1,
        "fix it",
        [
            round_(1, "I do.", *CALLS, thinking={"id": "t", "text": "Hm."}, timestamp=1770580061000),
            round_(2, "Done."),
        ],
        results=RESULTS,
        response=[shown(n) for n in (1, 2, 3)],
        vote=0,
        voteDownReason="incompleteCode",
        modelState={"value": 1, "completedAt": 1770580065000},
    ),
    request(
        2,
        "no, not so",
        [round_(3, "", STOPPED, DENIED)],
        results={STOPPED["id"]: {"content": [{"value": "The user cancelled the tool call."}]}},
        response=[shown(6), shown(7, {"type": 0})],
        editedFileEvents=[{"uri": FILE, "eventKind": 2}, {"uri": {"path": "/w/b.py"}, "eventKind": 3}],
        isCanceled=True,
    ),
    request(3, '@agent Erneut versuchen: "Weiter?"', [round_(4, "So.")], confirmation="Weiter"),
    request(4, "thanks", modelState={"value": 2}, response=[{"value": "You a"}]),
]
CHAT = {
    "version": 3,
    "responderUsername": "GitHub Copilot",
    "initialLocation": "panel",
    "requests": REQUESTS,
    "sessionId": SESSION,
    "creationDate": 1770579999000,
}


def items(path: Path) -> list[Read]:
    found = list(kinds.read(path))
    assert {kind for kind, _ in found} == {"vscode-chat"}
    return [item for _, item in found]


@pytest.fixture
def chats(tmp_path: Path) -> Path:
    storage = tmp_path / "workspaceStorage" / "0a1b"
    (storage / "chatSessions").mkdir(parents=True)
    (storage / "workspace.json").write_text('{"folder": "file:///w%20x"}')
    return storage / "chatSessions"


def test_a_chat_by_hand(chats: Path) -> None:
    (chats / f"{SESSION}.json").write_text(json.dumps(CHAT, indent=2))
    found = items(chats)
    [start] = [item for item in found if isinstance(item, SessionStart)]
    assert (start.session, start.agent, start.version, start.cwd, start.at) == (
        *(SESSION, "copilot-vscode", "0.37.1", "/w x"),
        1770579999000,
    )
    assert [(item.text, item.automatic) for item in found if isinstance(item, UserTurn)] == [
        ("fix it", ""),
        ("no, not so", ""),
        ('@agent Erneut versuchen: "Weiter?"', "continuation"),
        ("thanks", ""),
    ]
    said = [item for item in found if isinstance(item, AgentTurn)]
    assert [(one.text, one.thinking, one.model, one.at) for one in said] == [
        ("I do.", "Hm.", "gpt-4o", 1770580061000),
        ("Done.", "", "gpt-4o", 1770580065000),
        ("So.", "", "gpt-4o", 1770580185000),
        ("You a", "", "gpt-4o", 1770580245000),
    ]
    ends = [item for item in found if isinstance(item, ToolEnd)]
    assert [(end.id.partition("__")[0], end.outcome) for end in ends] == [
        ("call_1", "ok"),
        ("call_2", "ok"),
        ("call_3", "error"),
        ("call_4", "rejected"),
        ("call_5", "error"),
        ("call_6", "interrupted"),
        ("call_7", "rejected"),
    ]
    assert ends[0].text == "The following files were successfully edited:\n/w/a.py"
    assert [item.during for item in found if isinstance(item, Interrupt)] == ["answer"], (
        "the last answer may still have been running"
    )
    changes = [item for item in found if isinstance(item, Edit) and item.status != "proposed"]
    assert [(one.id[:6], one.path, one.status, one.before, one.after) for one in changes] == [
        ("call_1", "/w/a.py", "applied", None, None),
        ("call_2", "/w/b.py", "applied", "", "x\n"),
        ("call_1", "/w/a.py", "undone", None, None),
        ("call_7", "/w/d.py", "rejected", "", ""),
    ]
    verdicts = [item for item in found if isinstance(item, Feedback)]
    assert [(one.target, one.name, one.value, one.comment) for one in verdicts] == [
        (said[1].span, "thumb", False, "incompleteCode"),
        (CALLS[1]["id"], "user_modified", True, ""),
    ]


def test_a_log_of_changes_is_the_same_chat(chats: Path) -> None:
    (chats / "a.json").write_text(json.dumps(CHAT))
    whole = [repr(item).replace("a.json", "") for item in items(chats)]
    (chats / "a.json").unlink()
    half = {**REQUESTS[3], "response": [{"value": "?"}, {"value": "?"}], "vote": 1}
    lines: list[dict[str, Any]] = [
        {"kind": 0, "v": {**CHAT, "requests": REQUESTS[:1]}},
        {"kind": 2, "k": ["requests"], "v": REQUESTS[1:3]},
        {"kind": 1, "k": ["inputState"], "v": {"inputText": "tha"}},
        {"kind": 2, "k": ["requests"], "v": [half, REQUESTS[0]]},
        {"kind": 2, "k": ["requests"], "i": 4},
        {"kind": 2, "k": ["requests", 3, "response"], "i": 0, "v": [{"value": "You a"}]},
        {"kind": 3, "k": ["requests", 3, "vote"]},
    ]
    path = chats / "a.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    assert [repr(item).replace("a.jsonl", "") for item in items(path)] == whole
    lost = [{"kind": 1, "k": ["requests", 9, "vote"], "v": 1}, {"kind": 2, "k": ["requests"], "i": 7}]
    path.write_text("".join(json.dumps(one) + "\n" for one in [*lines, *lost]) + "{\n")
    bad = [item for item in items(path) if isinstance(item, Quarantined)]
    assert [(one.place.line, one.reason) for one in bad] == [
        (8, "a change of what is not there"),
        (9, "a change of what is not there"),
        (10, "not valid JSON"),
    ]
    assert len(items(path)) == len(whole) + len(bad)


def test_what_another_extension_showed_is_known_and_no_more(tmp_path: Path) -> None:
    """Nothing but an export tells of such a chat; two exports of one chat are one session."""
    parts = [
        {"value": "I edit "},
        {"kind": "inlineReference", "inlineReference": FILE},
        shown(1, toolSpecificData={"kind": "input", "rawInput": {"q": 1}}, resultDetails={"isError": True}),
        shown(2, {"type": 5}),
        {"kind": "textEditGroup", "uri": FILE, "edits": [[{"text": "b"}]], "done": True},
    ]
    agent = {"extensionId": {"value": "x.baker"}, "extensionVersion": "1"}
    one = request(1, "fix it", response=parts, agent=agent)
    chat = {"responderUsername": "Baker", "requests": [one]}
    (tmp_path / "chat.json").write_text(json.dumps(chat))
    (tmp_path / "chat2.json").write_text(json.dumps({**chat, "requests": [one, request(2, "undo that")]}))
    found = items(tmp_path)
    assert {item.session for item in found if not isinstance(item, Quarantined)} == {"request_1"}
    assert [item.agent for item in found if isinstance(item, SessionStart)] == ["baker"]
    assert [item.text for item in found if isinstance(item, AgentTurn)] == ["I edit a.py"]
    assert [item.arguments for item in found if isinstance(item, ToolUse)] == ['{"q":1}', "{}"]
    assert [item.outcome for item in found if isinstance(item, ToolEnd)] == ["error", "rejected"]
    assert [(one.path, one.status) for one in found if isinstance(one, Edit)] == [("/w/a.py", "applied")]
    assert [item.text for item in found if isinstance(item, UserTurn)] == ["fix it", "undo that"]


def test_requests_that_a_checkpoint_took_back_are_undone(tmp_path: Path) -> None:
    off = {**REQUESTS[0], "shouldBeRemovedOnSend": {"requestId": "request_1"}}
    (tmp_path / "chat.json").write_text(json.dumps({**CHAT, "requests": [off]}))
    edits = [item for item in items(tmp_path) if isinstance(item, Edit)]
    assert [(one.path, one.status) for one in edits[-2:]] == [("/w/a.py", "undone"), ("/w/b.py", "undone")]


def test_files_that_a_sub_agent_changed_are_edits_by_name(tmp_path: Path) -> None:
    """Its calls are only shown; so are the changes that it made, which were in no item."""

    def changed(path: str) -> dict[str, Any]:
        return {"kind": "textEditGroup", "uri": {"fsPath": path, "path": path}, "edits": [[]], "done": True}

    made = [changed("/w/a.py"), changed("/w/b.py"), changed("/w/b.py")]
    own = call(1, "replace_string_in_file", filePath="/w/a.py", oldString="1", newString="2")
    asked = call(2, "runSubagent", prompt="bake", description="Bake")
    for number, calls in enumerate([(own, asked), (own,)]):
        results = {one["id"]: result("done") for one in calls}
        rounds = [round_(1, "", *calls), round_(2, "Done.")]
        told = request(number, "bake", rounds, response=made)
        told["result"]["metadata"]["toolCallResults"] = results
        (tmp_path / f"{number}.json").write_text(
            json.dumps({"responderUsername": "GitHub Copilot", "requests": [told]})
        )
    found = [one for one in items(tmp_path) if isinstance(one, Edit) and one.status == "applied"]
    assert [(one.path, one.after) for one in found] == [("/w/a.py", "2"), ("/w/b.py", None), ("/w/a.py", "2")]


@FEW
@given(st.data())
def test_wrong_types_and_damaged_bytes(tmp_path: Path, data: st.DataObject) -> None:
    lines = [{"kind": 0, "v": {**CHAT, "requests": []}}, {"kind": 2, "k": ["requests"], "v": REQUESTS}]
    for name, document in (("chat.json", CHAT), ("chat.jsonl", lines)):
        made = retyped(document, data)
        text = "\n".join(map(json.dumps, made)) if document is lines else json.dumps(made)
        path = tmp_path / name
        path.write_bytes(damaged(text.encode(), data, changes=2, least=len(text) // 2))
        assert all(repr(one).encode(errors="replace") for one in vscode_chat.read(path, Seen()))
