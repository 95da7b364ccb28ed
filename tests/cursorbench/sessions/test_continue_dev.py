"""Continue's development data: every event, in files of all versions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cursorbench.sessions import continue_dev
from cursorbench.sessions.continue_answers import words_of
from cursorbench.sessions.items import (
    AgentTurn,
    Completion,
    Edit,
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

AT = 1769335200000
BASE = {
    "timestamp": "2026-01-25T10:00:00.000Z",
    "userId": "u",
    "userAgent": "VSCode",
    "selectedProfileId": "local",
}


def read(path: Path, *events: object, seen: Seen | None = None) -> list[Read]:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(one) + "\n" for one in events))
    return list(continue_dev.read(path, seen or Seen()))


def event(name: str, **more: Any) -> dict[str, Any]:
    return {"eventName": name, "schema": "0.2.0", **BASE, **more}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


def test_completions(path: Path) -> None:
    shown = event(
        "autocomplete",
        completionId="c1",
        prompt="p",
        completion="x",
        modelName="m",
        filepath="a.py",
        accepted=True,
    )
    refused = event("autocomplete", completionId="c2", accepted=False, modelName="m")  # level noCode
    left = event("nextEditOutcome", completionId="c3", fileUri="file:///a.py", completion="y", aborted=True)
    left["timestamp"] = AT
    items = read(path, shown, shown, refused, left, event("autocomplete"))
    places = [Place(str(path), n) for n in range(1, 6)]
    assert items == [
        Completion(
            session="",
            id="c1",
            at=AT,
            place=places[0],
            path="a.py",
            prompt="p",
            text="x",
            accepted=True,
            model="m",
        ),
        Completion(session="", id="c2", at=AT, place=places[2], accepted=False, model="m"),
        Completion(session="", id="c3", at=AT, place=places[3], path="/a.py", text="y", accepted=None),
        Quarantined(places[4], "a completion without id, text and outcome"),
    ]


def test_a_completion_that_was_accepted_after_ten_seconds(path: Path) -> None:
    """Continue logs it twice, as refused at first; the second event was passed over."""
    refused = event("autocomplete", completionId="c1", completion="x", accepted=False)
    items = read(path, refused, {**refused, "accepted": True}, {**refused, "completionId": "c2"})
    assert [(one.id, one.accepted) for one in items if isinstance(one, Completion)] == [
        ("c1", True),
        ("c2", False),
    ]


def test_a_chat_with_a_tool_call_and_a_thumb(path: Path) -> None:
    first = "<system>\nbe kind\n\n<user>\nrename f\n\n"
    second = f"{first}<assistant>\non it\n\n<tool>\nok\n\n"
    items = read(
        path,
        event("chatInteraction", sessionId="s", prompt=first, completion="on it", modelName="m"),
        event("chatInteraction", sessionId="s", prompt=second, completion="done", modelName="m"),
        event("chatFeedback", sessionId="s", prompt=second, completion="done", feedback=False),
        event("chatFeedback", sessionId="s"),
    )
    places = [Place(str(path), n) for n in range(1, 5)]
    answers = [one.id for one in items if isinstance(one, AgentTurn)]
    first_shown, second_shown = (one.span for one in items if isinstance(one, AgentTurn))
    said: dict[str, Any] = {"session": "s", "at": AT, "model": "m"}
    assert items == [
        SessionStart(session="s", at=AT, place=places[0], agent="continue"),
        UserTurn(session="s", at=AT, place=places[0], text="rename f"),
        AgentTurn(**said, id=answers[0], span=first_shown, place=places[0], text="on it"),
        AgentTurn(**said, id=answers[1], span=second_shown, place=places[1], text="done"),
        Feedback(session="s", at=AT, place=places[2], target=answers[1], name="thumb", value=False),
        Quarantined(places[3], "feedback without a verdict"),
    ]


def test_a_thumb_in_a_copy_of_the_file_is_told_once(path: Path) -> None:
    up = event("chatFeedback", sessionId="s", completion="done", feedback=True)
    later = {**up, "timestamp": "2026-01-02T03:05:05Z", "feedback": False}
    seen = Seen()
    found = [*read(path, up, seen=seen), *read(path, up, later, seen=seen)]
    assert [one.value for one in found if isinstance(one, Feedback)] == [True, False]


def test_an_edit_and_its_outcome(path: Path) -> None:
    asked = {"prompt": "shorter", "completion": "after", "filepath": "a.py", "modelName": "m"}
    items = read(
        path,
        event("editInteraction", **asked),
        event("editOutcome", **asked, previousCode="before", newCode="after", accepted=False),
        event("editOutcome", filepath="a.py"),
    )
    places = [Place(str(path), n) for n in range(1, 4)]
    one = items[0].id if isinstance(items[0], UserTurn) else ""
    told: dict[str, Any] = {"session": "", "id": one, "at": AT}
    assert len(one) == 24
    assert items == [
        UserTurn(place=places[0], text="shorter", **told),
        AgentTurn(place=places[0], text="after", model="m", **told),
        Edit(place=places[0], path="a.py", status="proposed", answer=one, **told),
        Edit(
            place=places[1],
            path="a.py",
            status="rejected",
            before="before",
            after="after",
            answer=one,
            **told,
        ),
        Quarantined(places[2], "an edit without an outcome"),
    ]


def test_the_second_edit_of_an_answer_names_it_and_one_without_texts_names_none(path: Path) -> None:
    asked = {"prompt": "shorter", "completion": "after", "filepath": "a.py", "accepted": True}
    items = read(
        path,
        event("editInteraction", **asked),
        event("editOutcome", **asked, previousCode="1", newCode="2"),
        event("editOutcome", **asked, previousCode="3", newCode="4"),
        event("editOutcome", filepath="a.py", accepted=False),  # at level noCode
    )
    _, first, second, bare = (item for item in items if isinstance(item, Edit))
    assert first.answer == second.answer == first.id
    assert second.id not in ("", first.id)
    assert (bare.id, bare.answer) == ("", "?")


def test_an_edit_of_an_agents_names_the_answer_of_the_chat(path: Path) -> None:
    """What Continue logs of a streamed answer: pieces with a header each, and calls behind the words."""
    pieces = ["I fix", " a.py.\n", "", "\nedit()", '\nundefined({"path":)', '\nundefined("a.py"})', ""]
    completion = "".join(f"<assistant>\n{piece}\n\n" for piece in pieces)
    outcome = {"prompt": "fix it", "filepath": "a.py", "accepted": False, "previousCode": "1", "newCode": "2"}
    items = read(
        path,
        event("chatInteraction", sessionId="s", prompt="<user>\nfix it\n\n", completion=completion),
        event("editOutcome", **outcome, completion="I fix a.py.\n"),
        event("editOutcome", **outcome, completion=""),  # nothing but a call: of which answer is not told
        event("chatFeedback", sessionId="s", completion=completion, feedback=True),
    )
    (turn,) = (one for one in items if isinstance(one, AgentTurn))
    first, second = (one for one in items if isinstance(one, Edit))
    (thumb,) = (one for one in items if isinstance(one, Feedback))
    assert turn.text == "I fix a.py.\n"
    assert (first.answer, second.answer, first.status) == (turn.span, "?", "rejected")
    assert thumb.target == turn.id
    plain = "<assistant>\nUse\n\n<assistant>\n\nf()\n\n"
    assert words_of(plain) == "Use\nf()"


def test_quick_edits_of_the_first_version(tmp_path: Path) -> None:
    path = tmp_path / "dev_data/0.1.0/quickEdit.jsonl"
    diffs = [
        {"type": "same", "line": "a"},
        {"type": "old", "line": "b"},
        {"type": "new", "line": "c"},
        {"type": "?"},
    ]
    place = Place(str(path), 1)
    assert read(path, {"prompt": "do", "path": "a.py", "label": "l", "diffs": diffs}) == [
        UserTurn(session="", place=place, text="do"),
        Edit(session="", place=place, path="a.py", status="proposed", diff=" a\n-b\n+c"),
    ]


@pytest.mark.parametrize(
    ("accepted", "succeeded", "outcome"),
    [(True, True, "ok"), (False, False, "error"), (False, True, "rejected"), (True, False, "error")],
)
def test_tools(path: Path, accepted: bool, succeeded: bool, outcome: Any) -> None:
    output = [{"name": "n", "content": "text"}, "more"]
    call = event(
        "toolUsage", toolCallId="t", functionName="run", toolCallArgs='{"a": 1}', accepted=accepted,
        succeeded=succeeded, output=output,
    )  # fmt: skip
    place = Place(str(path), 1)
    assert read(path, call, call) == [
        ToolUse(session="", id="t", at=AT, place=place, name="run", arguments='{"a": 1}'),
        ToolEnd(session="", id="t", at=AT, place=place, outcome=outcome, text="text\nmore"),
    ]


def test_tools_of_older_versions(path: Path) -> None:
    broken = event("toolUsage", toolCallId="t", functionName="run", functionArgs='{"a": ')
    parsed = event("toolUsage", toolCallId="u", functionName="run", parsedArgs={"a": 1})
    items = [one for one in read(path, broken, parsed) if isinstance(one, ToolUse)]
    assert [(one.arguments, bool(one.invalid)) for one in items] == [('{"a": ', True), ('{"a":1}', False)]


def test_names_come_from_the_event_its_envelope_the_file_or_its_fields(tmp_path: Path) -> None:
    bare = {"completionId": "c", "cacheHit": False, "accepted": True}
    rated = {"sessionId": "s", "feedback": True, "prompt": "p", "completion": "c"}
    for path, given in (
        (tmp_path / "x.jsonl", {"name": "autocomplete", "data": bare, "schema": "0.2.0", "level": "all"}),
        (tmp_path / "x.jsonl", bare),
        (tmp_path / "dev_data/0.2.0/autocomplete.jsonl", {"completionId": "c", "accepted": True}),
    ):
        assert [type(one) for one in read(path, given)] == [Completion]
        assert continue_dev.recognises(path, json.dumps(given).encode())
    assert isinstance(read(tmp_path / "dev_data/chat.jsonl", rated)[1], Feedback)


def test_what_is_known_and_says_nothing_and_what_is_not_known(path: Path) -> None:
    quiet = [event("tokensGenerated", model="m"), event("nextEditWithHistory"), event("nextEdit")]
    assert read(path, *quiet) == []
    assert [one.reason for one in read(path, event("dream?"), {"a": 1}) if isinstance(one, Quarantined)] == [
        "unknown_type",
        "unknown_type",
    ]


def test_recognised() -> None:
    path = Path("log.jsonl")
    assert continue_dev.recognises(path, json.dumps(event("toolUsage")).encode())
    assert not continue_dev.recognises(path, b'{"type": "user", "message": {}}')
    assert not continue_dev.recognises(path, b"text")
