"""What docs/http.md tells somebody who writes a client, tried over the wire."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from stages.gateway.keys import ApiKeys
from stages.inbox.reader import LAST, Inbox, Left
from tests.stages.gateway.rig import Rig, follow_ups, running, until
from tests.stages.gateway.spans import chat, traces

CHAT = "/v1/chat/completions"
ASKED = {"model": "rtrl", "messages": [{"role": "user", "content": "stub:say a"}]}
UNKNOWN = "gen_" + "0" * 32


def request(rig: Rig, path: str, body: Any = None, *headers: str, method: str = "POST") -> bytes:
    """A request as it is on the wire."""
    content = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: a", f"Authorization: Bearer {rig.key}", *headers]
    lines += [f"Content-Length: {len(content)}"] if content else []
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + content


async def over(rig: Rig, sent: bytes, *, half_close: bool = False) -> bytes:
    """What comes back until the gateway closes the connection."""
    parts = urlsplit(rig.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write(sent)
    if half_close:
        writer.write_eof()
    async with asyncio.timeout(20):
        answer = await reader.read()
    writer.close()
    return answer


async def another_key(rig: Rig) -> httpx.AsyncClient:
    key = ApiKeys.create(rig.root / "keys", "another")
    await asyncio.sleep(1.1)  # keys are looked at once a second
    return httpx.AsyncClient(base_url=rig.url, headers={"authorization": f"Bearer {key}"}, timeout=20)


async def test_a_page_in_a_browser_is_told_nothing_of_other_origins(rig: Rig) -> None:
    """No CORS: a browser asks first (OPTIONS), and is refused."""
    asks = {"origin": "https://ide.example", "access-control-request-method": "POST"}
    first = await rig.http.request("OPTIONS", CHAT, headers=asks)
    assert (first.status_code, first.headers["allow"]) == (405, "POST")
    told = await rig.http.post(CHAT, json=ASKED, headers={"origin": "https://ide.example"})
    assert told.status_code == 200
    for answer in (first, told):
        assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_who_closes_its_side_has_left(rig: Rig) -> None:
    """A connection that is closed looks the same, and that stops an engine."""
    assert await over(rig, request(rig, CHAT, ASKED), half_close=True) == b""
    await until(lambda: len(rig.generations()) == 1)
    (whole,) = rig.generations()
    assert whole.finish_reason == "stop"
    words = [{"role": "user", "content": rig.hold(3)}]
    stream = request(rig, CHAT, {**ASKED, "stream": True, "messages": words})
    assert b"[DONE]" not in await over(rig, stream, half_close=True)
    await until(lambda: rig.served.gate.in_flight == 0)  # though the engine is not let go
    event = {"id": "e", "generation_id": whole.id, "type": "thumbs", "data": {"value": 1}}
    assert b"accepted" not in await over(rig, request(rig, "/v1/events", event), half_close=True)
    await until(lambda: len(rig.events()) == 1)


async def test_an_id_is_one_event_whatever_it_says_of_one_key(rig: Rig) -> None:
    one = (await rig.chat("x")).json()["id"]
    assert (await rig.event("e", one))["accepted"] == 1
    assert (await rig.event("e", one, "thumbs", data={"value": 1}))["duplicates"] == 1
    assert (await rig.event("waits", UNKNOWN))["pending"] == 1
    assert (await rig.event("waits", one))["duplicates"] == 1, "also of what is not recorded yet"
    async with await another_key(rig) as other:
        answer = (await other.post(CHAT, json=ASKED)).json()["id"]
        told = {"id": "e", "generation_id": answer, "type": "interrupted"}
        assert (await other.post("/v1/events", json=told)).json()["accepted"] == 1
    assert [(event.id, event.type) for event in rig.events()] == [("e", "user_message"), ("e", "interrupted")]


@pytest.mark.parametrize("text", ["", " \n"])
async def test_an_empty_message_is_none_and_no_request_stands_for_it(tmp_path: Path, text: str) -> None:
    async with running(tmp_path) as rig:
        messages: list[dict[str, Any]] = [{"role": "user", "content": "one"}]
        answers = []
        for told in (None, text, None):
            body = (await rig.chat("", messages=messages)).json()
            answers.append(body["id"])
            messages += [body["choices"][0]["message"], {"role": "user", "content": "more"}]
            if told is not None:
                await rig.event("e", body["id"], data={"text": told})
        rig.spool.flush()
    assert list(follow_ups(tmp_path).values()) == [answers[1], "", ""]


async def test_of_two_limits_the_newer_name_counts(rig: Rig) -> None:
    for more, fewer in ((9, 3), (3, 9)):
        answer = (await rig.chat("stub:tokens=20", max_tokens=more, max_completion_tokens=fewer)).json()
        assert answer["usage"]["completion_tokens"] == fewer
        assert rig.stub.requests[-1]["max_tokens"] == rig.generations()[-1].sampling.max_tokens == fewer


async def test_only_what_was_a_request_has_an_id(rig: Rig) -> None:
    """What the listener says itself is plain text without X-Request-Id."""
    for path in ("/health", "/v1/models", "/nothing"):
        assert (await rig.http.get(path)).headers["x-request-id"]
    for stream in (False, True):
        answer = await rig.chat("x", stream=stream, headers={"accept-encoding": "gzip"})
        assert answer.headers["x-request-id"]
        assert "content-encoding" not in answer.headers
    told = await over(rig, b"garbage\r\n\r\n")
    assert told.startswith(b"HTTP/1.1 400 ")
    assert b"content-type: text/plain" in told
    assert b"x-request-id" not in told


async def test_head_is_get_without_its_body(rig: Rig) -> None:
    for path in ("/health", "/v1/models", "/v1/models/rtrl", "/v1/models/other", "/nothing", CHAT):
        get, head = await rig.http.get(path), await rig.http.head(path)
        assert (head.status_code, head.content) == (get.status_code, b"")
        assert head.headers["content-length"] == get.headers["content-length"]


async def test_a_refusal_leaves_the_connection_open(rig: Rig) -> None:
    bad, good = request(rig, CHAT, {}), request(rig, CHAT, ASKED, "Connection: close")
    answer = await over(rig, bad + request(rig, "/nothing", {}) + good)
    assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [b"400", b"404", b"200"]


async def test_who_expects_100_gets_it_before_its_body_is_read(rig: Rig) -> None:
    sent = request(rig, CHAT, ASKED, "Expect: 100-continue", "Connection: close")
    assert (await over(rig, sent)).startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")
    refused = sent.replace(rig.key.encode(), b"rtrl-nobody")
    assert (await over(rig, refused)).startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize("media", ["text/plain", "application/x-www-form-urlencoded", None])
async def test_no_content_type_is_needed(rig: Rig, media: str | None) -> None:
    headers = {} if media is None else {"content-type": media}
    assert (await rig.http.post(CHAT, content=json.dumps(ASKED), headers=headers)).status_code == 200


async def test_who_says_more_closely_who_it_is_wins(rig: Rig) -> None:
    """Headers, then `metadata`, then `user`, then the key; numbers in `metadata` are their text."""
    metadata = {"rtrl_user": "meta", "rtrl_session": 5, "rtrl_group": True}
    await rig.chat("x", user="body", metadata=metadata, headers={"x-rtrl-user": "head"})
    await rig.chat("x", user="body", metadata=metadata)
    await rig.chat("x", user="body")
    await rig.chat("x")
    one, two, three, four = rig.generations()
    assert [one.user, two.user, three.user] == ["head", "meta", "body"]
    assert four.user == four.key_id
    assert two.session.startswith("5@")
    assert len(two.session) == len("5@") + 16
    assert two.features["group"].startswith("true@")
    assert two.session != one.session, "of another user"


async def test_a_misspelt_no_train_is_none(rig: Rig) -> None:
    """Among them the header with underscores alone, which a proxy may have made of it."""
    for header in ("x-rtrl-notrain", "X_Rtrl_No_Train", "x-rtrl-no_train", "x-rtrl-no-train"):
        await rig.chat("x", headers={header: "1"})
    for name in ("rtrl_notrain", "no_train", "rtrl_no_train"):
        await rig.chat("x", metadata={name: "1"})
    assert [g.no_train for g in rig.generations()] == [False, False, True, True, False, False, True]


async def test_of_a_resource_and_the_headers_one_no_is_enough(rig: Rig) -> None:
    """But for the user the resource is the nearer one."""
    for header, resource in (("0", "1"), ("1", "0")):
        batch = traces(chat("a secret", "b"), rtrl__no_train=resource, rtrl__user="eve")
        said = {"x-rtrl-no-train": header, "x-rtrl-user": "ada"}
        assert (await rig.http.post("/v1/traces", json=batch, headers=said)).json() == {}
    assert b'rtrl_received_total{kind="otel",status="no_train"} 2.0' in rig.gateway.metrics.text()
    assert list(Inbox(rig.root / "received").logs(rig.vault, LAST, Left())) == []


async def test_two_keys_that_name_a_user_mean_one_person(rig: Rig) -> None:
    await rig.chat("x", user="ada")
    async with await another_key(rig) as other:
        await other.post(CHAT, json={**ASKED, "user": "ada"})
    one, two = rig.generations()
    assert (one.user, two.user) == ("ada", "ada")
    assert one.key_id != two.key_id
    assert one.session != two.session


async def test_a_plain_completion_stands_alone_unless_it_names_its_session(rig: Rig) -> None:
    body = {"model": "rtrl", "prompt": "stub:say a"}
    for headers in ({}, {}, {"x-rtrl-session": "s"}, {"x-rtrl-session": "s"}):
        await rig.http.post("/v1/completions", json=body, headers=headers)
    found = rig.generations()
    assert len({g.episode for g in found}) == 4
    assert len({g.session for g in found}) == 3
    assert found[2].session == found[3].session


async def test_a_request_that_is_sent_again_is_another_one(rig: Rig) -> None:
    ids = {(await rig.chat("x", headers={"idempotency-key": "k"})).json()["id"] for _ in range(2)}
    assert {g.id for g in rig.generations()} == ids
    assert len(ids) == 2


async def test_what_is_ours_does_not_reach_the_engine(rig: Rig) -> None:
    ours = {"user": "u", "metadata": {}, "parallel_tool_calls": False, "seed": 1, "store": True}
    ours |= {"service_tier": "auto", "safety_identifier": "s", "prompt_cache_key": "k", "tool_choice": "none"}
    assert (await rig.chat("x", **ours)).status_code == 200
    sent = rig.stub.requests[-1]
    assert not ours.keys() & sent.keys()
    assert "max_tokens" not in sent, "left out means as much as the context holds"
    assert rig.generations()[-1].sampling.unknown == ()


async def test_the_fingerprint_is_of_the_checkpoint(rig: Rig) -> None:
    digest = "60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752"
    swap = {"checkpoint": f"sha256:{digest}", "path": str(rig.root)}
    assert (await rig.admin.post("/admin/swap", json=swap)).status_code == 200
    assert (await rig.chat("x")).json()["system_fingerprint"] == digest[:16]


async def test_headers_are_counted_and_measured(rig: Rig) -> None:
    for more, status in (
        (100 - 4, 200),
        (100 - 4 + 1, 431),
    ):  # Host, Authorization, Connection, Content-Length
        sent = request(rig, CHAT, ASKED, "Connection: close", *(f"X-{n}: y" for n in range(more)))
        assert (await over(rig, sent)).startswith(f"HTTP/1.1 {status} ".encode())
    long = request(rig, CHAT, ASKED, "Connection: close", f"X: {'y' * 32768}")
    assert b'"headers_too_large"' in await over(rig, long)


async def test_what_goes_wrong_in_a_stream_is_shaped_as_any_error(rig: Rig) -> None:
    answer = await rig.chat("stub:tokens=9 stub:die=3", stream=True)
    *pieces, last = [line for line in answer.text.split("\n\n") if line]
    assert json.loads(last.removeprefix("data: ")) == {
        "error": {
            "message": "the engine stopped answering",
            "type": "service_unavailable",
            "param": None,
            "code": "engine_lost",
        },
        "request_id": answer.headers["x-request-id"],
    }
    assert all("choices" in json.loads(piece.removeprefix("data: ")) for piece in pieces)


async def test_feedback_is_the_keys_whoever_the_answer_was_made_for(rig: Rig) -> None:
    """And it has no id: told twice it is two events, of which the last counts."""
    answer = (await rig.chat("x", user="ada")).json()["id"]
    told = {"metric_name": "thumb", "inference_id": answer, "value": True}
    for _ in range(2):
        assert (
            await rig.http.post("/feedback", json=told, headers={"x-rtrl-user": "bob"})
        ).status_code == 200
    assert [(event.generation_id, event.type) for event in rig.events()] == [(answer, "thumbs")] * 2


@pytest.mark.parametrize("name", ["m" * 201, "", 5, None])
async def test_a_metric_that_would_be_no_event_is_refused(rig: Rig, name: Any) -> None:
    """It was taken, kept as what another gateway's would be, and never moved anything."""
    answer = (await rig.chat("x")).json()["id"]
    told = {"metric_name": name, "inference_id": answer, "value": 1}
    found = await rig.http.post("/feedback", json=told)
    assert (found.status_code, found.json()["error"]["param"]) == (400, "metric_name")
    assert (await rig.http.post("/feedback", json={**told, "metric_name": "m" * 200})).status_code == 200
    assert [event.type for event in rig.events()] == ["feedback"]


async def test_a_reference_that_leads_nowhere_accuses_no_call(rig: Rig) -> None:
    """It is the client's, and the model would be punished for it."""
    for target, error in (
        ("#/$defs/word", "schema"),
        ("#/$defs/none", ""),
        ("https://x.example/a", ""),
    ):
        parameters = {"type": "object", "$defs": {"word": {"type": "string"}}}
        parameters |= {"properties": {"path": {"$ref": target}}}
        tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
        answer = (await rig.chat('stub:call f {"path": 1}', tools=tools)).json()
        assert answer["choices"][0]["finish_reason"] == "tool_calls"
        assert [call.error for call in rig.generations()[-1].tool_calls] == [error]
        await rig.chat('stub:call f {"path": "a"}', tools=tools)
        assert rig.generations()[-1].invalid_tool_calls == 0


async def test_continue_may_send_one_event_alone(rig: Rig) -> None:
    event = {"name": "somethingNew", "schema": "9.0.0", "level": "all", "profileId": "local", "data": {}}
    one = (await rig.http.post("/v1/continue/data", json=event)).json()
    assert one == (await rig.http.post("/v1/continue/data", json=[event])).json()
    assert one == {"accepted": 0, "rejected": [{"reason": "unknown_type", "count": 1}]}


async def test_the_id_of_a_rejected_event_is_told_where_it_is_a_string(rig: Rig) -> None:
    events = [
        {"id": one, "type": "thumbs", "data": {"value": 1}, "generation_id": UNKNOWN} for one in ("", 5)
    ]
    told = (await rig.http.post("/v1/events", json={"events": events})).json()["rejected"]
    assert [(one["index"], one["id"]) for one in told] == [(0, ""), (1, None)]
    assert all(one["reason"].startswith("invalid_id: ") for one in told)


async def test_too_many_that_wait_are_told_so(tmp_path: Path) -> None:
    async with running(tmp_path, max_pending_events=1) as rig:
        assert (await rig.event("e1", UNKNOWN))["pending"] == 1
        assert [one["reason"] for one in (await rig.event("e2", UNKNOWN))["rejected"]] == ["too_many_pending"]
        told = {"metric_name": "thumb", "inference_id": UNKNOWN, "value": True}
        answer = await rig.http.post("/feedback", json=told)
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "too_many_pending")
        assert int(answer.headers["retry-after"]) > 0
