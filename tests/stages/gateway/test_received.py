"""Records of other systems: events of our own generations, or kept; told once, by their own key only."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import httpx
import pytest

from cursorbench.sessions.items import Edit, Item
from stages.collect.logs.source import Source
from stages.gateway.ids import new_id
from stages.gateway.keys import ApiKeys
from stages.gateway.links import Links
from stages.gateway.received_events import event_of, itself
from stages.inbox.reader import LAST, Inbox, Left
from stages.inbox.records import OWN
from stages.verdicts import Verdicts
from tests.stages.gateway.rig import Rig, running
from tests.stages.gateway.spans import attribute, chat, claude, logs, span, tool, traces

CALL = '<tool_call>{"name": "edit", "arguments": {"path": "a.py"}}</tool_call>'
TOOLS = [{"type": "function", "function": {"name": "edit", "parameters": {"type": "object"}}}]
EDIT = {"file_path": "a.py", "old_string": "a - b", "new_string": "a + b"}


async def post(rig: Rig, path: str, body: Any, **headers: str) -> httpx.Response:
    return await rig.http.post(path, json=body, headers=headers)


async def send(rig: Rig, *spans: Any, **headers: str) -> dict[str, Any]:
    answer = await post(rig, "/v1/traces", traces(*spans), **headers)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def kept(rig: Rig) -> dict[tuple[str, str], list[dict[str, Any]]]:
    logs = Inbox(rig.root / "received").logs(rig.vault, LAST, Left())
    return {
        (kind, who.user): [json.loads(line) for line in log.open()] for kind, log, who in logs if kind != OWN
    }


def events(rig: Rig) -> list[tuple[str, Any]]:
    return [(event.type, event.data) for event in rig.events()]


async def test_the_first_record_needs_nothing_that_was_installed_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upgrade takes the files from under `rtrl serve`: until it was started anew, records were errors 500,
    or read by adapters of another version."""
    async with running(tmp_path) as rig:
        monkeypatch.setattr("importlib.import_module", lambda name: pytest.fail(f"{name} is loaded"))
        assert await send(rig, chat("fix", "done")) == {}


def test_from_an_events_id_nobody_can_try_what_it_was_of() -> None:
    """It was a plain hash of the answer's id, the call's and the path, which is sealed."""
    hashed: list[bytes] = []

    def pseudonym(told: bytes) -> str:
        hashed.append(told)
        return "ab" * 32

    item = Edit(place="", session="s", id="call-1", at=1, path="/home/ada/plan.md", status="applied")
    told = "edit_applied", {"path": item.path}
    event = event_of("otel", "k", "gen", told, item, (itself(item, told, b""), 0), 5, pseudonym)
    assert (event.id, hashed) == ("otel-" + "ab" * 16, [b"gen\0call-1\0edit_applied\0/home/ada/plan.md"])


async def called(rig: Rig) -> tuple[str, str]:
    """A generation that called a tool, and the call's id."""
    rig.stub.words = f"stub:say {CALL}"
    answer = (await rig.chat("fix", tools=TOOLS)).json()
    return answer["id"], answer["choices"][0]["message"]["tool_calls"][0]["id"]


async def test_spans_about_our_generation_are_its_events_and_nothing_is_kept_twice(rig: Rig) -> None:
    generation, call = await called(rig)
    evaluation = span("chat m")
    evaluation["events"] = [
        {
            "name": "gen_ai.evaluation.result",
            "timeUnixNano": "1795192653000000000",
            "attributes": [
                attribute("gen_ai.evaluation.name", "thumbs"),
                attribute("gen_ai.evaluation.score.value", 1.0),
                attribute("gen_ai.response.id", generation),
            ],
        }
    ]
    batch = [chat("fix", "", generation), tool(call, "Edit", EDIT), evaluation]
    for _ in range(2):
        assert await send(rig, *batch) == {}
    assert events(rig) == [
        ("tool_result", {"name": "Edit", "ok": True, "tool_call_id": call, "outcome": "ok"}),
        ("edit_applied", {"path": "a.py", "before": "a - b", "after": "a + b", "part": True}),
        ("thumbs", {"value": 1}),
    ]
    assert {event.generation_id for event in rig.events()} == {generation}
    assert kept(rig) == {}


async def test_a_whole_agent_span_of_our_session_is_not_kept_as_another_session(rig: Rig) -> None:
    generation, _ = await called(rig)
    await send(rig, chat("fix", "done", generation), chat("fix", "done"), chat("else", "x", trace="c" * 32))
    (found,) = kept(rig).values()
    assert [one["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["traceId"] for one in found] == ["c" * 32]


def collected(rig: Rig) -> tuple[set[str], dict[str, int]]:
    """Sessions that a collect reads, and what it leaves out."""
    left = Left()
    read = list(Source((), received=rig.root / "received").read(rig.vault, left))
    return {item.session for _, item, _ in read if isinstance(item, Item)}, dict(left.counts)


async def test_our_session_is_left_out_whatever_came_first(rig: Rig) -> None:
    generation, _ = await called(rig)
    await send(rig, chat("fix", "done"), chat("fix", "done", generation), chat("else", "x", trace="c" * 32))
    rig.gateway._telemetry._intake._sessions.clear()  # as after a restart
    await send(rig, chat("fix more", "done"))
    sessions, left = collected(rig)
    assert sessions == {"c" * 32}
    assert left["own_session"] > 0


async def test_claude_codes_session_is_ours_when_it_tells_of_our_call(rig: Rig) -> None:
    _, call = await called(rig)
    told = {"tool_use_id": call, "tool_name": "Edit", "success": "true", "tool_parameters": "{}"}
    records = [claude("user_prompt", 1, prompt="fix"), claude("tool_result", 2, **told)]
    assert (await post(rig, "/v1/logs", logs(*records))).json() == {}
    assert [kind for kind, _ in events(rig)] == ["tool_result"]
    assert collected(rig)[0] == set()


async def test_only_the_key_that_made_a_generation_speaks_of_it(rig: Rig) -> None:
    generation, call = await called(rig)
    other = {"authorization": f"Bearer {ApiKeys.create(rig.root / 'keys', 'other')}"}
    rig.gateway._keys._next_check = 0.0
    answer = await send(rig, chat("fix", "done", generation), tool(call, "Edit", EDIT), **other)
    assert answer == {"partialSuccess": {"rejectedSpans": "1", "errorMessage": "1 other_key"}}
    told = await post(
        rig, "/feedback", {"metric_name": "ok", "inference_id": generation, "value": True}, **other
    )
    assert (told.status_code, told.json()["error"]["code"]) == (404, "unknown_target")
    assert events(rig) == []
    assert len(kept(rig)) == 1, "the tool's span is a session of the other key, as far as anybody can tell"


async def test_calls_and_episodes_are_known_after_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        generation, call = await called(rig)
        (recorded,) = rig.generations()
        links = Links(rig.root / "spool")
        assert links.call(recorded.key_id, call) == generation
        assert links.episode(recorded.key_id, recorded.episode) == generation
        assert links.call("another key", call) == links.call(recorded.key_id, "call_x") == ""


async def test_a_generation_that_is_no_conversation_is_an_episode_named_after_it(rig: Rig) -> None:
    """Nothing is kept in memory for it: completions would drive out what agents' tools and episodes are."""
    answer = await rig.http.post("/v1/completions", json={"model": "rtrl", "prompt": "a", "max_tokens": 3})
    one = answer.json()["id"]
    (recorded,) = rig.generations()
    assert recorded.episode.endswith(one)
    assert rig.gateway._telemetry._intake._links.episode(recorded.key_id, recorded.episode) == ""
    verdict = {"metric_name": "ok", "episode_id": recorded.episode, "value": False}
    assert (await post(rig, "/feedback", verdict)).status_code == 200
    assert events(rig) == [("feedback", {"name": "ok", "value": False})]
    other = {"authorization": f"Bearer {ApiKeys.create(rig.root / 'keys', 'other')}"}
    rig.gateway._keys._next_check = 0.0
    assert (await post(rig, "/feedback", verdict, **other)).status_code == 200
    assert len(events(rig)) == 1, "of another key it is nothing that is known"


async def test_a_sessions_name_takes_the_same_memory_however_long_it_is(rig: Rig) -> None:
    _, call = await called(rig)
    for n in range(3):
        one = tool(call, "Edit", EDIT)
        one["attributes"].append(attribute("gen_ai.conversation.id", f"{n}" * 100_000))
        assert await send(rig, one) == {}
    assert [len(one) for one in rig.gateway._telemetry._intake._sessions] == [16] * 3


async def test_feedback_as_tensorzero_takes_it(rig: Rig) -> None:
    answer = await rig.chat("hi", headers={"x-rtrl-episode": "0195c4a0-0000-7000-8000-000000000001"})
    one = answer.json()["id"]
    dashed = str(uuid.UUID(one.removeprefix("gen_")))
    calls = [
        {"metric_name": "task_success", "inference_id": dashed, "value": True, "tags": {"by": "ci"}},
        {"metric_name": "thumbs_up", "inference_id": one, "value": False},
        {"metric_name": "ok", "episode_id": "0195c4a0-0000-7000-8000-000000000001", "value": False},
        {"metric_name": "task_success", "inference_id": one, "value": False, "dryrun": True},
    ]
    ids = []
    for call in calls:
        told = await post(rig, "/feedback", call)
        assert (told.status_code, list(told.json())) == (200, ["feedback_id"])
        ids.append(uuid.UUID(told.json()["feedback_id"]))
    assert {found.version for found in ids} == {7}
    assert len(set(ids)) == 4
    assert events(rig) == [
        ("feedback", {"name": "task_success", "value": True}),
        ("thumbs", {"value": -1}),
        ("feedback", {"name": "ok", "value": False}),
    ], "what is good of a boolean nobody said: it is kept as it is"
    assert kept(rig) == {}


async def test_every_hunk_of_a_call_is_an_event(rig: Rig) -> None:
    _, call = await called(rig)
    hunks = [{"old_string": old, "new_string": new} for old, new in ("ab", "cd", "cd")]
    for _ in range(2):
        assert await send(rig, tool(call, "MultiEdit", {"file_path": "a.py", "edits": hunks})) == {}
    texts = [(data["before"], data["after"]) for kind, data in events(rig) if kind == "edit_applied"]
    assert texts == [("a", "b"), ("c", "d"), ("c", "d")]


async def test_an_episode_is_named_by_its_own_user_only(rig: Rig) -> None:
    await rig.chat("hi", headers={"x-rtrl-episode": "job", "x-rtrl-user": "ada"})
    (recorded,) = rig.generations()
    for name in ("job", recorded.episode):
        call = {"metric_name": "ok", "episode_id": name, "value": False}
        assert (await post(rig, "/feedback", call, **{"x-rtrl-user": "bob"})).status_code == 200
    assert events(rig) == []
    assert list(kept(rig)) == [("tensorzero", "bob")]
    for name in ("job", recorded.episode):
        call = {"metric_name": "ok", "episode_id": name, "value": False}
        assert (await post(rig, "/feedback", call, **{"x-rtrl-user": "ada"})).status_code == 200
    assert len(events(rig)) == 2


async def test_words_for_a_thumb_are_taken_as_files_have_them(rig: Rig) -> None:
    one = (await rig.chat("hi")).json()["id"]
    for value in ("up", "Down"):
        told = await post(rig, "/feedback", {"metric_name": "thumb", "inference_id": one, "value": value})
        assert told.status_code == 200, told.text
    assert events(rig) == [("thumbs", {"value": 1}), ("thumbs", {"value": -1})]
    told = await post(rig, "/feedback", {"metric_name": "thumb", "inference_id": one, "value": "PRIVATE"})
    assert (told.status_code, "PRIVATE" in told.text) == (400, False)


async def test_what_is_told_stays_as_it_is_for_the_rule_that_collects_it(tmp_path: Path) -> None:
    """It was read by the rule that the served line had when the gateway was started: a rule that was mended,
    or a population's own, had no effect on what was told before it, or to it."""
    rules = {"stars": "outcome 1..5", "thumb": "thumbs 1..0", "grade": "outcome poor..good"}
    async with running(tmp_path, metrics=rules) as rig:
        one = (await rig.chat("hi")).json()["id"]
        for name, value in (("stars", 4), ("thumb", 1), ("thumbs", 1), ("cost", 0.5)):
            call = {"metric_name": name, "inference_id": one, "value": value}
            assert (await post(rig, "/feedback", call)).status_code == 200
        for label in ("Poor", "awful"):  # of the two words one is of a rule, and nobody's words the other
            evaluation = span("chat m")
            told = [attribute("gen_ai.evaluation.name", "grade"), attribute("gen_ai.response.id", one)]
            told.append(attribute("gen_ai.evaluation.score.label", label))
            evaluation["events"] = [{"name": "gen_ai.evaluation.result", "attributes": told}]
            assert await send(rig, evaluation) == {}
        values = [("stars", 4), ("thumb", 1), ("cost", 0.5), ("grade", "poor")]
        raw = [("feedback", {"name": name, "value": value}) for name, value in values]
        assert events(rig) == [*raw[:2], ("thumbs", {"value": 1}), *raw[2:]]
        mended = Verdicts(rules | {"stars": "outcome 5..1"})
        read = [mended.resolved(event) for event in rig.events() if event.type == "feedback"]
        assert [one and (one.type, one.data["value"]) for one in read] == [
            ("outcome", -0.5),
            ("thumbs", -1),
            None,
            ("outcome", -1.0),
        ]


async def test_feedback_of_others_and_texts_are_kept(rig: Rig) -> None:
    one, foreign = (await rig.chat("hi")).json()["id"], "0195c4a0-0000-7000-8000-000000000009"
    for call in (
        {"metric_name": "comment", "inference_id": one, "value": "too long"},
        {"metric_name": "demonstration", "inference_id": foreign, "value": [{"type": "text", "text": "x"}]},
        {"metric_name": "ok", "episode_id": foreign, "value": True},
    ):
        assert (await post(rig, "/feedback", call)).status_code == 200
    ((_, found),) = kept(rig).items()
    assert len(found) == 3
    assert events(rig) == []


async def test_wrong_feedback_is_told_what_is_wrong(rig: Rig) -> None:
    good = {"metric_name": "ok", "inference_id": "x", "value": True}
    for change, param in (
        ({"metric_name": None}, "metric_name"),
        ({"inference_id": None}, "inference_id"),
        ({"episode_id": "y"}, "inference_id"),
        ({"value": "yes"}, "value"),
        ({"value": None}, "value"),
        ({"metric_name": "comment"}, "value"),
        ({"tags": {"a": 1}}, "tags"),
        ({"dryrun": "no"}, "dryrun"),
    ):
        answer = await post(rig, "/feedback", good | change)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), change


async def test_feedback_for_a_generation_that_is_not_recorded_yet_waits(rig: Rig) -> None:
    made = new_id(1795192653000)
    for one in (made, str(uuid.UUID(made.removeprefix("gen_"))), "gen_" + "0" * 32):
        told = await post(rig, "/feedback", {"metric_name": "ok", "inference_id": one, "value": True})
        assert told.is_success
    rig.spool.flush()
    assert rig.spool.pending == 3
    assert kept(rig) == {}


async def test_a_uuid_of_another_gateway_is_kept_and_one_of_another_key_is_refused(rig: Rig) -> None:
    foreign = {"metric_name": "ok", "inference_id": "0195c4a0-0000-7000-8000-000000000009", "value": True}
    assert (await post(rig, "/feedback", foreign)).is_success
    assert len(kept(rig)) == 1
    one = (await rig.chat("hi")).json()["id"]
    other = {"authorization": f"Bearer {ApiKeys.create(rig.root / 'keys', 'other')}"}
    rig.gateway._keys._next_check = 0.0
    call = {"metric_name": "ok", "inference_id": str(uuid.UUID(one.removeprefix("gen_"))), "value": True}
    told = await post(rig, "/feedback", call, **other)
    assert (told.status_code, told.json()["error"]["code"]) == (404, "unknown_target")
    rig.spool.flush()
    assert (rig.spool.pending, events(rig), len(kept(rig))) == (0, [], 1)


async def test_continue_data(rig: Rig) -> None:
    envelope = {"schema": "0.2.0", "level": "all", "profileId": "local"}
    data = {
        "sessionId": "s",
        "prompt": "<user>\nhi",
        "completion": "hello",
        "timestamp": "2026-11-20T10:00:00Z",
    }
    good = {"name": "chatInteraction", "data": data, **envelope}
    answer = await post(rig, "/v1/continue/data", good, **{"x-rtrl-user": "ada"})
    assert (answer.status_code, answer.json()) == (200, {"accepted": 1, "rejected": []})
    more = [good, {"name": "newEvent", "data": {}, **envelope}, {"name": "tokensGenerated", "data": {}}, 3]
    answer = await post(rig, "/v1/continue/data", more, **{"x-rtrl-user": "ada"})
    assert answer.json() == {
        "accepted": 2,
        "rejected": [{"reason": "unknown_type", "count": 1}, {"reason": "not a record", "count": 1}],
    }
    ((who, found),) = kept(rig).items()
    assert who == ("continue", "ada")
    assert [one["name"] for one in found] == ["chatInteraction", "newEvent"]
    answer = await rig.http.post("/v1/continue/data", content=b"{")
    assert answer.json()["error"]["code"] == "invalid_json"


async def test_no_train_writes_nothing(rig: Rig) -> None:
    one = (await rig.chat("hi")).json()["id"]
    said = {"x-rtrl-no-train": "1"}
    assert await send(rig, chat("a secret", "b"), **said) == {}
    assert (
        await post(rig, "/feedback", {"metric_name": "ok", "inference_id": one, "value": True}, **said)
    ).is_success
    resource = traces(chat("a secret", "b"), rtrl__no_train="1")
    assert (await post(rig, "/v1/traces", resource)).is_success
    other = traces(chat("a secret", "b"), rtrl__no_train="0")  # one yes is enough, whoever says it
    assert (await post(rig, "/v1/traces", other, **said)).is_success
    assert (kept(rig), events(rig)) == ({}, [])
    assert b'rtrl_received_total{kind="otel",status="no_train"} 3.0' in rig.gateway.metrics.text()


@pytest.mark.parametrize("named", ["id", "uuid", "digits", "episode"])
async def test_nothing_said_of_a_no_train_answer_is_written(rig: Rig, named: str) -> None:
    """A demonstration was kept, the answer as it should have been; TensorZero's clients send UUIDs."""
    plain = {"x-rtrl-no-train": "1", "x-rtrl-episode": "mine", "x-rtrl-user": "ada"}
    one = (await rig.chat("hi", headers=plain)).json()["id"]
    digits = one.removeprefix("gen_")
    target = {"id": one, "uuid": str(uuid.UUID(digits)), "digits": digits, "episode": "mine"}[named]
    field = "episode_id" if named == "episode" else "inference_id"
    for metric in ("demonstration", "comment"):
        asked = {"metric_name": metric, field: target, "value": "a secret", "tags": {"why": "a secret"}}
        assert (await post(rig, "/feedback", asked, **{"x-rtrl-user": "ada"})).is_success
    assert (kept(rig), [event.data for event in events(rig)]) == ({}, [])
    assert b'rtrl_received_total{kind="tensorzero",status="no_train"} 2.0' in rig.gateway.metrics.text()


async def test_a_resource_says_whose_it_is(rig: Rig) -> None:
    answer = await post(rig, "/v1/traces", traces(chat("x", "y"), rtrl__user="eve"), **{"x-rtrl-user": "ada"})
    assert answer.json() == {}
    assert list(kept(rig)) == [("otel", "eve")]


async def test_claude_code_events_and_what_says_nothing(rig: Rig) -> None:
    records = [
        claude("user_prompt", 1, prompt="fix it"),
        claude("assistant_response", 2, response="done", model="m"),
        claude("mcp_server_connection", 3),
        claude("brand_new", 4),
        {"body": {"stringValue": "GET /"}, "attributes": []},
        17,
    ]
    answer = (await post(rig, "/v1/logs", logs(*records))).json()["partialSuccess"]
    assert answer["rejectedLogRecords"] == "2"
    assert set(answer["errorMessage"].split("; ")) == {"1 unknown_type", "1 not a record"}
    ((_, found),) = kept(rig).items()
    assert len(found) == 3, "the unknown event too: a later version may read it"


async def test_too_much_at_once_is_told_to_wait(rig: Rig, monkeypatch: Any) -> None:
    monkeypatch.setattr("stages.gateway.disk_queue.WAITING_BYTES", 10)
    rig.gateway._telemetry._intake._queue._bytes = 9
    answer = await post(rig, "/v1/traces", traces(chat("x", "y")))
    assert (answer.status_code, answer.headers["retry-after"], answer.json()["code"]) == (429, "2", 8)


async def test_a_full_disk_is_503_and_nothing_is_half_done(rig: Rig) -> None:
    rig.inbox._max_bytes = 1
    answer = await post(rig, "/v1/traces", traces(chat("x", "y")))
    assert (answer.status_code, answer.headers["retry-after"], answer.json()["code"]) == (503, "10", 14)
    assert kept(rig) == {}


async def test_a_full_inbox_keeps_no_events_out(rig: Rig) -> None:
    _, call = await called(rig)
    rig.inbox._max_bytes = 1
    for _ in range(2):
        answer = await post(
            rig, "/v1/traces", traces(tool(call, "Edit", EDIT), chat("x", "y", trace="c" * 32))
        )
        assert answer.status_code == 503
    assert [name for name, _ in events(rig)] == ["tool_result", "edit_applied"]


async def test_definitions_of_tools_are_not_looked_at_while_records_come_in(
    rig: Rig, monkeypatch: Any
) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("a stranger's schema was compiled")

    monkeypatch.setattr("cursorbench.sessions.definitions.Definitions", never)
    one = chat("fix", "done")
    one["attributes"].append(attribute("gen_ai.tool.definitions", json.dumps(TOOLS)))
    assert await send(rig, one) == {}
    assert len(kept(rig)) == 1


async def test_a_record_that_no_adapter_survives_is_told_and_the_others_are_taken(
    rig: Rig, monkeypatch: Any
) -> None:
    from cursorbench.sessions import otel

    read = otel.read

    def breaks(path: Any, seen: Any) -> Any:
        if b"poison" in path.open().read():
            raise OverflowError
        return read(path, seen)

    monkeypatch.setattr(otel, "read", breaks)
    answer = await send(rig, chat("one", "x"), chat("poison", "x"), chat("three", "x", trace="d" * 32))
    message = "1 cannot be read: OverflowError"
    assert answer == {"partialSuccess": {"rejectedSpans": "1", "errorMessage": message}}
    (lines,) = kept(rig).values()
    assert len(lines) == 3, "kept for a reader that can"
