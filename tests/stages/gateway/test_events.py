"""POST /v1/events."""

from __future__ import annotations

import time
from typing import Any

import pytest

from stages.gateway.event_data import DATA
from stages.gateway.keys import ApiKeys
from stages.records import EVENT_TYPES
from tests.stages.gateway.rig import Rig, running

GOOD: dict[str, dict[str, Any]] = {
    "edit_applied": {"path": "a.py", "before": "x", "after": "y"},
    "edit_rejected": {},
    "edit_reverted": {"path": "a.py"},
    "edit_survival": {"horizon_s": 60, "path": "a.py", "now": "y"},
    "user_message": {"text": "still wrong"},
    "tool_result": {"name": "run", "ok": True, "duration_ms": 1.5},
    "thumbs": {"value": -1},
    "interrupted": {},
    "outcome": {"value": 0.5, "name": "merged"},
    "feedback": {"name": "stars", "value": 4},
    "completion_shown": {},
    "completion_accepted": {},
    "completion_rejected": {},
    "session_closed": {},
}


async def gid(rig: Rig) -> str:
    return str((await rig.chat("x")).json()["id"])


def test_every_type_has_its_data() -> None:
    assert set(DATA) == set(EVENT_TYPES) == set(GOOD)


async def test_every_type_is_taken_and_kept_as_sent(rig: Rig) -> None:
    g = await gid(rig)
    events = [
        {"id": f"e{i}", "generation_id": g, "type": t, "data": d | {"extra": "kept"}}
        for i, (t, d) in enumerate(GOOD.items())
    ]
    answer = await rig.http.post("/v1/events", json={"events": events})
    assert answer.json() == {"accepted": len(GOOD), "duplicates": 0, "pending": 0, "rejected": []}
    assert [(e.type, e.data) for e in rig.events()] == [(t, d | {"extra": "kept"}) for t, d in GOOD.items()]


async def test_again_is_a_duplicate(rig: Rig) -> None:
    g = await gid(rig)
    assert await rig.event("e1", g) == {"accepted": 1, "duplicates": 0, "pending": 0, "rejected": []}
    assert await rig.event("e1", g) == {"accepted": 0, "duplicates": 1, "pending": 0, "rejected": []}
    assert len(rig.events()) == 1


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"id": ""}, "invalid_id"),
    ({"id": 5}, "invalid_id"),
    ({"id": "x" * 201}, "invalid_id"),
    ({"generation_id": None}, "invalid_generation_id"),
    ({"generation_id": "chatcmpl-019c1f9d205f"}, "invalid_generation_id"),
    ({"generation_id": f"gen_{'0' * 31}"}, "invalid_generation_id"),
    ({"generation_id": f"gen_{'G' * 32}"}, "invalid_generation_id"),
    ({"type": "applause"}, "unknown_type"),
    ({"type": None}, "unknown_type"),
    ({"data": []}, "invalid_data"),
    ({"data": {}}, "invalid_data"),
    ({"data": {"text": 5}}, "invalid_data"),
    ({"type": "thumbs", "data": {"value": 2}}, "invalid_data"),
    ({"type": "edit_applied", "data": {"path": "a", "before": "x"}}, "invalid_data"),
    ({"type": "edit_applied", "data": {"path": "a", "diff": "all of a.py\n"}}, "invalid_data: diff must be"),
    ({"type": "edit_applied", "data": {"path": "a", "diff": ""}}, "invalid_data: diff must be"),
    (
        {"type": "edit_applied", "data": {"path": "", "before": "x", "after": "y"}},
        "invalid_data: path must be a string that is not empty",
    ),
    ({"type": "edit_reverted", "data": {"path": " \n"}}, "invalid_data: path must be"),
    ({"type": "edit_rejected", "data": {"path": ""}}, "invalid_data: path must be"),
    (
        {"type": "edit_survival", "data": {"horizon_s": 1, "path": "", "now": "x"}},
        "invalid_data: path must be",
    ),
    ({"type": "edit_survival", "data": {"horizon_s": 1, "added": 1}}, "invalid_data"),
    (
        {
            "type": "edit_survival",
            "data": {"horizon_s": 1, "added": 1, "added_kept": 2, "deleted": 0, "deleted_kept": 0},
        },
        "invalid_data",
    ),
    (
        {"type": "edit_applied", "data": {"path": "a", "diff": f"@@ -1,{'9' * 5000} +1 @@\n same"}},
        "invalid_data: diff must be",
    ),
    ({"at": "yesterday"}, "invalid_at"),
    ({"at": [1]}, "invalid_at"),
]


async def test_what_is_wrong_is_named_and_the_rest_is_taken(rig: Rig) -> None:
    g = await gid(rig)
    for number, (fields, reason) in enumerate(WRONG):
        good = {"id": f"e{number}", "generation_id": g, "type": "user_message", "data": {"text": "PRIVATE"}}
        answer = await rig.http.post(
            "/v1/events", json={"events": [good | {"id": "bad"} | fields, good, "junk"]}
        )
        body = answer.json()
        assert (answer.status_code, body["accepted"]) == (200, 1), fields
        assert [one["index"] for one in body["rejected"]] == [0, 2]
        assert body["rejected"][0]["reason"].startswith(reason)
        assert "PRIVATE" not in answer.text


async def test_a_whole_number_may_be_written_as_a_float(rig: Rig) -> None:
    g = await gid(rig)
    counts = {"horizon_s": 60.0, "added": 3.0, "added_kept": 2.0, "deleted": 0.0, "deleted_kept": 0}
    assert (await rig.event("e1", g, "thumbs", data={"value": 1.0}))["accepted"] == 1
    assert (await rig.event("e2", g, "edit_survival", data=counts))["accepted"] == 1
    up, stands = (event.data for event in rig.events())
    assert (up["value"], stands["added"]) == (1, 3)
    assert [type(value) for value in (up["value"], stands["added"])] == [int, int]


REASONS: list[tuple[str, dict[str, Any], str]] = [
    ("thumbs", {"value": 1.5}, "value must be 1 or -1"),
    ("thumbs", {"value": 77}, "value must be 1 or -1"),
    ("thumbs", {"value": True}, "value must be 1 or -1"),
    ("outcome", {"value": "PRIVATE"}, "value must be a number from -1 to 1"),
    ("feedback", {"name": "PRIVATE" * 99, "value": 1}, "name must be a string of 1 to 200 characters"),
    ("tool_result", {"name": "x"}, "ok is missing, it must be true or false"),
    ("user_message", {"text": 5}, "text must be a string"),
    ("edit_survival", {"horizon_s": 1, "added": 1.5}, "added must be a whole number, 0 or more"),
    ("edit_survival", {"horizon_s": 1, "added": 1e300}, "added must be a whole number, 0 or more"),
]


@pytest.mark.parametrize(("kind", "data", "why"), REASONS)
async def test_what_is_wrong_is_said_in_words_and_without_content(
    rig: Rig, kind: str, data: dict[str, Any], why: str
) -> None:
    told = await rig.event("e1", f"gen_{'0' * 32}", kind, data=data)
    assert [one["reason"] for one in told["rejected"]] == [f"invalid_data: {why}"]


async def test_a_time_that_is_none_is_not_repeated(rig: Rig) -> None:
    told = await rig.event("e1", f"gen_{'0' * 32}", at="PRIVATE")
    assert [one["reason"] for one in told["rejected"]] == [
        "invalid_at: neither seconds since 1970 nor ISO 8601"
    ]


@pytest.mark.parametrize("body", [{}, {"events": {}}])
async def test_no_list_of_events(rig: Rig, body: Any) -> None:
    assert (await rig.http.post("/v1/events", json=body)).status_code == 400


async def test_no_events_at_all(rig: Rig) -> None:
    answer = await rig.http.post("/v1/events", json={"events": []})
    assert answer.status_code == 200, "the batch could be read"
    assert answer.json() == {"accepted": 0, "duplicates": 0, "pending": 0, "rejected": []}


async def test_too_many(tmp_path: Any) -> None:
    async with running(tmp_path, max_events=2) as rig:
        answer = await rig.http.post("/v1/events", json={"events": [{}] * 3})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "too_many_events")


async def test_of_another_key(rig: Rig) -> None:
    g = await gid(rig)
    other = ApiKeys.create(rig.root / "keys", "other")
    body = {"id": "e1", "generation_id": g, "type": "session_closed"}
    rig.gateway._keys._next_check = 0.0
    answer = await rig.http.post("/v1/events", json=body, headers={"authorization": f"Bearer {other}"})
    assert answer.json()["rejected"] == [{"index": 0, "id": "e1", "reason": "other_key"}]
    assert (await rig.event("e1", g))["accepted"] == 1, "the id is still free for the owner"


async def test_before_its_generation_is_recorded(rig: Rig) -> None:
    """A stream's id is known from its header on, long before the record is written."""
    body = {
        "model": "rtrl",
        "stream": True,
        "messages": [{"role": "user", "content": rig.hold(4)}],
    }
    async with rig.http.stream("POST", "/v1/chat/completions", json=body) as answer:
        g = answer.headers["x-rtrl-generation-id"]
        assert (await rig.event("e1", g))["pending"] == 1
        assert rig.events() == []
        rig.let_go()
        await answer.aread()
    assert [e.id for e in rig.events()] == ["e1"]
    assert (await rig.event("e1", g))["duplicates"] == 1


async def test_no_train_is_counted_and_never_written(rig: Rig) -> None:
    """The header was passed over: the text was written, and trained on."""
    g = await gid(rig)
    said = {"type": "user_message", "generation_id": g, "data": {"text": "PRIVATE"}}
    body = {"events": [{"id": "e1", **said}, {"id": "e2", **said, "type": "applause"}]}
    answer = await rig.http.post("/v1/events", json=body, headers={"x-rtrl-no-train": "1"})
    rejected = [{"index": 1, "id": "e2", "reason": "unknown_type"}]
    assert answer.json() == {"accepted": 1, "duplicates": 0, "pending": 0, "rejected": rejected}
    assert rig.events() == []
    assert b'rtrl_events_total{status="no_train",type="user_message"} 1.0' in rig.gateway.metrics.text()
    answer = await rig.http.post("/v1/events", json=body, headers={"x-rtrl-no-train": "nonsense"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "X-Rtrl-No-Train")
    assert rig.events() == []
    answer = await rig.http.post("/v1/events", json=body, headers={"x-rtrl-no-train": "0"})
    assert (answer.json()["accepted"], len(rig.events())) == (1, 1)


async def test_event_time(tmp_path: Any) -> None:
    async with running(tmp_path / "server") as rig:
        g = await gid(rig)
        await rig.event("past", g, at=1000.5)
        await rig.event("future", g, at=time.time() + 3600)
        await rig.event("iso", g, at="1970-01-01T00:00:07Z")
        await rig.event("none", g)
        times = {e.id: e.at - (e.wall if e.id in ("future", "none") else 0) for e in rig.events()}
        assert times == {"past": 1_000_500, "future": 0, "iso": 7_000, "none": 0}
    async with running(tmp_path / "client", client_clock=True) as rig:
        g = await gid(rig)
        await rig.event("future", g, at=4_000_000_000)
        assert rig.events()[0].at == 4_000_000_000_000


async def test_days_late_and_after_a_restart(tmp_path: Any) -> None:
    async with running(tmp_path) as rig:
        g, key = await gid(rig), rig.key
    (tmp_path / "keys" / "api_keys.json").rename(tmp_path / "kept.json")
    async with running(tmp_path) as rig:
        (tmp_path / "kept.json").rename(tmp_path / "keys" / "api_keys.json")
        rig.gateway._keys._next_check = 0.0
        rig.http.headers["authorization"] = f"Bearer {key}"
        assert (await rig.event("e1", g))["accepted"] == 1
