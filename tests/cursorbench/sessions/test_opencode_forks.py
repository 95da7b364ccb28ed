"""OpenCode's forks, which have copies of another session's messages under ids of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cursorbench.sessions.items import Edit, Read, ToolUse, UserTurn
from cursorbench.sessions.seen import Seen
from tests.cursorbench.sessions.test_opencode import AT, agent, read, text, tool, user

EDIT = {"filePath": "/w/a", "oldString": "one", "newString": "two"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "export.json"


def session(name: str, created: int) -> dict[str, Any]:
    return {"id": f"ses_{name}", "directory": "/w", "version": "1.2", "time": {"created": AT + created}}


def begun(*, copied: bool = False) -> list[dict[str, Any]]:
    messages = [
        user(1, text("add a page")),
        agent(2, tool("edit", "call_1", input=EDIT, output="ok"), text("Done.", time={"start": AT + 30})),
        user(600, text("no, a table")),
        agent(601, text("A table then.", time={"start": AT + 640})),
    ]
    if copied:
        for one in messages:
            one["info"]["id"] += "f"
    return messages


def brief(found: list[Read]) -> tuple[list[str], int, int]:
    texts = [one.text for one in found if isinstance(one, UserTurn)]
    applied = sum(isinstance(one, Edit) and one.status == "applied" for one in found)
    return texts, sum(isinstance(one, ToolUse) for one in found), applied


OLD = [session("a", 0), *begun(), user(2000, text("and a chart"))]
FORK = [session("f", 1000), *begun(copied=True), user(3000, text("and a map"))]


@pytest.mark.parametrize("order", [[OLD, FORK], [FORK, OLD], [OLD, FORK, OLD, FORK], [FORK, FORK, OLD, OLD]])
def test_what_a_fork_copied_is_told_once(path: Path, order: list[list[dict[str, Any]]]) -> None:
    seen = Seen()
    texts, calls, applied = list[str](), 0, 0
    for info, *messages in order:
        told = brief(read(path, *messages, info=info, seen=seen))
        texts, calls, applied = texts + told[0], calls + told[1], applied + told[2]
    assert sorted(texts) == ["add a page", "and a chart", "and a map", "no, a table"]
    assert (calls, applied) == (1, 1)


def test_a_fork_alone_tells_it_all(path: Path) -> None:
    info, *messages = FORK
    texts, calls, applied = brief(read(path, *messages, info=info))
    assert (texts, calls, applied) == (["add a page", "no, a table", "and a map"], 1, 1)


def test_agents_asked_the_same_at_the_same_moment_are_no_forks(path: Path) -> None:
    seen, texts = Seen(), list[str]()
    for name in ("b", "c"):
        texts += brief(read(path, *begun(), info=session(name, 0), seen=seen))[0]
    assert texts == ["add a page", "no, a table"] * 2
