"""Good requests with bytes changed, cut and sent in pieces: no hang, no bug, nobody else harmed."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.security.wire import CHAT, chat, head
from tests.stages.gateway.rig import Rig, running, until

CONNECTIONS = 200
JUNK = [
    *(b"\r", b"\n", b"\r\n", b"\0", b":", b" ", b"\t", b";", b",", b"\xff", b"0\r\n\r\n", b"a" * 3000),
    b"Content-Length: 1\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Connection: close\r\n",
    b"Upgrade: h2c\r\nConnection: upgrade\r\n",
    b"GET / HTTP/1.1\r\n",
]


def good(key: str) -> list[bytes]:
    """Requests of each form that a client may send."""
    owner = f"Authorization: Bearer {key}"
    body = json.dumps({"model": "rtrl", "messages": [{"role": "user", "content": "hi"}]}).encode()
    chunked = head("POST", CHAT, owner, "Transfer-Encoding: chunked", close=False)
    return [
        head("GET", "/health", close=False),
        head("GET", "/v1/models/rtrl", owner, close=False),
        chat(key, close=False),
        chat(key, "hi", "Expect: 100-continue", close=False, stream=True),
        chunked + b"%x;a=b\r\n%s\r\n0\r\nT: u\r\n\r\n" % (len(body), body),
        head("POST", "/v1/events", owner, "Content-Length: 2", close=False) + b"{}",
        head("POST", "/v1/traces", owner, "Content-Encoding: gzip", "Content-Length: 4")
        + b"\x1f\x8b\x08\x00",
    ]


def spoilt(chance: random.Random, data: bytes) -> bytes:
    """With some bytes put in, left out, or others."""
    found = bytearray(data)
    for _ in range(chance.choice([0, 0, 1, 1, 2, 4])):
        at = chance.randrange(len(found))
        kind = chance.randrange(3)
        if kind == 0:
            found[at:at] = chance.choice(JUNK)
        elif kind == 1 and len(found) > 40:
            del found[at : at + chance.choice([1, 2, 5, 30])]
        else:
            found[at] = chance.randrange(256)
    return bytes(found)


async def one(rig: Rig, chance: random.Random, requests: list[bytes]) -> None:
    """A connection: some requests at once, in pieces; some leave before they are answered."""
    parts = urlsplit(rig.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    data = b"".join(spoilt(chance, chance.choice(requests)) for _ in range(chance.choice([1, 1, 2, 5])))
    cuts = sorted(chance.randrange(len(data)) for _ in range(chance.choice([0, 0, 1, 4, 12])))
    try:
        for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
            writer.write(data[start:end])
            await asyncio.sleep(0)
        if chance.random() < 0.3:
            writer.transport.abort()
        else:
            await asyncio.wait_for(reader.read(), 60)
    except ConnectionError:
        pass
    finally:
        writer.close()


@pytest.mark.parametrize("seed", [1, 2])
async def test_spoilt_requests_do_no_harm(
    tmp_path: Path, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    times = {"header_timeout_s": 0.3, "body_timeout_s": 0.3, "idle_timeout_s": 0.3}
    async with running(tmp_path, **times) as rig:
        requests = good(rig.key)
        # the same each time: a connection's chances are its own, whichever of them is served first
        chances = [random.Random(f"{seed} {number}") for number in range(CONNECTIONS)]
        for begin in range(0, CONNECTIONS, 50):
            await asyncio.gather(*(one(rig, chance, requests) for chance in chances[begin : begin + 50]))
        await until(lambda: rig.served.gate.in_flight == 0)
        assert rig.gateway._bodies.held == 0
        assert (await rig.chat("hi")).status_code == 200
        assert {g.user for g in rig.generations()} <= {g.key_id for g in rig.generations()}, "nobody's name"
    assert not [record for record in caplog.records if record.name.startswith(("rtrl", "uvicorn", "asyncio"))]
