"""Feedback calls in the manner of TensorZero."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cursorbench.sessions import tensorzero
from cursorbench.sessions.items import Feedback, Place, Quarantined, Read, SessionStart
from cursorbench.sessions.seen import Seen

MADE = 0x019DA0000000  # milliseconds in the id below
ID = "019da000-0000-7000-8000-000000000000"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "feedback.jsonl"


def read(path: Path, *records: object, seen: Seen | None = None) -> list[Read]:
    path.write_text("".join(json.dumps(one) + "\n" for one in records))
    return list(tensorzero.read(path, seen or Seen()))


def call(name: str = "accepted", value: object = True, **more: Any) -> dict[str, Any]:
    return {"metric_name": name, "value": value, **more}


def test_values_of_every_kind(path: Path) -> None:
    items = read(
        path,
        call(inference_id="i", timestamp=1_700_000_000),
        call("stars", 4, episode_id="e", tags={"user": "u"}),
        call("comment", "too slow", episode_id="e"),
        call("demonstration", [{"type": "text", "text": "so"}], inference_id="i"),
    )
    places = [Place(str(path), n) for n in range(1, 5)]
    assert items == [
        Feedback(session="", at=1_700_000_000_000, place=places[0], target="i", name="accepted", value=True),
        SessionStart(session="e", place=places[1]),
        Feedback(session="e", place=places[1], target="", name="stars", value=4.0),
        Feedback(session="e", place=places[2], target="", name="comment", value="too slow"),
        Feedback(
            session="",
            place=places[3],
            target="i",
            name="demonstration",
            value='[{"type":"text","text":"so"}]',
        ),
    ]


def test_rows_of_tables_that_are_named_for_their_metric(path: Path) -> None:
    comment = {"id": "c", "target_id": "i", "target_type": "inference", "value": "bad", "tags": {}}
    demonstration = {"id": "d", "inference_id": "i", "value": '[{"type":"text","text":"so"}]', "tags": {}}
    postgres = {**demonstration, "id": "p", "value": [{"type": "text", "text": "so"}]}  # it was quarantined
    unknown = {"id": "x", "target_id": "i", "value": "who knows", "tags": {}}
    items = read(path, comment, demonstration, postgres, unknown)
    assert [(one.id, one.target, one.name, one.value) for one in items if isinstance(one, Feedback)] == [
        ("c", "i", "comment", "bad"),
        ("d", "i", "demonstration", '[{"type":"text","text":"so"}]'),
        ("p", "i", "demonstration", '[{"type":"text","text":"so"}]'),
    ]
    assert [one.reason for one in items if isinstance(one, Quarantined)] == ["no metric_name"]
    assert all(tensorzero.recognises(path, json.dumps(one).encode()) for one in (comment, postgres))
    assert not tensorzero.recognises(
        path, json.dumps({"id": "d", "inference_id": "i", "value": "x"}).encode()
    )


def test_envelopes_and_rows(path: Path) -> None:
    answered = {"request": {"body": call(inference_id="i")}, "response": {"feedback_id": ID}}
    row = call("m", 0.5, id="f2", target_id=ID.upper())
    comment = call("comment", "no", id="f3", target_id="e", target_type="episode")
    items = [one for one in read(path, answered, answered, row, comment) if isinstance(one, Feedback)]
    assert [(one.id, one.at, one.session, one.target) for one in items] == [
        (ID, MADE, "", "i"),
        ("f2", None, "", ID),  # TensorZero takes capitals, and its answer has none
        ("f3", None, "e", ""),
    ]


def test_dry_runs_say_nothing(path: Path) -> None:
    assert read(path, call(inference_id="i", dryrun=True)) == []


def test_what_cannot_be_read(path: Path) -> None:
    wrong = [call(), call(value=None, inference_id="i"), call(["m"], inference_id="i"), {"value": 1}, 5]
    assert [one.reason for one in read(path, *wrong) if isinstance(one, Quarantined)] == [
        "neither inference_id nor episode_id",
        "no value of the metric",
        "no metric_name",
        "no metric_name",
        "not a JSON object",
    ]


def test_recognised(path: Path) -> None:
    assert tensorzero.recognises(path, json.dumps(call(inference_id="i")).encode())
    assert tensorzero.recognises(path, json.dumps({"body": call(episode_id="i")}).encode())
    assert not tensorzero.recognises(path, json.dumps(call()).encode())
    assert not tensorzero.recognises(path, b'{"messages": []}')


def test_an_id_tells_the_time_better_than_a_row(path: Path) -> None:
    """ClickHouse makes `timestamp` of the id: whole seconds, no zone."""
    row = call("m", 0.5, id=ID, target_id="j", timestamp="2026-04-18 05:57:55")
    old = call("m", 0.5, id="f2", target_id="j", timestamp="2026-04-18 05:57:55")
    assert [one.at for one in read(path, row, old) if isinstance(one, Feedback)] == [MADE, 1776491875000]
