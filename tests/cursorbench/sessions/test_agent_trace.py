"""Agent Trace records of both variants, by hand and the one real file there is."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cursorbench.sessions import agent_trace
from cursorbench.sessions.items import Attribution, Place, Quarantined, Read, SessionStart, ToolUse
from cursorbench.sessions.seen import Seen
from tests.samples import DATA

SAMPLE = DATA / "agent-trace_lazyusage/traces.jsonl"
AT = 1769335200000
URL = "https://example.org/c/1"


def record(path: str = "src/a.py", **more: Any) -> dict[str, Any]:
    ranges = [
        {"start_line": 4, "end_line": 9},
        {"start_line": 20, "end_line": 20, "contributor": {"type": "human"}},
    ]
    conversation = {"url": URL, "contributor": {"type": "ai", "model_id": "x/m"}, "ranges": ranges}
    return {
        "version": "0.1.0",
        "id": "r1",
        "timestamp": "2026-01-25T10:00:00Z",
        "vcs": {"type": "git", "revision": "c0ffee"},
        "tool": {"name": "cursor", "version": "2.4.0"},
        "files": [{"path": path, "conversations": [conversation]}],
        **more,
    }


def flat(**more: Any) -> dict[str, Any]:
    return {
        "schema": "agent-trace/v0.1.0",
        "session_id": "s",
        "file_path": "/w/a.py",
        "start_line": 2,
        "end_line": 3,
        "content_hash": "murmur3:0",
        "tool": "Edit",
        "tool_use_id": "t1",
        "timestamp": "2026-01-25T10:00:00+00:00",
        **more,
    }


def read(path: Path, *records: object, seen: Seen | None = None) -> list[Read]:
    path.write_text("".join(json.dumps(one) + "\n" for one in records))
    return list(agent_trace.read(path, seen or Seen()))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "traces.jsonl"


def test_a_record(path: Path) -> None:
    place = Place(str(path), 1)
    told: dict[str, Any] = {"id": "r1", "at": AT, "place": place, "commit": "c0ffee", "path": "src/a.py"}
    assert read(path, record()) == [
        SessionStart(session=URL, at=AT, place=place, agent="cursor", version="2.4.0"),
        Attribution(session=URL, start=4, end=9, author="ai", agent="cursor", model="x/m", **told),
        Attribution(session=URL, start=20, end=20, author="human", agent="cursor", **told),
    ]


def test_the_smallest_record(path: Path) -> None:
    conversation = {"ranges": [{"start_line": 1, "end_line": 50}]}
    small = {
        "version": "1.0",
        "id": "r",
        "timestamp": "2026-01-25T10:00:00Z",
        "files": [{"path": "a.ts", "conversations": [conversation]}],
    }
    assert read(path, small) == [
        Attribution(
            session="", id="r", at=AT, place=Place(str(path), 1), commit="", path="a.ts", start=1, end=50,
            author="unknown",
        )
    ]  # fmt: skip


def test_flat_records(path: Path) -> None:
    place = Place(str(path), 1)
    assert read(path, flat(), flat(), flat(start_line=0), flat(tool_use_id="t2")) == [
        SessionStart(session="s", at=AT, place=place),
        Attribution(
            session="s", id="t1", at=AT, place=place, commit="", path="/w/a.py", start=2, end=3, author="ai"
        ),
        Quarantined(Place(str(path), 3), "not a range of lines"),
        Attribution(
            session="s", id="t2", at=AT, place=Place(str(path), 4), commit="", path="/w/a.py", start=2, end=3,
            author="ai",
        ),
    ]  # fmt: skip


def test_sessions_and_commands_travel_as_files(path: Path) -> None:
    begun = record(".sessions", id="r2", metadata={"event": "session_start", "session_id": "s"})
    shell = {"session_id": "s", "tool_name": "Bash", "tool_use_id": "t", "command": "ls"}
    ran = record(".shell-history", id="r3", metadata=shell)
    edited = record(id="r4", metadata={"session_id": "s"})
    items = read(path, begun, ran, edited)
    assert items[:2] == [
        SessionStart(session="s", at=AT, place=Place(str(path), 1), agent="cursor", version="2.4.0"),
        ToolUse(
            session="s", id="t", at=AT, place=Place(str(path), 2), name="Bash", arguments='{"command":"ls"}'
        ),
    ]
    assert [one.session for one in items[2:] if isinstance(one, Attribution)] == ["s", "s"]


def test_a_document_and_records_said_twice(tmp_path: Path) -> None:
    path, seen = tmp_path / "trace.json", Seen()
    path.write_text(json.dumps([record(), record(id="r2")], indent=1))
    assert agent_trace.recognises(path, path.read_bytes())
    items = list(agent_trace.read(path, seen))
    assert [one.id for one in items if isinstance(one, Attribution)] == ["r1", "r1", "r2", "r2"]
    assert list(agent_trace.read(path, seen)) == []


def test_what_cannot_be_read(path: Path) -> None:
    backwards = {"ranges": [{"start_line": 5, "end_line": 1}]}
    bad: dict[str, Any] = {"path": "b.py", "conversations": [{"url": 5}, backwards]}
    files = [{"conversations": []}, {"path": "a.py"}, 7, bad]
    reasons = [
        one.reason for one in read(path, record(files=files), {"a": 1}) if isinstance(one, Quarantined)
    ]
    assert reasons == [
        "no file", "a file without conversations", "no file", "a conversation without ranges",
        "not a range of lines", "not a trace record",
    ]  # fmt: skip


def test_recognised() -> None:
    path = Path("traces.jsonl")
    assert agent_trace.recognises(path, json.dumps(record()).encode())
    assert agent_trace.recognises(path, b"garbage\n" + json.dumps(flat()).encode())
    assert agent_trace.recognises(path, json.dumps(record()).encode()[:-80])  # a line longer than the head
    assert not agent_trace.recognises(path, b'{"version": "1", "files": ["a.py"], "timestamp": 1}')
    assert not agent_trace.recognises(path, b"")


@pytest.mark.skipif(not SAMPLE.is_file(), reason="the real traces in ../shared/data are not on this machine")
def test_the_real_file() -> None:
    items = list(agent_trace.read(SAMPLE, Seen()))
    assert Counter(type(one).__name__ for one in items) == {"Attribution": 35, "SessionStart": 2}
    assert {one.author for one in items if isinstance(one, Attribution)} == {"ai"}
