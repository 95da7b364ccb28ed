"""Clients that take their answers slowly: what they hold, and what they do not."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from stages.gateway.taking import too_much
from tests.security.test_tls import write_pair
from tests.security.wire import chat
from tests.stages.gateway.rig import Rig, running, until


@pytest.mark.parametrize(
    ("most", "whose"), [(15, []), (14, ["c"]), (9, ["c"]), (8, ["c", "b"]), (4, ["c", "b"]), (3, list("cba"))]
)
def test_those_with_most_are_cut_off_until_little_enough_is_left(most: int, whose: list[str]) -> None:
    assert too_much([(4, "a"), (5, "b"), (6, "c")], most) == whose


@asynccontextmanager
async def asking(rig: Rig, *requests: bytes) -> AsyncIterator[asyncio.StreamReader]:
    """A client that has sent its requests, and reads when it is told to. Kernels hold little for it; its own
    TLS takes some hundred kilobytes in all the same."""
    rig.public._sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, rig.public.address)
    context = None
    if rig.url.startswith("https:"):
        context = ssl.create_default_context(cafile=rig.root / "cert.pem")
    name = "gateway.test" if context else None
    reader, writer = await asyncio.open_connection(sock=sock, limit=1024, ssl=context, server_hostname=name)
    try:
        writer.write(b"".join(requests))
        yield reader
    finally:
        writer.close()


@pytest.fixture(params=["http", "https"])
def secured(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """Settings of a gateway that speaks this."""
    if request.param == "http":
        return {}
    write_pair(tmp_path)
    return {"tls_cert": "cert.pem", "tls_key": "key.pem"}


def stream(rig: Rig, tokens: int, *, close: bool = True) -> bytes:
    return chat(rig.key, f"stub:tokens={tokens}", stream=True, close=close)


async def test_a_slow_reader_holds_neither_the_engine_nor_a_place(
    tmp_path: Path, secured: dict[str, str]
) -> None:
    """All places for streams were taken by those who did not read, for as long as they liked."""
    async with running(tmp_path, max_streams=1, **secured) as rig, asking(rig, stream(rig, 9000)) as slow:
        await until(lambda: len(rig.stub.requests) == 1 and rig.gateway.admission.accepted == 0)
        assert (await rig.chat("hello", stream=True)).status_code == 200
        answer = await slow.read()
        assert answer.count(b"chat.completion.chunk") > 9000
        assert answer.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


async def test_what_clients_have_not_taken_is_bounded(tmp_path: Path, secured: dict[str, str]) -> None:
    """Who lets most lie is cut off; what was sampled for it is recorded all the same."""
    async with (
        running(tmp_path, max_unread_bytes=1 << 20, **secured) as rig,
        asking(rig, stream(rig, 1000)) as slow,
        asking(rig, stream(rig, 6000)) as slower,
    ):
        await until(lambda: len(rig.generations()) == 2)
        await until(lambda: len(rig.public._server.server_state.connections) == 1)
        with pytest.raises(ConnectionError):
            await slower.read()
        assert b"[DONE]" in await slow.read()
        assert sorted(each.output_tokens for each in rig.generations()) == [1001, 6001]
        assert {each.finish_reason for each in rig.generations()} == {"stop"}


async def test_a_request_waits_until_the_answer_before_it_is_taken(tmp_path: Path) -> None:
    """Sent at once: answers that nobody reads would follow one another for ever."""
    async with running(tmp_path) as rig, asking(rig, *[stream(rig, 1000, close=False)] * 2) as slow:
        await until(lambda: len(rig.generations()) == 1)
        await asyncio.sleep(0.05)
        assert len(rig.stub.requests) == 1
        answer = b""
        async with asyncio.timeout(20):
            while answer.count(b"[DONE]") < 2:
                answer += await slow.read(4096)
