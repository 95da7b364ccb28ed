"""`scripts/followup`: which messages are follow-ups, with what context, and nothing private in them."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursorbench.errors import InputMissingError, UsageError
from cursorbench.sessions.items import (
    AgentTurn,
    Edit,
    Interrupt,
    Place,
    Quarantined,
    Read,
    ToolEnd,
    ToolUse,
    UserTurn,
)
from tests.samples import DATA, real

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))

from followup import batches, extract, texts  # noqa: E402
from followup.candidates import Between, Candidate, Source, candidates, identity  # noqa: E402

AT = Place("log", 1)
SOURCE = Source(folder="here", repository="a/b", licence="MIT")


def user(text: str, session: str = "s", automatic: str = "") -> UserTurn:
    return UserTurn(session=session, place=AT, text=text, automatic=automatic)  # type: ignore[arg-type]


def agent(text: str, session: str = "s") -> AgentTurn:
    return AgentTurn(session=session, place=AT, text=text)


def found(*items: Read) -> tuple[list[Candidate], Counter[str]]:
    left_out: Counter[str] = Counter()
    return list(candidates((("k", item) for item in items), SOURCE, left_out)), left_out


def test_a_follow_up_comes_after_something_the_agent_did() -> None:
    rows, left_out = found(user("do it"), user("please"), agent("done"), user("it fails"), user("still"))
    assert [(row.message, row.request, row.answer_end, row.position) for row in rows] == [
        ("it fails", "please", "done", 2),
        ("still", "it fails", "done", 3),
    ]
    assert [row.between.answers for row in rows] == [1, 0]
    assert left_out == {"before any answer": 2}


def test_what_no_person_wrote_is_no_message_and_ends_no_answer() -> None:
    rows, left_out = found(
        user("do it"), agent("one"), user("/undo", automatic="command"), agent("two"), user("thanks")
    )
    assert [(row.message, row.request, row.answer_end) for row in rows] == [("thanks", "do it", "one\ntwo")]
    assert left_out == {"before any answer": 1, "automatic: command": 1}


def test_what_happened_between_is_counted_by_the_last_status() -> None:
    def edit(name: str, status: str) -> Edit:
        return Edit(session="s", place=AT, id=name, path="a.py", status=status)  # type: ignore[arg-type]

    def end(outcome: str) -> ToolEnd:
        return ToolEnd(session="s", place=AT, outcome=outcome)  # type: ignore[arg-type]

    rows, _ = found(
        user("do it"),
        ToolUse(session="s", place=AT, name="edit"),
        edit("1", "proposed"),
        edit("1", "applied"),
        edit("2", "applied"),
        edit("3", "rejected"),
        end("error"),
        end("rejected"),
        end("ok"),
        edit("2", "undone"),
        Interrupt(session="s", place=AT),
        user("no"),
        user("well"),
    )
    assert rows[0].between == Between(
        tool_calls=1,
        tool_errors=1,
        tool_rejections=1,
        edits_applied=1,
        edits_rejected=1,
        edits_undone=1,
        interrupts=1,
    )
    assert rows[1].between == Between()


def test_sessions_are_apart_and_a_text_counts_once_in_each() -> None:
    rows, left_out = found(
        user("a", "1"), user("b", "2"), agent("A", "1"), user("go", "2"), user("go", "1"), user(" go\n", "1")
    )
    assert [(row.session, row.message, row.request) for row in rows] == [("1", "go", "a")]
    assert left_out == {"before any answer": 3, "said before in the session": 1}


def test_the_same_moment_in_another_session_is_a_copy() -> None:
    again = [item for s in "12" for item in (user("a", s), agent("A", s), user("go", s))]
    rows, left_out = found(*again)
    assert len(rows) == 1
    assert left_out["copy of another session"] == 1


def test_what_cannot_be_read_is_counted() -> None:
    assert found(Quarantined(AT, "no JSON")) == ([], Counter({"quarantined: no JSON": 1}))


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("mail a.b+c@example.co.uk now", "mail [redacted:email] now"),
        (
            "in /home/anna/x and /Users/bob/y",
            "in /home/[redacted:home_path]/x and /Users/[redacted:home_path]/y",
        ),
        (r"C:\Users\Anna Bo - firm.com\Documents", r"C:\Users\[redacted:home_path]\Documents"),
        (r"C:\\Users\\anna\\x", r"C:\\Users\\[redacted:home_path]\\x"),
        ("key sk-proj-abcdefghijklmnop1234 end", "key [redacted:api_key] end"),
        ("API_KEY=abcd1234efgh", "API_KEY=[redacted:credential]"),
        ('"password": "hunter2hunter2"', '"password": "[redacted:credential]"'),
        ("postgres://me:pw@db/x", "postgres://me:[redacted:credential]@db/x"),
        ("Authorization: Bearer abc.def.ghi-123", "Authorization: Bearer [redacted:credential]"),
        ("commit 0123456789abcdef0123456789abcdef01234567", None),
        ("on 10.1.2.3, not 127.0.0.1", "on <address>, not 127.0.0.1"),
        ("token_count = compute(tokens)", "token_count = compute(tokens)"),
        ("the AuthenticationManagerFactoryBeanConfigurationProperties class", None),
    ],
)
def test_masking(text: str, masked: str | None) -> None:
    assert texts.mask(text) == (text if masked is None else masked)


@given(st.text(max_size=3000))
def test_excerpts_are_short_and_every_text_has_one(text: str) -> None:
    marks = 60  # "[... 1234 characters ...]" and two line ends
    assert len(texts.message(text)) <= texts.MESSAGE_CHARACTERS + marks
    assert len(texts.request(text)) <= texts.REQUEST_CHARACTERS + marks
    assert len(texts.answer_end([text, text])) <= texts.ANSWER_CHARACTERS + marks


def test_a_long_message_keeps_head_and_tail() -> None:
    assert texts.shorten("a" * 60 + "b" * 60, 30) == "a" * 20 + "\n[... 90 characters ...]\n" + "b" * 10


def test_long_code_is_folded() -> None:
    code = "".join(f"line {n}\n" for n in range(9))
    assert texts.fold(f"see\n```python\n{code}```\nend") == "see\n[code block python, 9 lines]\nend"
    assert texts.fold("```\na\n```") == "```\na\n```"


def test_batches_say_nothing_of_the_source() -> None:
    rows, _ = found(user("a"), agent("A"), *(user(f"m{n}") for n in range(7)))
    made = batches.batches(rows, 3, seed=1)
    assert [len(batch) for batch in made] == [2, 2, 3]
    assert {question.id for batch in made for question in batch} == {row.id for row in rows}
    assert set(batches.Question.__struct_fields__) == {"id", "request", "answer_end", "between", "message"}
    assert batches.batches(list(reversed(rows)), 3, seed=1) == made
    assert len(batches.drawn(rows, 4)) == 4


def test_bad_lists_of_sources_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputMissingError):
        extract.sources(tmp_path / "none.tsv")
    (tmp_path / "bad.tsv").write_text("folder\trepository\tlicence\nx\ta/b\t\n")
    with pytest.raises(UsageError, match=r"line 2: no licence"):
        extract.sources(tmp_path / "bad.tsv")


def test_logs_under_other_licences_are_left_out(tmp_path: Path) -> None:
    source = Source(folder="x", repository="a/b", licence="GPL-3.0")
    assert extract.collect([source], tmp_path) == ([], {"x": {"licence_not_permissive": "GPL-3.0"}})


@real
def test_the_real_sessions_give_what_the_readers_tell() -> None:
    listed = SCRIPTS / "followup/sources.tsv"
    run = subprocess.run(
        [sys.executable, SCRIPTS / "followup/extract.py", listed, "--root", DATA, "--out", "/dev/stdout"],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = run.stdout.splitlines()
    start = lines.index("{")
    rows, report = [json.loads(line) for line in lines[:start]], json.loads("\n".join(lines[start:]))
    assert report["messages"] == len(rows) == len({row["id"] for row in rows}) > 700
    assert Counter(row["licence"] for row in rows).keys() == {"MIT", "Apache-2.0"}
    assert report["sources"]["entire_nimbus"] == {"licence_not_permissive": "MIT (README only)"}
    turns = {"entire_entireio_cli": 86, "specstory_ktsu_BlastMerge": 105, "specstory_league_analyzer": 208}
    for folder, total in turns.items():  # people's messages, by the tests of the readers
        told = report["sources"][folder]
        others = sum(n for why, n in told["left_out"].items() if not why.startswith("automatic"))
        assert told["messages"] + others == total
    private = re.compile(r"[\w.+-]+@[\w-]+\.[A-Za-z]\w+|/(?:home|Users)/(?!\[redacted)\w|sk-[a-zA-Z0-9]{20}")
    shown = ("message", "request", "answer_end")
    assert not [row["id"] for row in rows if any(private.search(row[name]) for name in shown)]


def test_every_source_of_the_list_names_its_licence() -> None:
    with (SCRIPTS / "followup/sources.tsv").open() as file:
        assert all(row["licence"] and row["repository"] for row in csv.DictReader(file, delimiter="\t"))


def test_an_id_does_not_depend_on_spaces() -> None:
    assert (
        identity("a/b", "s", "it  fails\n")
        == identity("a/b", "s", "it fails")
        != identity("a/c", "s", "it fails")
    )
