"""SWE-agent's trajectories: steps of every kind by hand, real runs, and documents nobody wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursorbench.sessions import swe_agent
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
from tests.samples import DATA

REPLACE = {"command": "str_replace", "path": "/r/a.py", "old_str": "one", "new_str": "two"}
STATE = {"open_file": "/r/b.py", "working_dir": "/r"}
CALL = {"id": "call_1", "function": {"name": "str_replace_editor", "arguments": json.dumps(REPLACE)}}
DIFF = "diff --git a/a.py b/a.py\n-one\n+two\ndiff --git a/c.py b/c.py\n-x\n+y\n"
DOCUMENT: dict[str, Any] = {
    "environment": "main",
    "trajectory": [
        {
            "thought": "First.",
            "action": "str_replace_editor str_replace",
            "observation": "done",
            "state": STATE,
        },
        {
            "thought": "Then.",
            "action": "edit 1:2\nnew\nend_of_edit",
            "observation": "File updated.",
            "state": STATE,
        },
        {
            "response": "And.",
            "action": "create d.py",
            "observation": "[File: d.py]",
            "state": json.dumps(STATE),
        },
        {
            "thought": "Stop.",
            "action": "vim",
            "observation": "Interactive operation 'vim' is not supported",
            "state": {},
        },
        {"thought": "No action.", "action": "", "observation": ""},
    ],
    "history": [
        {"role": "system", "content": "be good"},
        {"role": "user", "content": "an example", "is_demo": True},
        {"role": "user", "content": [{"type": "text", "text": "fix it"}]},
        {
            "role": "assistant",
            "content": "x",
            "action": "str_replace_editor str_replace",
            "tool_calls": [CALL],
        },
    ],
    "info": {"submission": DIFF, "swe_agent_version": "1.0"},
    "replay_config": json.dumps(
        {
            "problem_statement": {"id": "task-1"},
            "agent": {"model": {"name": "m"}},
            "env": {"repo": {"base_commit": "c0ffee"}},
        }
    ),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "task-1.traj"


def read(path: Path, document: Any = DOCUMENT, seen: Seen | None = None) -> list[Read]:
    path.write_text(json.dumps(document))
    return list(swe_agent.read(path, seen or Seen()))


def test_a_run(path: Path) -> None:
    found = read(path)
    start = found[0]
    assert isinstance(start, SessionStart)
    assert start.session.startswith("task-1@")
    assert (start.agent, start.version, start.commit, start.at) == ("swe-agent", "1.0", "c0ffee", None)
    assert [(one.text, one.automatic) for one in found if isinstance(one, UserTurn)] == [("fix it", "meta")]
    said = [(one.text, one.model) for one in found if isinstance(one, AgentTurn)]
    assert said == [(words, "m") for words in ("First.", "Then.", "And.", "Stop.", "No action.")]
    assert [(one.id, one.name, one.arguments) for one in found if isinstance(one, ToolUse)] == [
        ("call_1", "str_replace_editor", json.dumps(REPLACE)),
        ("step-1", "edit", json.dumps("edit 1:2\nnew\nend_of_edit")),
        ("step-2", "create", json.dumps("create d.py")),
        ("step-3", "vim", json.dumps("vim")),
    ]
    assert [one.outcome for one in found if isinstance(one, ToolEnd)] == ["ok", "ok", "ok", "error"]
    applied = [one for one in found if isinstance(one, Edit) and one.status == "applied"]
    assert [(one.id, one.path, one.before, one.after) for one in applied] == [
        ("call_1", "/r/a.py", "one", "two"),
        ("step-1", "/r/b.py", None, "new"),
        ("step-2", "/r/d.py", "", None),
        ("submission", "c.py", None, None),
    ]
    assert applied[-1].diff == "diff --git a/c.py b/c.py\n-x\n+y\n"


@pytest.mark.parametrize(
    ("options", "change"),
    [
        ("str_replace /r/a.py --old_str 'it'\"'\"'s\n one' --new_str two", ("/r/a.py", "it's\n one", "two")),
        ("create /r/d.py --file_text 'new\n'", ("/r/d.py", "", "new\n")),
        ("insert /r/a.py --insert_line 3 --new_str 'x\n'", ("/r/a.py", "", "x\n")),
        ("view /r/a.py --view_range 1 9", None),
        ("str_replace /r/a.py --old_str 'open", None),
        ("str_replace", None),
    ],
)
def test_the_editor_as_a_command(path: Path, options: str, change: tuple[str, str, str] | None) -> None:
    """As models call it that are given no functions, in SWE-agent 1."""
    step = {"thought": "t", "action": f"str_replace_editor {options}", "observation": "The file is edited."}
    found = read(path, {"trajectory": [step], "history": []})
    told = [(one.status, one.path, one.before, one.after) for one in found if isinstance(one, Edit)]
    assert told == ([("proposed", *change), ("applied", *change)] if change else [])


@pytest.mark.parametrize(
    ("observation", "outcome"),
    [
        ("No replacement was performed, old_str `one` did not appear verbatim in /r/a.py.", "error"),
        ("No replacement was performed. Multiple occurrences of old_str `one` in lines [1, 2].", "error"),
        ("File already exists at: /r/a.py. Cannot overwrite files using command `create`.", "error"),
        ("The path /r/a.py does not exist. Please provide a valid path.", "error"),
        ("Invalid `insert_line` parameter: 9. It should be within the range of lines", "error"),
        ("The file /r/a.py has been edited. Here's the result of running `cat -n`", "ok"),
    ],
)
@pytest.mark.parametrize("called", [True, False])
def test_an_edit_that_failed_is_not_applied(path: Path, observation: str, outcome: str, called: bool) -> None:
    options = "str_replace /r/a.py --old_str one --new_str two"
    action = "str_replace_editor str_replace" if called else f"str_replace_editor {options}"
    steps = [{"thought": "t", "action": action, "observation": observation}]
    steps.append({"thought": "t", "action": "cat log", "observation": observation})  # its output
    found = read(path, {"trajectory": steps, "history": DOCUMENT["history"] if called else []})
    assert [one.outcome for one in found if isinstance(one, ToolEnd)] == [outcome, "ok"]
    assert [one.status for one in found if isinstance(one, Edit)] == ["proposed", "applied"][
        : 1 + (outcome == "ok")
    ]


def test_history_alone(path: Path) -> None:
    history = [
        {"role": "user", "content": "fix it"},
        {"role": "assistant", "content": "I look.", "action": "ls"},
        {"role": "user", "content": "a.py"},
        {"role": "assistant", "content": "I edit.", "tool_calls": [CALL]},
        {"role": "tool", "content": "done"},
    ]
    found = read(path, {"history": history})
    assert [one.text for one in found if isinstance(one, AgentTurn)] == ["I look.", "I edit."]
    assert [(one.id, one.name) for one in found if isinstance(one, ToolUse)] == [
        ("step-0", "ls"),
        ("call_1", "str_replace_editor"),
    ]
    assert [one.text for one in found if isinstance(one, ToolEnd)] == ["a.py", "done"]


def test_runs_of_a_task_are_sessions_of_their_own_and_copies_are_not(path: Path) -> None:
    seen = Seen()
    first = read(path, seen=seen)
    assert read(path, seen=seen) == []
    other = read(path, {**DOCUMENT, "environment": "again"}, seen=seen)
    assert first[0] != other[0]
    assert len(first) == len(other)


def test_what_cannot_be_read_is_quarantined(path: Path) -> None:
    steps = [3, {"thought": None}, {"thought": "ok", "action": 7}]
    found = read(path, {"trajectory": steps})
    assert [one.reason for one in found if isinstance(one, Quarantined)] == [
        "a step that is no table",
        "a step without thought and action",
    ]
    assert [one.text for one in found if isinstance(one, AgentTurn)] == ["ok"]
    assert [type(one) for one in read(path, [1])] == [Quarantined]
    assert [type(one) for one in read(path, {"a": 1})] == [Quarantined]


@pytest.mark.parametrize(
    ("sample", "steps", "applied"),
    [("humanevalfix-python-0", 5, 1), ("marshmallow-code__marshmallow-1867", 11, 3)],
)
def test_real_runs(sample: str, steps: int, applied: int) -> None:
    path = DATA / "swe-agent" / f"{sample}.traj"
    if not path.exists():
        pytest.skip("the shared session logs are not here")
    assert swe_agent.recognises(path, path.read_bytes()[: 64 << 10])
    found = list(swe_agent.read(path, Seen()))
    assert [one.automatic for one in found if isinstance(one, UserTurn)] == ["meta"]
    assert sum(isinstance(one, AgentTurn) for one in found) == steps
    assert sum(isinstance(one, Edit) and one.status == "applied" for one in found) == applied
    assert not [one for one in found if isinstance(one, Quarantined)]


@FEW
@given(st.data())
def test_wrong_types_and_damaged_bytes(path: Path, data: st.DataObject) -> None:
    text = json.dumps(retyped(DOCUMENT, data)).encode()
    path.write_bytes(damaged(text, data, changes=2, least=len(text) // 2))
    assert all(repr(one).encode(errors="replace") for one in swe_agent.read(path, Seen()))
