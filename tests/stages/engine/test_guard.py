"""Every route of the engine's port wants the key."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import httpx
import pytest

from stages.engine.guard import KEY_VARIABLE, NAME, NOTE, READS, KeyGuard, Receive, Scope, Send


async def app(scope: Scope, _receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"in"})


async def ask(path: str, headers: dict[str, str]) -> int:
    transport = httpx.ASGITransport(app=KeyGuard(app))
    async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
        return (await client.post(path, headers=headers)).status_code


@pytest.mark.parametrize("path", ["/health", "/v1/completions", "/collective_rpc"])
async def test_only_the_key_opens(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "secret")
    assert await ask(path, {"Authorization": "Bearer secret"}) == 200
    assert await ask(path, {"Authorization": "Bearer secre"}) == 401
    assert await ask(path, {}) == 401


async def test_without_a_key_nobody_gets_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    assert await ask("/health", {"Authorization": "Bearer "}) == 401


async def test_every_answer_names_the_process_and_what_it_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "secret")
    headers = {"Authorization": "Bearer secret"}

    async def names(guard: KeyGuard, *calls: tuple[str, str, dict[str, str]]) -> list[str]:
        transport = httpx.ASGITransport(app=guard)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://engine", headers=headers
        ) as client:
            answers = [await client.request(verb, path, headers=more) for verb, path, more in calls]
            return [answer.headers.get(NAME.decode(), "") for answer in answers]

    harmless = [
        ("GET", "/health", {}), ("POST", "/v1/completions", {}), ("POST", "/pause?mode=keep", {}),
        ("POST", "/resume", {}), ("POST", "/reset_prefix_cache", {}),
        ("POST", "/collective_rpc", {READS: "1"}),
    ]  # fmt: skip
    guard = KeyGuard(app)
    (first,) = set(await names(guard, *harmless))
    told = await names(
        guard, *(("POST", path, {}) for path in ("/collective_rpc", "/update_weights", "/sleep"))
    )
    assert len({first, *told}) == 4
    assert {name.split(".")[0] for name in told} == {first.split(".")[0]}
    assert set(await names(guard, *harmless)) == {told[-1]}
    assert await names(guard, ("POST", "/collective_rpc", {"Authorization": "Bearer no"})) == [""]
    assert set(await names(guard, *harmless)) == {told[-1]}
    assert (await names(KeyGuard(app), *harmless))[0].split(".")[0] != first.split(".")[0]


async def test_a_stream_says_once_that_it_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "secret")
    answers: dict[str, bytes] = {}

    async def streaming(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/collective_rpc":
            await app(scope, receive, send)
            return
        headers = [(b"content-type", scope["path"][1:].encode() + b"; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for number in range(4):
            await send({"type": "http.response.body", "body": b"data: %d\n\n" % number, "more_body": True})
            if number == 1:
                assert (await client.post("/collective_rpc")).status_code == 200
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    transport = httpx.ASGITransport(app=KeyGuard(streaming))
    headers = {"Authorization": "Bearer secret"}
    async with httpx.AsyncClient(transport=transport, base_url="http://engine", headers=headers) as client:
        for kind in ("text/event-stream", "text/plain"):
            answers[kind] = (await client.get(f"/{kind}")).content
    plain = b"".join(b"data: %d\n\n" % number for number in range(4))
    assert answers["text/plain"] == plain
    before, _, rest = answers["text/event-stream"].partition(NOTE)
    name, _, after = rest.partition(b"\n\n")
    assert name.endswith(b".1")
    assert before + after == plain


async def test_lifespan_passes_and_websockets_are_closed() -> None:
    sent: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    async def receive() -> MutableMapping[str, Any]:
        return {}

    await KeyGuard(app)({"type": "lifespan"}, receive, send)
    await KeyGuard(app)({"type": "websocket", "headers": []}, receive, send)
    assert [message["type"] for message in sent] == ["websocket.close"]
