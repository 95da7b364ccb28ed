"""git-ai notes: both generations of keys, as files and out of a repository."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cursorbench.sessions import git_ai
from cursorbench.sessions.items import (
    AgentTurn,
    Attribution,
    Commit,
    Feedback,
    Place,
    Quarantined,
    Read,
    SessionStart,
    ToolEnd,
    ToolUse,
    UserTurn,
)
from cursorbench.sessions.seen import Seen
from tests.samples import DATA, real

SHA = "7734793b756b3921c88db5375a8c156e9532447b"
OLD, NEW, HUMAN = "abcd1234abcd1234", "s_c9883b05a2487d", "h_31dce776f88375"


def note(attested: str, **metadata: Any) -> str:
    told = {"schema_version": "authorship/3.0.0", "base_commit_sha": SHA, "prompts": {}, **metadata}
    return f"{attested}---\n{json.dumps(told, indent=2)}"


def agent(tool: str, one: str) -> dict[str, Any]:
    return {"agent_id": {"tool": tool, "id": one, "model": "m-1"}, "human_author": "dev@example.org"}


def read(path: Path, text: str, seen: Seen | None = None) -> list[Read]:
    path.write_text(text)
    return list(git_ai.read(path, seen or Seen()))


SESSIONS = note(
    f"src/main.rs\n  {NEW}::t_9f8e7d6c5b4a32 1-10,15\n  {HUMAN} 42-50\n",
    git_ai_version="1.4.5",
    sessions={NEW: agent("claude", "conv")},
    humans={HUMAN: {"author": "Dev <dev@example.org>"}},
)


def test_sessions_and_humans(tmp_path: Path) -> None:
    path = tmp_path / "note"
    file, second, third = str(path), Place(str(path), 2), Place(str(path), 3)
    told: dict[str, Any] = {"commit": SHA, "path": "src/main.rs"}
    ai: dict[str, Any] = {
        "session": "conv",
        "id": f"{NEW}::t_9f8e7d6c5b4a32",
        "place": second,
        "author": "ai",
        "agent": "claude",
        "model": "m-1",
    }
    assert read(path, SESSIONS) == [
        SessionStart(session="conv", place=Place(file, 5), agent="claude", version="1.4.5"),
        Commit(session="conv", place=Place(file, 5), sha=SHA, paths=("src/main.rs",)),
        Attribution(start=1, end=10, **ai, **told),
        Attribution(start=15, end=15, **ai, **told),
        Attribution(session="", id=HUMAN, place=third, start=42, end=50, author="human", **told),
    ]


def test_an_old_note_with_its_transcript(tmp_path: Path) -> None:
    messages = [
        {"type": "user", "text": "rename it", "timestamp": "2026-01-25T10:00:00Z"},
        {"type": "thinking", "text": "hm"},
        {"type": "assistant", "text": "done"},
        {"type": "tool_use", "name": "edit", "input": {"a": 1}},
        {"type": "dream"},
    ]
    record = {**agent("cursor", "chat"), "messages": messages, "accepted_lines": 3, "overriden_lines": 1}
    path, seen = tmp_path / "note", Seen()
    text = note(f'"a b.py"\n  {OLD} 1-3\n', prompts={OLD: record})
    place, told = Place(str(path), 4), {"session": "chat", "place": Place(str(path), 4)}
    items = read(path, text, seen)
    assert items[1:-1] == [
        UserTurn(at=1769335200000, text="rename it", **told),  # type: ignore[arg-type]
        AgentTurn(text="", thinking="hm", model="m-1", **told),  # type: ignore[arg-type]
        AgentTurn(text="done", model="m-1", **told),  # type: ignore[arg-type]
        ToolUse(id="tool-3", name="edit", arguments='{"a":1}', **told),  # type: ignore[arg-type]
        Quarantined(place, "unknown_type"),
        Feedback(target=f"{SHA}:{OLD}", name="git_ai.accepted_lines", value=3.0, **told),  # type: ignore[arg-type]
        Feedback(target=f"{SHA}:{OLD}", name="git_ai.overriden_lines", value=1.0, **told),  # type: ignore[arg-type]
        Commit(sha=SHA, paths=("a b.py",), **told),  # type: ignore[arg-type]
    ]
    assert isinstance(items[-1], Attribution)
    assert items[-1].path == "a b.py"
    later = note(f"c.py\n  {OLD} 7\n", prompts={OLD: record}, base_commit_sha="0" * 40)
    again = [one for one in read(tmp_path / "later", later, seen) if not isinstance(one, Quarantined)]
    assert [type(one) for one in again] == [Feedback, Feedback, Commit, Attribution]


def test_the_file_is_named_for_the_commit(tmp_path: Path) -> None:
    folder = tmp_path / "ab"
    folder.mkdir()
    items = read(folder / ("c" * 38), SESSIONS) + read(tmp_path / f"{'d' * 40}.txt", SESSIONS)
    assert {one.commit for one in items if isinstance(one, Attribution)} == {"ab" + "c" * 38, "d" * 40}


def said_by_claude(tmp_path: Path, version: str, *messages: dict[str, Any]) -> list[Read]:
    record = {**agent("claude", "chat"), "messages": list(messages)}
    told = {"git_ai_version": version} if version else {}
    return read(tmp_path / "note", note(f"a.py\n  {OLD} 1\n", prompts={OLD: record}, **told))


CALL = {"type": "tool_use", "name": "Read", "input": {}}
NO = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was a file "
    "edit, the new_string was NOT written to the file). To tell you how to proceed, the user said:\nnot there"
)


@pytest.mark.parametrize("version", ["", "1.0.28", "development:1.0.22", "1.0.9"])
def test_results_of_tools_that_stand_there_as_a_users_messages(tmp_path: Path, version: str) -> None:
    texts = ["     1\u2192use x;", "<tool_use_error>File does not exist.</tool_use_error>", NO]
    results = [{"type": "user", "text": text} for text in texts]
    items = said_by_claude(
        tmp_path, version,
        {"type": "user", "text": "look"}, CALL, CALL, CALL, *results, {"type": "user", "text": "why?"},
        CALL, {"type": "assistant", "text": "ok"}, {"type": "user", "text": "thanks"},
    )  # fmt: skip
    assert [one.text for one in items if isinstance(one, UserTurn)] == ["look", "why?", "thanks"]
    ends = [(one.id, one.outcome, one.reason) for one in items if isinstance(one, ToolEnd)]
    assert ends == [("tool-1", "ok", ""), ("tool-2", "error", ""), ("tool-3", "rejected", "not there")]
    assert [one.id for one in items if isinstance(one, ToolUse)] == ["tool-1", "tool-2", "tool-3", "tool-8"]


@pytest.mark.parametrize("version", ["1.0.29", "1.3.1", "development:1.1.4"])
def test_later_notes_have_a_persons_messages_behind_calls(tmp_path: Path, version: str) -> None:
    items = said_by_claude(
        tmp_path, version, {"type": "user", "text": "look"}, CALL, {"type": "user", "text": "no"}
    )
    assert [one.text for one in items if isinstance(one, UserTurn)] == ["look", "no"]


@pytest.mark.parametrize(
    ("key", "author", "session"),
    [
        ("human", "human", ""),
        ("ai_agent", "ai", ""),
        ("6f9c2d1e-0a4b-4c7d-9e8f-001122334455", "ai", "6f9c2d1e-0a4b-4c7d-9e8f-001122334455"),
    ],
)
def test_keys_that_are_no_digests(tmp_path: Path, key: str, author: str, session: str) -> None:
    items = read(tmp_path / "note", note(f"a.py\n  {key} 1-3,5\n  {OLD} 9\n", prompts={}))
    told = [(one.start, one.end, one.author, one.session) for one in items if isinstance(one, Attribution)]
    assert told[:2] == [(1, 3, author, session), (5, 5, author, session)]
    assert not [one for one in items if isinstance(one, Quarantined)]


def test_damage(tmp_path: Path) -> None:
    path = tmp_path / "note"
    attested = f"  {OLD} 1\na.py\n  {OLD} 1-2,x,5-4,0,7\n  what is this\n"
    items = read(path, attested + "---\n{oops")
    assert [(one.place.line, one.reason) for one in items if isinstance(one, Quarantined)] == [
        (1, "an attestation without a file"), (3, "not a range of lines"), (3, "not a range of lines"),
        (3, "not a range of lines"), (4, "not an attestation"), (6, "the note's metadata: not valid JSON"),
    ]  # fmt: skip
    kept = [(one.session, one.start, one.author) for one in items if isinstance(one, Attribution)]
    assert kept == [(OLD, 1, "ai"), (OLD, 7, "ai")]
    other = read(path, note("", schema_version="authorship/9"))
    assert other == [Quarantined(Place(str(path), 2), "unknown_version")]
    assert read(path, "a.py\n") == [Quarantined(Place(str(path)), "the note has no divider")]


def test_recognised() -> None:
    path = Path("note")
    assert git_ai.recognises(path, SESSIONS.encode())
    assert git_ai.recognises(path, note("").encode())
    assert git_ai.recognises(path, f"a.py\n  {OLD} 1-4\n".encode() * 10)
    assert not git_ai.recognises(path, b"---\ntitle: a post\n---\ntext")
    assert not git_ai.recognises(path, b'{"schema_version": "authorship/3.0.0"}')


def test_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    identity = {
        f"GIT_{who}_{what}": "x@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    environment = {**os.environ, **identity, "GIT_CONFIG_GLOBAL": os.devnull}

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(tmp_path), *words], env=environment, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    git("init", "-q")
    assert list(git_ai.read_repository(tmp_path, Seen())) == []
    shas = []
    for name in ("one", "two"):
        git("commit", "-q", "--allow-empty", "-m", name)
        git("notes", "--ref=ai", "add", "-m", SESSIONS)
        shas.append(git("rev-parse", "HEAD"))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "none"))  # as in a hook of another repository
    items = list(git_ai.read_repository(tmp_path, Seen()))
    assert {one.sha for one in items if isinstance(one, Commit)} == set(shas)
    assert len([one for one in items if isinstance(one, Attribution)]) == 6
    assert len([one for one in items if isinstance(one, SessionStart)]) == 1
    assert items[0].place.file == f"{tmp_path}:refs/notes/ai/{min(shas)}"
    git("commit", "-q", "--allow-empty", "-m", "three")
    git("notes", "--ref=ai", "add", "-m", "0" * 100_000)  # a gigabyte of them is a megabyte in git
    monkeypatch.setattr(git_ai, "MAX_NOTE", 90_000)
    told = list(git_ai.read_repository(tmp_path, Seen()))
    large = Quarantined(
        Place(f"{tmp_path}:refs/notes/ai/{git('rev-parse', 'HEAD')}"), "the note is larger than 256 MiB"
    )
    assert large in told
    assert [one for one in told if one != large] == items, "what is behind it is read"
    with pytest.raises(OSError, match="git could not list its notes"):
        list(git_ai.read_repository(tmp_path / "none", Seen()))


@real
def test_the_fixtures_of_git_ai_are_other_tools_logs() -> None:
    for path in (DATA / "fixtures_git-ai").rglob("*"):
        assert path.is_dir() or not git_ai.recognises(path, path.read_bytes()[: 64 << 10])


def test_a_persons_key_may_come_to_have_a_trace_id(tmp_path: Path) -> None:
    told = read(tmp_path / "note", note(f"a.rs\n  {HUMAN}::t_a1b2c3d4e5f678 3\n"))
    assert [(one.author, one.session) for one in told if isinstance(one, Attribution)] == [("human", "")]
    assert not any(isinstance(one, Quarantined) for one in told)


def test_a_model_that_no_agent_told_is_none(tmp_path: Path) -> None:
    """It was the model `unknown`: git-ai's word where the agent tells none, as Copilot's in VS Code."""
    record = {**agent("github-copilot", "conv"), "messages": [{"type": "assistant", "text": "done"}]}
    record["agent_id"]["model"] = "unknown"
    items = read(tmp_path / "note", note(f"a.py\n  {OLD} 1-2\n", prompts={OLD: record}))
    told = [one.model for one in items if isinstance(one, AgentTurn | Attribution)]
    assert told == ["", ""]
