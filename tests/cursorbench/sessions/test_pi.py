"""Pi's sessions: a header and a tree of entries, told in the file's order. Invented sessions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cursorbench.sessions import kinds, pi
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
from cursorbench.sessions.seen import Seen
from tests.cursorbench.sessions.garbage import FEW, damaged, retyped

SESSION = "01a2268b-5ae2-7434-8369-c6a002f17292"
SKILL = '<skill name="bake" location="/s/SKILL.md">\nReferences are relative to /s.\n\n# Bake\n</skill>'
TWICE = [{"oldText": "1", "newText": "2"}, {"oldText": "a", "newText": "b"}]


def header(**more: Any) -> dict[str, Any]:
    about = {"type": "session", "version": 3, "id": SESSION, "timestamp": "2026-11-29T05:00:00.000Z"}
    return about | {"cwd": "/w"} | more


def entry(n: int, kind: str = "message", parent: int | None = -1, **more: Any) -> dict[str, Any]:
    above = None if parent is None else f"e{n - 1 if parent < 0 else parent:07}"
    time = {"timestamp": f"2026-11-29T05:00:{n:02}.000Z"}
    return {"type": kind, "id": f"e{n:07}", "parentId": above if n else None, **time, **more}


def said(n: int, role: str, content: Any, parent: int | None = -1, **more: Any) -> dict[str, Any]:
    return entry(n, parent=parent, message={"role": role, "content": content, "timestamp": 1, **more})


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def call(n: int, name: str, **given: Any) -> dict[str, Any]:
    return {"type": "toolCall", "id": f"call_{n}", "name": name, "arguments": given}


def ended(n: int, of: int, words: str, *, wrong: bool = False) -> dict[str, Any]:
    return said(n, "toolResult", [text(words)], toolCallId=f"call_{of}", toolName="t", isError=wrong)


ENTRIES = [
    entry(0, "model_change", provider="p", modelId="m"),
    said(1, "user", "fix it"),
    said(
        2,
        "assistant",
        [
            {"type": "thinking", "thinking": "Hm."},
            text("I do."),
            call(1, "edit", path="a.py", edits=TWICE),
            call(2, "write", path="b.py", content="y\n"),
            call(3, "bake", eggs=1),
        ],
        model="m",
        stopReason="toolUse",
    ),
    ended(3, 1, "Successfully replaced 2 block(s) in a.py."),
    ended(4, 2, "EACCES: permission denied", wrong=True),
    ended(5, 3, "Tool bake not found", wrong=True),
    said(6, "assistant", [call(4, "bash", command="make")], model="m", stopReason="toolUse"),
    ended(7, 4, "half\n\nCommand aborted", wrong=True),
    said(8, "assistant", [], model="m", stopReason="aborted"),
    said(9, "user", [text(f"{SKILL}\n\nthe other one")]),
    said(10, "assistant", [text("So"), call(5, "write", path="c.py")], model="m", stopReason="aborted"),
    entry(11, message={"role": "bashExecution", "command": "ls", "output": "a.py", "timestamp": 1}),
    entry(12, "compaction", summary="They fix it."),
    entry(13, "custom_message", customType="x", content="remember", display=False),
    said(14, "user", [text("no, the first")], parent=8),
    said(15, "assistant", [text("Done.")], model="m2", stopReason="stop"),
    entry(16, "poem", text="x"),
]


def write(path: Path, *lines: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    return path


def items(path: Path) -> list[Read]:
    found = list(kinds.read(path))
    assert {kind for kind, _ in found} <= {"pi"}
    return [item for _, item in found]


def test_a_session_by_hand(tmp_path: Path) -> None:
    found = items(write(tmp_path / "s.jsonl", header(), *ENTRIES))
    [start] = [item for item in found if isinstance(item, SessionStart)]
    assert (start.session, start.agent, start.cwd, start.parent) == (SESSION, "pi", "/w", "")
    assert [(item.text, item.automatic) for item in found if isinstance(item, UserTurn)] == [
        ("fix it", ""),
        (SKILL, "command"),
        ("the other one", ""),
        ("!ls", "command"),
        ("They fix it.", "continuation"),
        ("remember", "meta"),
        ("no, the first", ""),
    ]
    assert [(one.text, one.thinking, one.model) for one in found if isinstance(one, AgentTurn)] == [
        ("I do.", "Hm.", "m"),
        ("So", "", "m"),
        ("Done.", "", "m2"),
    ]
    asked = [item.id for item in found if isinstance(item, ToolUse)]
    assert asked == ["call_1", "call_2", "call_3", "call_4"], "call_5 was never made: its answer broke off"
    ends = [item for item in found if isinstance(item, ToolEnd)]
    assert [(end.id, end.outcome) for end in ends] == [
        ("call_1", "ok"),
        ("call_2", "error"),
        ("call_3", "error"),
        ("call_4", "interrupted"),
    ]
    assert fault_of("pi", "pi", "bake", "error", ends[2].text) == "unknown_tool"
    schema = 'Validation failed for tool "bash":\n  - command: must have required properties command'
    assert fault_of("pi", "pi", "bash", "error", schema) == "schema"
    assert [(one.id, one.path, one.status) for one in found if isinstance(one, Edit)] == [
        ("call_1", "a.py", "proposed"),
        ("call_1", "a.py", "proposed"),
        ("call_2", "b.py", "proposed"),
        ("call_1", "a.py", "applied"),
        ("call_1", "a.py", "applied"),
    ]
    assert [item.during for item in found if isinstance(item, Interrupt)] == ["tool", "answer"]
    # they went back behind entry 8: what they had asked at 9 is left
    [left] = [item for item in found if isinstance(item, Feedback)]
    assert (left.name, left.value, left.at) == ("rolled_back_turns", 1.0, (start.at or 0) + 13000)
    assert [item.reason for item in found if isinstance(item, Quarantined)] == ["unknown_type"]


def test_edits_that_name_lines_by_hashes_are_told_by_their_results(tmp_path: Path) -> None:
    """oh-my-pi's; of several files in one call each has its own difference."""
    shown = " 1|...\n 2|a\n-3|b - c\n+3|b + c\n 40|...\n+50|\n"
    several = [
        {"path": "/w/b.py", "diff": "+1|x"},
        {"path": "/w/c.py", "diff": "-1|y\n"},
        {"path": "/w/d.py"},
    ]
    lines = [
        said(1, "user", "fix it"),
        said(2, "assistant", [call(n, "edit", path="a.py", input="§a.py\n≔3kq\n") for n in range(3)]),
        *(ended(3 + n, n, "a.py") for n in range(3)),
    ]
    for line, details in zip(lines[2:], ({"diff": shown}, {"perFileResults": several}, {}), strict=True):
        line["message"]["details"] = details
    found = items(write(tmp_path / "s.jsonl", header(), *lines))
    edits = [one for one in found if isinstance(one, Edit) and one.status == "applied"]
    assert [(one.id, one.path, one.diff) for one in edits] == [
        ("call_0", "a.py", " a\n-b - c\n+b + c\n+\n"),
        ("call_1", "/w/b.py", "+x\n"),
        ("call_1", "/w/c.py", "-y\n"),
        ("call_2", "a.py", None),
    ]


def test_a_fork_begins_with_a_copy(tmp_path: Path) -> None:
    """`/fork` copies the entries into a file of another id; what an old call was to change is known there."""
    write(tmp_path / "1_a.jsonl", header(), *ENTRIES[:4])
    new = header(id="f" * 36, parentSession="/s/1_a.jsonl")
    write(tmp_path / "2_b.jsonl", new, *ENTRIES[:3], said(20, "user", "do it otherwise", parent=2))
    found = items(tmp_path)
    turns = [(item.session[:2], item.text) for item in found if isinstance(item, UserTurn)]
    assert turns == [("01", "fix it"), ("ff", "do it otherwise")]
    assert len([item for item in found if isinstance(item, ToolUse)]) == 3


def test_the_first_version_has_no_ids(tmp_path: Path) -> None:
    old = [{k: v for k, v in one.items() if k not in ("id", "parentId")} for one in ENTRIES]
    found = items(write(tmp_path / "s.jsonl", header(provider="p", modelId="m"), *old))
    new = items(write(tmp_path / "t.jsonl", header(), *ENTRIES))

    def kinds_of(told: list[Read]) -> list[str]:
        return [type(item).__name__ for item in told if not isinstance(item, Feedback)]

    assert kinds_of(found) == kinds_of(new)


@FEW
@given(st.data())
def test_wrong_types_and_damaged_bytes(tmp_path: Path, data: st.DataObject) -> None:
    lines = [json.dumps(one) for one in retyped([header(), *ENTRIES], data)]
    raw = "\n".join(lines).encode()
    path = tmp_path / "s.jsonl"
    path.write_bytes(damaged(raw, data, changes=2, least=len(raw) // 2))
    assert all(repr(one).encode(errors="replace") for one in pi.read(path, Seen()))
