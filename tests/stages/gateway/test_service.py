"""The edge itself: who gets in, how much may come in, and what happens when something is down."""

from __future__ import annotations

import gzip
import logging
import os
import stat
from pathlib import Path
from typing import Any

import httpx
import pytest

from stages import locks
from stages.errors import InputMissingError, IntegrityError, LockedError, UsageError
from stages.gateway.app import Gateway
from stages.gateway.key_file import LOCK
from stages.gateway.keys import ApiKeys
from stages.gateway.logs import JsonLines, Text
from stages.gateway.server import bind_tcp, bind_unix
from tests.stages.gateway.rig import Rig, running, until


def error(answer: httpx.Response) -> tuple[int, str]:
    body = answer.json()["error"]
    assert set(body) == {"message", "type", "param", "code"}
    return answer.status_code, body["code"]


async def test_nobody_gets_in_without_a_key(rig: Rig) -> None:
    routes = [
        ("POST", "/v1/chat/completions"),
        ("POST", "/v1/completions"),
        ("POST", "/v1/events"),
        ("GET", "/v1/models"),
    ]
    for method, path in routes:
        for value in ("", "Bearer", "Bearer nope", f"Basic {rig.key}", f"Bearer {rig.key}x"):
            answer = await rig.http.request(method, path, headers={"authorization": value}, content=b"{}")
            assert error(answer) == (401, "invalid_api_key")
    assert (await rig.http.get("/health", headers={"authorization": ""})).json() == {"status": "ok"}


def test_who_finds_the_keys_locked_is_told_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`rtrl keys` has no --lock-timeout."""
    monkeypatch.setattr("stages.gateway.key_file.LOCK_WAIT_S", 0.0)
    umask = os.umask(0o022)
    try:
        ApiKeys.create(tmp_path / "keys", "first")
    finally:
        os.umask(umask)
    assert stat.S_IMODE((tmp_path / "keys").stat().st_mode) == 0o700
    with locks.hold(tmp_path / "keys" / LOCK, what="rtrl keys"), pytest.raises(LockedError) as caught:
        ApiKeys.create(tmp_path / "keys", "second")
    assert caught.value.hint == locks.RUN_AGAIN


async def test_keys_are_hashed_at_rest_and_can_be_revoked(rig: Rig) -> None:
    path = rig.root / "keys" / "api_keys.json"
    assert rig.key not in path.read_text()
    assert path.stat().st_mode & 0o077 == 0
    with pytest.raises(UsageError):
        ApiKeys.create(rig.root / "keys", "default")
    assert (await rig.http.get("/v1/models")).status_code == 200
    ApiKeys.revoke(rig.root / "keys", "default")
    rig.gateway._keys._next_check = 0.0
    assert (await rig.http.get("/v1/models")).status_code == 401


def test_a_key_revoked_in_the_tick_it_was_made_in_is_refused(tmp_path: Path) -> None:
    """The file's time is the same, and so is its size, but for the date of the end."""
    key = ApiKeys.create(tmp_path, "ide")
    keys = ApiKeys.open(tmp_path)
    path = tmp_path / "api_keys.json"
    before = path.stat()
    ApiKeys.rotate(tmp_path, "ide")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    keys._next_check = 0.0
    assert keys.identify(key) is None


def test_a_missing_or_broken_key_file(tmp_path: Path) -> None:
    with pytest.raises(InputMissingError) as missing:
        ApiKeys.open(tmp_path)
    assert missing.value.code == 5
    (tmp_path / "api_keys.json").write_text("{")
    with pytest.raises(IntegrityError) as broken:
        ApiKeys.open(tmp_path)
    assert broken.value.code == 12


def test_a_version_that_does_not_know_a_promise_of_a_key_refuses_the_file(tmp_path: Path) -> None:
    """It would train on what is not to be trained on, and with its next key write the promise away."""
    path = tmp_path / "api_keys.json"
    ApiKeys.create(tmp_path, "ide")
    assert '"rtrl-api-keys/1"' in path.read_text()
    ApiKeys.create(tmp_path, "ci", no_train=True)
    assert '"rtrl-api-keys/2"' in path.read_text()  # older versions know 1 alone
    assert [key.no_train for key in ApiKeys.listed(tmp_path)] == [False, True]
    path.write_text(path.read_text().replace("no_train", "no_eval"))
    with pytest.raises(IntegrityError, match="no_eval") as unknown:
        ApiKeys.open(tmp_path)
    assert "a newer rtrl wrote it" in unknown.value.hint


@pytest.mark.parametrize("how", ["gone", "half written", "a folder"])
async def test_keys_stay_as_they_were_while_their_file_cannot_be_read(
    rig: Rig, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = rig.root / "keys" / "api_keys.json"
    whole = path.read_bytes()
    path.unlink()
    if how == "half written":
        path.write_bytes(whole[:-9])
    elif how == "a folder":
        path.mkdir()
    for _ in range(3):
        rig.gateway._keys._next_check = 0.0
        assert (await rig.http.get("/v1/models")).status_code == 200
        assert (await rig.http.get("/v1/models", headers={"authorization": "Bearer x"})).status_code == 401
    assert sum("API keys stay as they were" in line for line in caplog.messages) == 1
    path.rmdir() if how == "a folder" else path.unlink(missing_ok=True)
    path.write_bytes(whole)
    ApiKeys.revoke(rig.root / "keys", "default")
    rig.gateway._keys._next_check = 0.0
    assert (await rig.http.get("/v1/models")).status_code == 401


async def test_admin_routes_are_not_on_the_public_port(rig: Rig) -> None:
    for path in ("/admin/served", "/admin/swap", "/metrics", "/admin/spool/flush"):
        for method in ("GET", "POST"):
            assert error(await rig.http.request(method, path)) == (404, "not_found")
    for path in ("/v1/models", "/v1/chat/completions"):
        assert (await rig.admin.get(path)).status_code == 404
    for headers in ({"authorization": ""}, {"authorization": f"Bearer {rig.key}"}):
        assert error(await rig.admin.get("/admin/served", headers=headers)) == (401, "invalid_admin_key")


async def test_models_and_routes(rig: Rig) -> None:
    models = (await rig.http.get("/v1/models")).json()
    assert [m["id"] for m in models["data"]] == ["rtrl"]
    assert (await rig.http.get("/v1/models/rtrl")).json()["id"] == "rtrl"
    assert error(await rig.http.get("/v1/models/other")) == (404, "model_not_found")
    assert error(await rig.http.get("/v1/other")) == (404, "not_found")
    for method, path, allow in (("GET", "/v1/chat/completions", "POST"), ("DELETE", "/v1/models/x", "GET")):
        answer = await rig.http.request(method, path)
        assert error(answer) == (405, "method_not_allowed")
        assert answer.headers["allow"] == allow
    for path, status in (("/health", 200), ("/v1/models", 200), ("/v1/models/x", 404), ("/v1/events", 405)):
        head = await rig.http.head(path)  # health checkers of load balancers ask so
        assert (head.status_code, head.content) == (status, b"")
    wrong = await rig.http.post("/v1/chat/completions", json={"model": "gpt-9", "messages": []})
    assert error(wrong) == (404, "model_not_found")


async def test_what_is_no_http_is_answered_by_the_server(rig: Rig) -> None:
    answer = await rig.http.request("FROBNICATE", "/v1/models")
    assert answer.status_code == 400
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.headers["connection"] == "close"


async def test_limits(tmp_path: Path) -> None:
    async with running(tmp_path, max_body_bytes=2048, max_header_bytes=2048) as rig:
        assert error(await rig.chat("x" * 3000)) == (413, "body_too_large")

        async def endless() -> Any:
            for _ in range(100):
                yield b"x" * 100

        headers = {"authorization": f"Bearer {rig.key}"}
        answer = await rig.http.post("/v1/chat/completions", content=endless(), headers=headers)
        assert error(answer) == (413, "body_too_large")
        assert error(await rig.chat("x", headers={"x-long": "y" * 3000})) == (431, "headers_too_large")
        with pytest.raises(httpx.TransportError):
            await rig.chat("x", headers={"x-long": "y" * 20_000})
        assert (await rig.chat("x")).status_code == 200


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"x"', b'{"a": NaN}', b"[" * 5000, b"\xff"])
async def test_what_is_no_json_object(rig: Rig, body: bytes) -> None:
    assert error(await rig.http.post("/v1/chat/completions", content=body)) == (400, "invalid_json")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/events"])
async def test_a_compressed_body_is_refused_as_that(rig: Rig, path: str) -> None:
    body, headers = gzip.compress(b"{}"), {"content-encoding": "gzip"}
    assert error(await rig.http.post(path, content=body, headers=headers)) == (415, "unsupported_encoding")


async def test_the_engine_down_and_up_again(rig: Rig) -> None:
    assert (await rig.chat("x")).status_code == 200
    rig.stub.up = False
    for stream in (False, True):
        answer = await rig.chat("x", stream=stream)
        assert error(answer) == (503, "engine_error")
        assert int(answer.headers["retry-after"]) > 0
    await rig.engine_listener.stop()
    for stream in (False, True):
        assert error(await rig.chat("x", stream=stream)) == (503, "engine_down")
    g = rig.generations()[0].id
    assert (await rig.event("e1", g))["accepted"] == 1, "events do not need the engine"
    rig.served.engine = "down"
    assert error(await rig.chat("x")) == (503, "engine_down")
    assert (await rig.http.get("/health")).status_code == 503
    assert len(rig.generations()) == 1, "nothing captured is lost, nothing is invented"
    assert rig.served.gate.in_flight == 0


async def test_the_engine_dies_in_the_middle(rig: Rig) -> None:
    answer = await rig.chat("stub:die=4", stream=True)
    assert "engine_lost" in answer.text
    assert "[DONE]" not in answer.text
    (generation,) = rig.generations()
    assert (generation.finish_reason, generation.defect, generation.output_tokens) == (
        "error",
        "engine_lost",
        4,
    )
    assert error(await rig.chat("stub:die=1")) == (503, "engine_down")
    assert len(rig.generations()) == 1
    assert 'rtrl_unrecorded_total{reason="engine_down"} 1.0' in (await rig.admin.get("/metrics")).text


async def test_a_client_that_leaves_is_recorded_as_far_as_it_got(rig: Rig) -> None:
    body = {"model": "rtrl", "stream": True, "messages": [{"role": "user", "content": rig.hold(20)}]}
    async with rig.http.stream("POST", "/v1/chat/completions", json=body) as answer:
        g = answer.headers["x-rtrl-generation-id"]
        lines = 0
        async for _ in answer.aiter_lines():
            lines += 1
            if lines > 8:
                break
    await until(lambda: bool(rig.generations()))
    (generation,) = rig.generations()
    assert (generation.id, generation.finish_reason, generation.defect) == (g, "abort", "")
    assert 3 <= generation.output_tokens <= 20
    _, tokens = rig.payload(g)
    assert len(tokens.logprobs) == len(tokens.output) == generation.output_tokens
    assert rig.served.gate.in_flight == 0


async def test_a_client_that_leaves_a_whole_answer_is_recorded(rig: Rig) -> None:
    with pytest.raises(httpx.ReadTimeout):
        await rig.http.post(
            "/v1/chat/completions",
            json={"model": "rtrl", "messages": [{"role": "user", "content": rig.hold(0)}]},
            timeout=httpx.Timeout(60, read=0.1),
        )
    rig.let_go()
    await until(lambda: bool(rig.generations()))
    assert [g.finish_reason for g in rig.generations()] == ["stop"]


async def test_nothing_of_a_request_is_logged(
    rig: Rig, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)

    message = "PRIVATE-TEXT in an exception"

    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError(message)

    await rig.chat("PRIVATE-TEXT", metadata={"rtrl_user": "PRIVATE-USER"})
    await rig.http.post("/v1/chat/completions", content=b'{"PRIVATE-TEXT')
    with monkeypatch.context() as patch:
        patch.setattr("stages.gateway.generator.attribute", broken)
        assert error(await rig.chat("PRIVATE-TEXT")) == (500, "internal_error")
    ours = [r for r in caplog.records if r.name.startswith(("rtrl", "uvicorn"))]
    for formatter in (JsonLines(), Text()):
        lines = [formatter.format(r) for r in ours]
        assert any("RuntimeError" in line and "bug" in line for line in lines)
        assert not any("PRIVATE" in line for line in lines)


async def test_metrics_hold_no_names(rig: Rig) -> None:
    await rig.chat("x", user="PRIVATE-USER", headers={"x-rtrl-session": "PRIVATE"})
    await rig.http.get("/PRIVATE/path")
    await rig.http.get("/v1/models/PRIVATE")
    answer = await rig.admin.get("/metrics", headers={"authorization": ""})
    assert answer.headers["content-type"].startswith("text/plain")
    assert "PRIVATE" not in answer.text
    assert 'rtrl_requests_total{route="other",status="404"} 1.0' in answer.text
    assert "rtrl_spool_last_seq 1.0" in answer.text


async def test_admin_spool(rig: Rig) -> None:
    await rig.chat("x")
    assert (await rig.admin.post("/admin/spool/flush")).json() == {"last_seq": 1}
    assert (await rig.admin.post("/admin/spool/seal")).json() == {"last_seq": 1}
    await rig.chat("x")
    spool = rig.read()
    assert [row.state for row in spool.segments()] == ["sealed", "active"]
    spool.close()


async def test_a_user_forgotten_while_served(rig: Rig) -> None:
    await rig.chat("x", user="ada")
    rig.vault.forget("ada")
    assert (await rig.chat("x", user="ada")).status_code == 200
    first, second = rig.generations()
    with pytest.raises(IntegrityError):
        rig.payload(first.id)
    assert rig.payload(second.id)[0].request == "x"


def test_addresses(tmp_path: Path) -> None:
    taken = bind_tcp("127.0.0.1", 0)
    taken.listen()
    with pytest.raises(UsageError, match="cannot listen") as in_use:
        bind_tcp(*taken.getsockname())
    assert "another gateway" in in_use.value.hint
    taken.close()
    with pytest.raises(UsageError, match="cannot listen") as elsewhere:
        bind_tcp("192.0.2.1", 0)  # of documentation: no machine has it
    assert "gateway.host is an address of this machine" in elsewhere.value.hint
    with pytest.raises(UsageError) as too_long:
        bind_unix(tmp_path / ("x" * 200))
    assert "admin_port" in too_long.value.hint
    first = bind_unix(tmp_path / "admin.sock")
    assert (tmp_path / "admin.sock").stat().st_mode & 0o777 == 0o600
    first.close()
    bind_unix(tmp_path / "admin.sock").close()  # a stale one is replaced


async def test_websockets_and_lifespan_are_answered(rig: Rig) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "lifespan.startup"} if not sent else {"type": "lifespan.shutdown"}

    assert isinstance(rig.gateway, Gateway)
    await rig.gateway({"type": "websocket"}, receive, send)
    assert sent.pop()["type"] == "websocket.close"
    await rig.gateway({"type": "lifespan"}, receive, send)
    assert [m["type"] for m in sent] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
