"""docs/sources.md is true: every kind has its section, and its own reader and line are read."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from cursorbench.sessions import kinds
from cursorbench.sessions.items import (
    AgentTurn,
    Edit,
    Item,
    Quarantined,
    SessionStart,
    ToolEnd,
    ToolUse,
    UserTurn,
)

DOC = (Path(__file__).resolve().parents[2] / "docs" / "sources.md").read_text(encoding="utf-8")
OWN = DOC[DOC.index("\n## A kind of your own") :]


def test_every_kind_has_its_section() -> None:
    assert set(re.findall(r"^## .*\(`([\w-]+)`\)$", DOC, re.MULTILINE)) == set(kinds.adapters())


def read(path: Path) -> list[tuple[str, type]]:
    return [(kind, type(item)) for kind, item in kinds.read(path)]


def test_the_line_of_a_call_is_read_as_it_stands(tmp_path: Path) -> None:
    line = re.search(r"```json\n(.*?)\n```", OWN)
    assert line is not None
    log = tmp_path / "calls.jsonl"
    log.write_text(line[1] + "\n")
    items = [item for _, item in kinds.read(log) if isinstance(item, Item)]
    assert [type(item) for item in items] == [SessionStart, UserTurn, AgentTurn]
    assert {item.session for item in items} == {"s1"}


def test_the_reader_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = re.search(r"```python\n(.*?)\n```", OWN, re.DOTALL)
    shown = re.search(r'`(\{"my_agent".*?\})`', OWN)
    assert source is not None
    assert shown is not None
    module = ModuleType("cursorbench.sessions.my_agent")
    exec(compile(source[1], "sources.md", "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(kinds, "ADAPTERS", ("my_agent", *kinds.ADAPTERS))
    edit = json.loads(shown[1])
    asked = {"my_agent": 1, "session": "s1", "id": "1", "event": "user", "text": "fix a.py"}
    said = asked | {"id": "2", "event": "agent", "text": "Done."}
    log = tmp_path / "log.jsonl"
    lines = [asked, said, edit, said, said | {"id": "4", "event": "no"}]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    told = [SessionStart, UserTurn, AgentTurn, ToolUse, Edit, ToolEnd, Quarantined]
    assert read(log) == [("my-agent", one) for one in told]
