"""Which of a user's words caused a commit: sessions made item by item, commits in a real repository."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cursorbench.builder.requests import Traced, trace
from cursorbench.builder.told import Told, items_of, told
from cursorbench.errors import InputMissingError
from cursorbench.history.repository import Repository
from cursorbench.sessions.items import (
    AgentTurn,
    Attribution,
    Commit,
    Edit,
    Place,
    Quarantined,
    Read,
    SessionStart,
    UserTurn,
)
from tests.cursorbench.history.gits import HOUR, T0, Git

HERE = Place("log")
BASE = "def price(row):\n    return row.price\n"
FIRST = BASE + "\n\ndef total(rows):\n    return sum(price(row) for row in rows)\n"
SECOND = FIRST + "\n\ndef mean_of_rows(rows):\n    return total(rows) / len(rows)\n"


def user(text: str, at: int, automatic: str = "", session: str = "s") -> UserTurn:
    return UserTurn(session=session, at=T0 + at, place=HERE, text=text, automatic=automatic)  # type: ignore[arg-type]


def agent(name: str, at: int) -> AgentTurn:
    return AgentTurn(session="s", id=name, at=T0 + at, place=HERE, text="…")


def edit(name: str, at: int, before: str, after: str, session: str = "s") -> Edit:
    return Edit(
        session=session,
        id=name,
        at=T0 + at,
        place=HERE,
        path="/home/u/shop/shop.py",
        status="applied",
        before=before,
        after=after,
    )


def traced(git: Git, *items: Read) -> tuple[Told, Traced]:
    said = told(items)
    with Repository(git.folder) as repository:
        return said, trace(repository, "HEAD", said)


@pytest.fixture
def shop(tmp_path: Path) -> tuple[Git, str, str]:
    """A repository with two commits that took edits, at 1 h and 2 h."""
    git = Git(tmp_path / "shop")
    git.commit(0, {"shop.py": BASE})
    first = git.commit(HOUR, {"shop.py": FIRST}, "total")
    second = git.commit(2 * HOUR, {"shop.py": SECOND}, "mean")
    return git, first, second


def test_the_words_before_the_first_edit_of_each_commit(shop: tuple[Git, str, str]) -> None:
    git, first, second = shop
    _, found = traced(
        git,
        user("hi there, can you sum up all rows?", 1_000),
        agent("1", 2_000),
        user("as a function of its own please", 3_000),
        user("output of a tool", 3_500, "tool_result"),
        agent("2", 4_000),
        edit("e1", 5_000, BASE, FIRST),
        agent("3", 6_000),
        user("thanks. now the mean of them too", HOUR + 1_000),
        agent("4", HOUR + 2_000),
        edit("e2", HOUR + 3_000, FIRST, SECOND),
    )
    one, two = found.requests[first], found.requests[second]
    assert one.text == "hi there, can you sum up all rows?\n\nas a function of its own please"
    assert (one.session, one.how, one.messages, one.turns) == ("s", "content", 2, 2)
    assert (two.text, two.messages, two.turns) == ("thanks. now the mean of them too", 1, 2)
    assert found.silent == {}


def test_what_the_log_names_is_surer_than_content(shop: tuple[Git, str, str]) -> None:
    git, first, _ = shop
    named = Commit(session="s", sha=first[:10], at=T0 + HOUR, place=HERE)
    _, found = traced(git, user("sum up all the rows", 1), edit("e1", 5_000, BASE, FIRST), named)
    assert found.requests[first].how == "sha"


def test_a_sub_agents_edits_are_its_parents(shop: tuple[Git, str, str]) -> None:
    git, first, _ = shop
    child = SessionStart(session="child", parent="s", at=T0, place=HERE)
    _, found = traced(
        git,
        user("sum up all the rows", 1_000),
        child,
        user("You are a sub-agent. Sum up.", 2_000, session="child"),
        edit("e1", 3_000, BASE, FIRST, session="child"),
    )
    assert found.requests[first].text == "sum up all the rows"


@pytest.mark.parametrize("words", ["对所有行求和", "全行を合計してください", "รวมทุกแถว"])
def test_words_without_blanks_between_them(shop: tuple[Git, str, str], words: str) -> None:
    """Each was one word, and so an assent to nothing."""
    git, first, _ = shop
    _, found = traced(git, user(words, 1_000), edit("e1", 5_000, BASE, FIRST))
    assert found.requests[first].text == words
    _, found = traced(git, user("好的，继续", 1_000), edit("e1", 5_000, BASE, FIRST))
    assert found.silent == {first: "only_assent"}


@pytest.mark.parametrize(
    ("words", "assent"),
    [
        ("yes, go on", True),
        ("Ok, please do that.", True),
        ("Looks good, let’s implement the plan!", True),
        ("yes, but sum all rows", False),
        ("go on with the rows", False),
        ("x: y z", False),
        ("404 405 406", False),
    ],
)
def test_words_of_assent_alone(shop: tuple[Git, str, str], words: str, assent: bool) -> None:
    """Of three words, it was all that a task said."""
    git, first, _ = shop
    _, found = traced(git, user(words, 1_000), edit("e1", 5_000, BASE, FIRST))
    assert found.silent == ({first: "only_assent"} if assent else {})


def test_assent_alone_says_nothing(shop: tuple[Git, str, str]) -> None:
    git, first, _ = shop
    _, found = traced(git, user("yes", 1_000), edit("e1", 5_000, BASE, FIRST))
    assert (dict(found.requests), found.silent) == ({}, {first: "only_assent"})
    _, found = traced(
        git, user("ok go", 1_000), user("sum up all rows", 2_000), edit("e1", 5_000, BASE, FIRST)
    )
    assert found.requests[first].text == "sum up all rows"
    _, found = traced(git, edit("e1", 5_000, BASE, FIRST))
    assert found.silent == {first: "no_words"}


def test_two_commits_of_one_request(shop: tuple[Git, str, str]) -> None:
    """Nothing was said between the edits: the request before caused both."""
    git, first, second = shop
    _, found = traced(
        git,
        user("sum and mean of all rows", 1_000),
        edit("e1", 5_000, BASE, FIRST),
        edit("e2", 6_000, FIRST, SECOND),
    )
    assert found.requests[first].text == found.requests[second].text == "sum and mean of all rows"


def test_attributed_lines_name_a_session(shop: tuple[Git, str, str]) -> None:
    git, _, second = shop
    by = Attribution(session="s", place=HERE, commit=second, path="shop.py", start=8, end=9, author="ai")
    _, found = traced(git, user("the mean of all rows", 1_000), by)
    assert (found.requests[second].how, found.requests[second].turns) == ("attribution", None)
    human = Attribution(
        session="s", place=HERE, commit=second, path="shop.py", start=8, end=9, author="human"
    )
    _, found = traced(git, user("the mean of all rows", 1_000), human)
    assert not found.requests


def test_a_commit_that_only_the_log_names(shop: tuple[Git, str, str]) -> None:
    """Its edits were rewritten before: the words between the commit before and it, before its first edit."""
    git, first, second = shop
    names = [
        Commit(session="s", sha=sha, at=T0 + at, place=HERE)
        for sha, at in ((first, HOUR), (second, 2 * HOUR))
    ]
    one, two = (
        Edit(
            session="s",
            id=name,
            at=T0 + at,
            place=HERE,
            path="/home/u/shop/draft.py",
            status="applied",
            after=name * 9,
        )
        for name, at in (("e1", 5_000), ("e2", HOUR + 120_000))
    )
    _, found = traced(
        git,
        user("sum up all the rows", 1_000),
        one,
        user("and the mean of them", HOUR + 1_000),
        two,
        user("now push it all", HOUR + 130_000),
        *names,
    )
    assert {commit: (request.text, request.how) for commit, request in found.requests.items()} == {
        first: ("sum up all the rows", "log"),
        second: ("and the mean of them", "log"),
    }
    _, found = traced(git, user("sum up all the rows", 1_000), names[0])
    assert found.silent == {first: "no_edits"}


def test_undone_and_rejected_edits_cause_nothing(shop: tuple[Git, str, str]) -> None:
    git, first, _ = shop
    made = edit("e1", 5_000, BASE, FIRST)
    undone = Edit(session="s", id="e1", place=HERE, path=made.path, status="undone")
    _, found = traced(git, user("sum up all the rows", 1_000), made, undone)
    assert first not in found.requests
    rejected = Edit(
        session="s", id="e1", place=HERE, path=made.path, status="rejected", before=BASE, after=FIRST
    )
    _, found = traced(git, user("sum up all the rows", 1_000), rejected)
    assert first not in found.requests


def test_a_log_on_disk(shop: tuple[Git, str, str], tmp_path: Path) -> None:
    """Claude Code's own format, by the reader of it; what cannot be read is counted."""
    git, first, _ = shop
    stamp = "2023-11-14T22:20:00.000Z"
    common = {"sessionId": "s1", "cwd": "/home/u/shop", "timestamp": stamp, "version": "1.0"}
    path = "/home/u/shop/shop.py"
    asked = {"file_path": path, "old_string": BASE, "new_string": FIRST}
    call = {"type": "tool_use", "id": "t1", "name": "Edit", "input": asked}
    done = {"filePath": path, "oldString": BASE, "newString": FIRST}
    result = {"type": "tool_result", "tool_use_id": "t1"}
    lines = [
        {**common, "type": "user", "uuid": "1", "message": {"content": "please sum up the rows"}},
        {**common, "type": "assistant", "uuid": "2", "message": {"id": "m", "content": [call]}},
        {**common, "type": "user", "uuid": "3", "toolUseResult": done, "message": {"content": [result]}},
    ]  # fmt: skip
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "s1.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (tmp_path / "logs" / "noise.bin").write_bytes(b"\0\1")
    said, found = traced(git, *items_of([tmp_path / "logs"]))
    assert found.requests[first].text == "please sum up the rows"
    assert said.unread["unknown_kind"] == 1


def test_a_log_that_is_named_twice_is_told_once(shop: tuple[Git, str, str], tmp_path: Path) -> None:
    """By a folder and by itself, or with a copy of it: the prompt had all words of the user's twice."""
    git, first, _ = shop
    logs, kept = tmp_path / "logs", tmp_path / "kept"
    asked = {"file_path": "/home/u/shop/shop.py", "old_string": BASE, "new_string": FIRST}
    call = {"type": "tool_use", "id": "t1", "name": "Edit", "input": asked}
    done = {"filePath": "/home/u/shop/shop.py", "oldString": BASE, "newString": FIRST}
    about = {"sessionId": "s1", "cwd": "/home/u/shop", "version": "1.0"}
    said: list[dict[str, Any]] = [
        {"type": "user", "message": {"content": "please sum up the rows"}},
        {"type": "assistant", "message": {"id": "m", "content": [call]}},
        {
            "type": "user",
            "toolUseResult": done,
            "message": {"content": [{"type": "tool_result", "tool_use_id": "t1"}]},
        },
    ]
    stamp = "2023-11-14T22:20:00.000Z"
    lines = [json.dumps({**about, "uuid": str(n), "timestamp": stamp, **one}) for n, one in enumerate(said)]
    for folder in (logs, kept):
        folder.mkdir()
        (folder / "s1.jsonl").write_text("\n".join(lines) + "\n")
    with (kept / "s1.jsonl").open("a") as file:  # of a later day: not the same bytes
        file.write(
            json.dumps({**about, "uuid": "9", "type": "user", "message": {"content": "thanks"}}) + "\n"
        )
    told_once = list(items_of([logs]))
    assert list(items_of([logs / "s1.jsonl", logs])) == told_once
    _, found = traced(git, *items_of([logs / "s1.jsonl", logs, kept]))
    assert found.requests[first].text == "please sum up the rows"


def test_a_session_that_two_kinds_of_logs_have_is_told_once(tmp_path: Path) -> None:
    """By the agent's own, whatever comes first: each of a person's words was in the prompt twice."""
    session, words = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0", "please sum up the rows"
    (tmp_path / "history").mkdir()
    (tmp_path / "history" / "a.md").write_text(
        "<!-- Generated by SpecStory, Markdown v2.1.0 -->\n\n"
        f"<!-- Claude Code Session {session} (2023-11-14 22:20:00Z) -->\n\n"
        f"_**User (2023-11-14 22:20:00Z)**_\n\n{words}\n\n---\n\n"
        "_**Agent (claude-x 2023-11-14 22:20:30Z)**_\n\nDone.\n"
    )
    about = {
        "sessionId": session,
        "cwd": "/home/u/shop",
        "version": "1.0",
        "timestamp": "2023-11-14T22:20:00Z",
    }
    said = {"content": [{"type": "text", "text": "Done."}], "id": "m", "model": "claude-x"}
    lines = [
        {**about, "type": "user", "uuid": "1", "message": {"content": words}},
        {**about, "type": "assistant", "uuid": "2", "message": said},
    ]
    (tmp_path / "s1.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    for paths in ([tmp_path / "history"], [tmp_path], [tmp_path / "history", tmp_path / "s1.jsonl"]):
        found = told(items_of(paths))
        assert [one.text for one in found.sessions[session].moments if one.what == "user"] == [words]
        assert not found.unread


def test_a_repository_whose_sessions_were_told_before_holds_some(
    shop: tuple[Git, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its notes, and by its files, of which another folder has the same."""
    git = shop[0]
    git("notes", "--ref=ai", "add", "-m", "app.py\n  s_a 1")
    once = list(items_of([git.folder]))
    assert any(isinstance(item, Quarantined | Attribution) for item in once)
    assert list(items_of([git.folder] * 2)) == once
    git("update-ref", "-d", "refs/notes/ai")
    words = {"uuid": "1", "sessionId": "s1", "type": "user", "message": {"content": "sum up", "role": "user"}}
    line = json.dumps({**words, "cwd": "/w", "version": "1.0", "timestamp": "2023-11-14T22:20:00Z"}) + "\n"
    for folder in (tmp_path / "logs", git.folder):
        folder.mkdir(exist_ok=True)
        (folder / "s1.jsonl").write_text(line)
    assert list(items_of([tmp_path / "logs", git.folder])) == list(items_of([tmp_path / "logs"]))
    monkeypatch.chdir(git.folder)
    assert len(list(items_of([Path()]))) == len(list(items_of([tmp_path / "logs"])))


def test_a_repository_without_sessions(shop: tuple[Git, str, str], tmp_path: Path) -> None:
    with pytest.raises(InputMissingError, match="holds no sessions"):
        list(items_of([shop[0].folder]))
    assert told([Quarantined(HERE, "not valid JSON")]).unread == {"not valid JSON": 1}
