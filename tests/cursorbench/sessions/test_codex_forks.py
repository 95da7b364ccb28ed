"""Codex rollouts of forks and sub-agents whose files begin with a copy of their ancestor's lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cursorbench.sessions.test_codex import SESSION, brief, event, line, read, said

PARENT = "019a0000-0000-7000-8000-00000000aaaa"
GRANDPARENT = "01999999-0000-7000-8000-00000000aaaa"
OLD, NEW = "019a0000-0000-7000-8000-0000000000f0", "019b0000-0000-7000-8000-0000000000f1"
FORKED = "019b0000-0000-7000-8000-00000000beef"  # made at 2025-12-08T22:05:58.656Z
PATCH: dict[str, Any] = {
    "call_id": "p",
    "success": True,
    "changes": {"/w/a": {"type": "add", "content": "x\n"}},
}


def at(lines: list[dict[str, Any]], second: str) -> list[dict[str, Any]]:
    """The lines, written within some milliseconds of this second."""
    return [{**one, "timestamp": f"2026-01-02T03:{second}.{n:03d}Z"} for n, one in enumerate(lines)]


def meta(thread: str, **fields: Any) -> dict[str, Any]:
    return line("session_meta", id=thread, cwd="/w", timestamp="2025-12-08T22:05:58.656Z", **fields)


def turn(one: str, text: str, *, ids: bool = True) -> list[dict[str, Any]]:
    told: dict[str, Any] = {"turn_id": one} if ids else {}
    begins = [event("task_started", **told)] if ids else []
    return [
        *begins,
        line("turn_context", cwd="/w", model="m", **told),
        said("user", text),
        event("user_message", message=text),
        event("patch_apply_end", **PATCH),
        said("assistant", f"{text}: done"),
    ]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / f"rollout-2026-01-02T03-04-05-{FORKED}.jsonl"


OWN = [
    ("SessionStart",),
    ("user", "mine", ""),
    ("edit", "/w/a", "applied"),
    ("agent", "mine: done", ""),
]


@pytest.mark.parametrize("second", ["04:05", "04:08"])
def test_what_a_fork_copied_is_its_ancestors(path: Path, second: str) -> None:
    """Its own first turn may come with the copy, or a while later."""
    copied = [meta(PARENT), meta(GRANDPARENT), *turn(OLD, "theirs"), *turn(OLD, "theirs too")]
    begun = at([meta(FORKED, forked_from_id=PARENT), *copied], "04:05")
    mine = [{**one, "timestamp": f"2026-01-02T03:{second}.500Z"} for one in turn(NEW, "mine")]
    assert brief(read(path, *begun, *mine, *at([meta(FORKED)], "05:00"))) == OWN


def test_forks_of_older_versions_end_with_a_pause(path: Path) -> None:
    """Turns had no ids, and a fork was not said to be one."""
    begun = at([meta(FORKED), meta(PARENT), *turn("", "theirs", ids=False)], "04:05")
    assert brief(read(path, *begun, *at(turn("", "mine", ids=False), "04:07"))) == OWN


def test_a_copy_with_its_own_times(path: Path) -> None:
    first, second = turn(OLD, "theirs"), turn(OLD, "theirs too")
    earlier = [
        {**one, "timestamp": f"2025-11-0{n}T00:00:00Z"}
        for n, part in ((1, first), (2, second))
        for one in part
    ]
    begun = at([meta(FORKED, forked_from_id=PARENT)], "04:05")
    found = read(
        path,
        *begun,
        {**meta(PARENT), "timestamp": "2025-11-01T00:00:00Z"},
        *earlier,
        *at(turn(NEW, "mine"), "04:05"),
    )
    assert brief(found) == OWN


def test_a_sub_agents_first_turn_follows_at_once(path: Path) -> None:
    source = {"subagent": {"thread_spawn": {"parent_thread_id": PARENT, "depth": 1}}}
    begun = at([meta(FORKED, source=source), meta(PARENT), *turn(OLD, "theirs"), *turn(NEW, "mine")], "04:05")
    found = brief(read(path, *begun))
    assert found == [*OWN[:1], ("user", "mine", "sub_agent"), *OWN[2:]]


def test_a_thread_that_tells_its_meta_again_is_no_fork(path: Path) -> None:
    lines = [meta(FORKED), meta(FORKED), *turn(NEW, "mine"), meta(FORKED), meta(SESSION), *turn(NEW, "again")]
    texts = [one[1] for one in brief(read(path, *at(lines, "04:05"))) if one[0] == "user"]
    assert texts == ["mine", "again"]


def test_an_event_whose_type_is_none_is_no_turn(path: Path) -> None:
    told = at([meta(FORKED), meta(PARENT), line("event_msg", type={}), *turn(OLD, "theirs")], "04:05")
    assert brief(read(path, *told)) == [("SessionStart",)]
