"""Nothing that users write, and no key, is in a log or in an answer to somebody else."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import threading
import time
from contextlib import suppress
from typing import Any

import httpx
import pytest

from stages.gateway.config import GatewayConfig
from stages.gateway.http import Receive, Scope, Send
from stages.gateway.server import Listener, bind_tcp, serving_loop
from tests.security.wire import CHAT, PATIENCE_S, Site, chat, files, head, read, statuses

SECRET = "XYZZY-PRIVATE"  # what users write here


def secrets_sent(site: Site) -> list[bytes]:
    """Requests that go well and requests that go wrong, each with content in every place that takes any."""
    everywhere: dict[str, Any] = {
        "user": f"{SECRET}-user",
        "metadata": {"rtrl_session": f"{SECRET}-session", "other": SECRET},
        SECRET: SECRET,
    }
    key = f"Authorization: Bearer {site.key}"
    body = json.dumps({"model": SECRET, "messages": [{"role": SECRET, "content": SECRET}]}).encode()
    return [
        chat(site.key, SECRET, f"X-Request-Id: {SECRET}", f"User-Agent: {SECRET}", **everywhere),
        chat(site.key, SECRET, stream=True, **everywhere),
        chat(site.key, f"stub:wrong=logprobs {SECRET}"),
        chat(site.key, f"stub:die=2 {SECRET}", stream=True),
        chat(site.key, f"stub:overflow {SECRET}"),
        chat(f"rtrl-{SECRET}", SECRET),
        chat(site.key, SECRET, tools=[{"type": "function", "function": {"name": SECRET, "parameters": 5}}]),
        chat(site.key, SECRET, temperature=SECRET),
        head("POST", CHAT, key, f"Content-Length: {len(body)}") + body,
        head("POST", CHAT, key, "Content-Length: 20") + f'{{"{SECRET}'.encode()[:20].ljust(20),
        head("GET", f"/{SECRET}?{SECRET}={SECRET}", key, f"X-{SECRET}: {SECRET}"),
        head("GET", f"/v1/models/{SECRET}", key),
        head("POST", "/v1/events", key, f"X-Rtrl-User: {SECRET}\x01", "Content-Length: 2") + b"{}",
        head("POST", "/v1/traces", key, "Content-Type: application/json", "Content-Length: 15")
        + b'{"XYZZY-PRIVATE',
        f"GET /{SECRET} HTTP/1.1\r\n{SECRET}\r\n\r\n".encode(),
        f"{SECRET} / HTTP/1.1\r\n\r\n".encode(),
        head("POST", CHAT, key, "Content-Length: 4000", close=False) + SECRET.encode(),
    ]


def test_no_log_has_what_users_wrote_or_any_key(site: Site) -> None:
    """The gateway's, the engine's, and those of runs."""
    for sent in secrets_sent(site):
        site.send(sent, timeout=3)
    with site.connect() as gone:  # leaves in the middle of an answer
        gone.sendall(chat(site.key, f"stub:gap=0.02 {SECRET}", stream=True))
        gone.recv(1000)
    httpx.post(
        f"{site.endpoint.url}/feedback", json={"metric_name": SECRET, "value": SECRET}, timeout=PATIENCE_S
    )
    time.sleep(0.3)
    root = site.world.workspace.root
    logs = [*(root / "run").glob("*.log")]
    logs += [path for path in files(root / "store") if path.suffix in (".log", ".jsonl")]
    assert any(path.name == "serve.log" and path.stat().st_size for path in logs)
    assert any(path.name == "engine.log" for path in logs)
    told = [site.key, site.acme, site.endpoint.admin_key, site.endpoint.engine.key, SECRET]
    for path in logs:
        text = path.read_text(errors="replace")
        assert not [word for word in told if word in text], path.name
        assert not re.search(r"rtrl-[A-Za-z0-9_-]{20}", text), path.name


def test_what_is_kept_is_sealed(site: Site) -> None:
    """No file of spool or index holds a word of it in the clear; names are not content (docs/privacy.md)."""
    words = b"plugh-sealed-content"
    assert statuses(site.send(chat(site.key, words.decode()))) == [200]
    site.generations()
    seen = 0
    for path in files(site.world.workspace.root / "spool"):
        with suppress(FileNotFoundError):
            assert words not in path.read_bytes(), path.name
            seen += 1
    assert seen > 1


def test_metrics_hold_no_names(site: Site) -> None:
    site.send(chat(site.key, "hi", f"X-Rtrl-User: {SECRET}", f"X-Rtrl-Session: {SECRET}"))
    site.send(head("GET", f"/{SECRET}"))
    transport = httpx.HTTPTransport(uds=site.endpoint.admin_socket)
    with httpx.Client(transport=transport, base_url="http://admin", timeout=PATIENCE_S) as client:
        text = client.get("/metrics").text
    assert "rtrl_requests_total" in text
    assert SECRET not in text
    assert site.key not in text


INJECTED = [
    "a%0d%0aX-Injected: 1",
    "a\x85X-Injected: 1",
    "<script>",
    "a b",
    "../../etc/passwd",
    "a" * 500,
    "\xff\xfe",
    "{}",
]


@pytest.mark.parametrize("value", INJECTED)
def test_a_request_id_that_is_more_than_an_id_is_replaced(site: Site, value: str) -> None:
    answer = site.send(chat(site.key, "hi", f"X-Request-Id: {value}"))
    header = answer.partition(b"\r\n\r\n")[0].lower()
    found = re.search(rb"x-request-id: (\S+)", header)
    assert found is not None
    assert re.fullmatch(rb"req_[0-9a-f]{24}", found[1])
    assert b"x-injected" not in header


def test_no_value_becomes_a_header(site: Site) -> None:
    """Names, models and methods come back escaped in JSON or not at all."""
    for headers, target in (
        (["X-Rtrl-User: a%0d%0aX-Injected: 1"], CHAT),
        ([], "/v1/models/%0d%0aX-Injected:%201"),
        ([], "/%0d%0aX-Injected:%201"),
        (["Content-Type: application/json%0d%0aX-Injected: 1"], "/v1/traces"),
    ):
        for method in ("GET", "POST"):
            sent = head(method, target, f"Authorization: Bearer {site.key}", *headers)
            answer = site.send(sent)
            assert len(statuses(answer)) == 1
            assert b"x-injected" not in answer.partition(b"\r\n\r\n")[0].lower()


def test_an_answer_says_nothing_of_what_serves_it(site: Site) -> None:
    for sent in (chat(site.key), head("GET", "/nothing"), b"garbage\r\n\r\n"):
        header = site.send(sent).partition(b"\r\n\r\n")[0].lower()
        assert b"server:" not in header
        assert b"uvicorn" not in header
        assert b"python" not in header


def test_a_failure_shows_no_place_in_the_code(site: Site) -> None:
    with site.connect() as sock:
        sock.sendall(chat(site.key, "stub:die=1"))
        answer = read(sock)
    assert statuses(answer) == [503]
    assert b"Traceback" not in answer
    assert b".py" not in answer


async def test_a_failure_nobody_waits_for_quotes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """A task's exception may hold what a user wrote; asyncio logs it as it is."""
    loop = asyncio.get_running_loop()
    serving_loop(loop)

    async def fails() -> None:
        raise ValueError(SECRET)

    task = loop.create_task(fails())
    await asyncio.wait({task})
    del task
    gc.collect()
    loop.call_soon(int, SECRET)
    await asyncio.sleep(0.01)
    assert caplog.text.count("ValueError in the event loop") == 2
    assert "in fails" in caplog.text
    assert SECRET not in caplog.text


async def test_many_who_wait_in_a_thread_hold_up_nobody_else() -> None:
    """Engines that start hold one each for minutes; asyncio's own are six on two cores."""
    serving_loop(asyncio.get_running_loop())
    over = threading.Event()
    waiting = [asyncio.create_task(asyncio.to_thread(over.wait)) for _ in range(60)]
    try:
        async with asyncio.timeout(60):
            await asyncio.sleep(0)
            assert await asyncio.to_thread(lambda: "through") == "through"
    finally:
        over.set()
        await asyncio.gather(*waiting)


async def test_an_application_that_fails_is_not_quoted(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(scope: Scope, _receive: Receive, _send: Send) -> None:
        if scope["type"] == "http":
            raise ValueError(SECRET)

    listener = Listener(broken, [bind_tcp("127.0.0.1", 0)], GatewayConfig(shutdown_timeout_s=1))
    await listener.start()
    reader, writer = await asyncio.open_connection(*listener.address)
    writer.write(head("GET", f"/{SECRET}"))
    assert statuses(await reader.read()) == [500]
    writer.close()
    await listener.stop()
    assert "ValueError in the application" in caplog.text
    assert SECRET not in caplog.text
