"""Goose's sessions: exported, and the lines of before. Invented sessions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cursorbench.sessions import goose, kinds
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
from cursorbench.sessions.seen import Seen
from tests.cursorbench.sessions.garbage import FEW, damaged, retyped

NO = (
    "The user has declined to run this tool. DO NOT attempt to call this tool again. If there are no "
    "alternative methods to proceed, clearly explain the situation and STOP."
)
SHOWN = {"userVisible": True, "agentVisible": True}


def message(n: int, role: str, *content: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    about = {"id": f"msg_{n}", "role": role, "created": 1772355600 + n, "content": list(content)}
    return {**about, "metadata": SHOWN | metadata}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def call(n: int, name: str, **given: Any) -> dict[str, Any]:
    value = {"name": f"developer__{name}", "arguments": given}
    return {"type": "toolRequest", "id": f"toolu_000{n}", "toolCall": {"status": "success", "value": value}}


def gave(n: int, result: dict[str, Any]) -> dict[str, Any]:
    return {"type": "toolResponse", "id": f"toolu_000{n}", "toolResult": result}


def ok(words: str, **more: Any) -> dict[str, Any]:
    return {"status": "success", "value": {"content": [text(words)], **more}}


MESSAGES = [
    message(1, "user", text("fix it")),
    message(
        2,
        "assistant",
        {"type": "thinking", "thinking": "Hm.", "signature": ""},
        text("I do."),
        call(1, "text_editor", command="str_replace", path="/w/a.py", old_str="1", new_str="2"),
        call(2, "edit", path="/w/b.py", before="x", after="y"),
        call(3, "write", path="/w/c.py", content="z\n"),
        call(4, "shell", command="make"),
        call(5, "shell", command="sleep 9"),
        {"type": "toolRequest", "id": "toolu_0006", "toolCall": {"status": "error", "error": "-32602: x"}},
    ),
    message(
        3,
        "user",
        gave(1, {"status": "success", "value": [text("The file has been edited")]}),  # as before 1.12
        gave(2, ok(NO, isError=True)),
        gave(3, ok("Wrote /w/c.py", isError=False)),
        gave(4, ok("make: *** no rule", isError=True)),
        gave(5, {"status": "error", "error": "-32603: Interrupted by the user to make a correction"}),
        gave(6, {"status": "error", "error": "-32602: x"}),
    ),
    message(4, "assistant", text("Yes — what would you like me to do?"), inference={"requestedModel": "m2"}),
    message(5, "user", text("They fix it."), userVisible=False),
    message(6, "user", text("the first only")),
    {"role": "poet", "created": 1, "content": []},
]
EXPORT = {
    "id": "20260301_1",
    "working_dir": "/w",
    "name": "Fixing",
    "extension_data": {},
    "model_config": {"model_name": "m"},
    "conversation": MESSAGES,
}


def items(path: Path) -> list[Read]:
    found = list(kinds.read(path))
    assert {kind for kind, _ in found} == {"goose"}
    return [item for _, item in found]


def test_an_exported_session_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps(EXPORT, indent=2))
    found = items(path)
    [start] = [item for item in found if isinstance(item, SessionStart)]
    assert (start.session, start.agent, start.cwd, start.at) == ("20260301_1", "goose", "/w", 1772355601000)
    assert [(item.text, item.automatic) for item in found if isinstance(item, UserTurn)] == [
        ("fix it", ""),
        ("They fix it.", "continuation"),
        ("the first only", ""),
    ]
    said = [(one.id, one.text, one.thinking, one.model) for one in found if isinstance(one, AgentTurn)]
    assert said == [
        ("msg_2", "I do.", "Hm.", "m"),
        ("msg_4", "Yes — what would you like me to do?", "", "m2"),
    ]
    assert [one.invalid for one in found if isinstance(one, ToolUse)] == [*[""] * 5, "not a call"]
    ends = [(one.id[-1], one.outcome) for one in found if isinstance(one, ToolEnd)]
    assert ends == [
        ("1", "ok"),
        ("2", "rejected"),
        ("3", "ok"),
        ("4", "error"),
        ("5", "interrupted"),
        ("6", "error"),
    ]
    changes = [one for one in found if isinstance(one, Edit) and one.status != "proposed"]
    assert [(one.path, one.status, one.before, one.after) for one in changes] == [
        ("/w/a.py", "applied", "1", "2"),
        ("/w/b.py", "rejected", "x", "y"),
        ("/w/c.py", "applied", None, "z\n"),
    ]
    assert [one.reason for one in found if isinstance(one, Quarantined)] == [
        "a message without content or with an unknown role"
    ]


def test_lines_of_before_are_the_same_session(tmp_path: Path) -> None:
    about = {"working_dir": "/w", "description": "Fixing", "message_count": 6, "total_tokens": None}
    old = tmp_path / "20260301_1.jsonl"
    old.write_text("".join(json.dumps(one) + "\n" for one in [about, *MESSAGES]))
    (tmp_path / "z.json").write_text(json.dumps(EXPORT))
    found = items(tmp_path)  # the export says it again
    assert len([one for one in found if isinstance(one, UserTurn)]) == 3
    assert len([one for one in found if isinstance(one, ToolEnd)]) == 6
    assert [one.cwd for one in found if isinstance(one, SessionStart)] == ["/w"]


@FEW
@given(st.data())
def test_wrong_types_and_damaged_bytes(tmp_path: Path, data: st.DataObject) -> None:
    for name, document in (("a.json", EXPORT), ("a.jsonl", MESSAGES)):
        made = retyped(document, data)
        raw = ("\n".join(map(json.dumps, made)) if document is MESSAGES else json.dumps(made)).encode()
        path = tmp_path / name
        path.write_bytes(damaged(raw, data, changes=2, least=len(raw) // 2))
        assert all(repr(one).encode(errors="replace") for one in goose.read(path, Seen()))
