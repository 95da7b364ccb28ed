"""Clients that take their answers slowly: what they hold, and what they do not."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest

from stages.gateway.taking import Flow, too_much
from tests.security.wire import chat
from tests.stages.gateway.rig import Rig, running, until


@pytest.mark.parametrize(
    ("most", "whose"), [(15, []), (14, ["c"]), (9, ["c"]), (8, ["c", "b"]), (4, ["c", "b"]), (3, list("cba"))]
)
def test_those_with_most_are_cut_off_until_little_enough_is_left(most: int, whose: list[str]) -> None:
    assert too_much([(4, "a"), (5, "b"), (6, "c")], most) == whose


@pytest.mark.parametrize("tls", [False, True])
async def test_an_answer_waits_over_tls_alone(tls: bool) -> None:
    flow = Flow(Mock(**{"get_extra_info.side_effect": {"sslcontext": tls}.get}))
    flow.pause_writing()
    waiting = asyncio.create_task(flow.drain())
    await asyncio.sleep(0)
    assert waiting.done() != tls
    flow.resume_writing()
    await waiting
    await flow.taken()


@asynccontextmanager
async def asking(rig: Rig, *requests: bytes) -> AsyncIterator[asyncio.StreamReader]:
    """A client that has sent its requests, and reads when it is told to. Kernels hold little for it."""
    rig.public._sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, rig.public.address)
    reader, writer = await asyncio.open_connection(sock=sock, limit=1024)
    try:
        writer.write(b"".join(requests))
        yield reader
    finally:
        writer.close()


def stream(rig: Rig, tokens: int, *, close: bool = True) -> bytes:
    return chat(rig.key, f"stub:tokens={tokens}", stream=True, close=close)


async def test_a_slow_reader_holds_neither_the_engine_nor_a_place(tmp_path: Path) -> None:
    """All places for streams were taken by those who did not read, for as long as they liked."""
    async with running(tmp_path, max_streams=1) as rig, asking(rig, stream(rig, 3000)) as slow:
        await until(lambda: len(rig.stub.requests) == 1 and rig.gateway.admission.accepted == 0)
        assert (await rig.chat("hello", stream=True)).status_code == 200
        answer = await slow.read()
        assert answer.count(b"chat.completion.chunk") > 3000
        assert answer.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


async def test_what_clients_have_not_taken_is_bounded(tmp_path: Path) -> None:
    """Who lets most lie is cut off; what was sampled for it is recorded all the same."""
    async with (
        running(tmp_path, max_unread_bytes=1 << 20) as rig,
        asking(rig, stream(rig, 1000)) as slow,
        asking(rig, stream(rig, 4000)) as slower,
    ):
        await until(lambda: len(rig.generations()) == 2)
        await until(lambda: len(rig.public._server.server_state.connections) == 1)
        with pytest.raises(ConnectionError):
            await slower.read()
        assert b"[DONE]" in await slow.read()
        assert sorted(each.output_tokens for each in rig.generations()) == [1001, 4001]
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
