"""An open-loop load generator in a process of its own: requests leave on schedule, whatever comes back.

    python _load.py URL KEY RATE SECONDS [returning]

prints {"ms": [latency of each answer], "ids": [generation ids], "refused": n, "failed": n}. A latency counts
from the moment the request was due, so that a server that stalls does not hide it. Refused is 429 with
Retry-After. RATE x64 is a closed loop in its place: 64 connections, each sending as soon as it was answered.
With `returning` the requests are of 200 conversations that come again and again. Speaks just enough
HTTP/1.1 on bare sockets to be much lighter than what it measures.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import random
import sys
import time
from typing import cast
from urllib.parse import urlsplit

import uvloop

ID_HEADER = b"x-rtrl-generation-id: "
USERS = 50
SESSIONS = 200
MOST = 20_000  # requests prepared; a soak sends them again
TOLD_LATER = -429
TEXT = "the function should return a sum of both arguments and not their difference please fix"


class Connection(asyncio.Protocol):
    """One keep-alive connection; one request at a time."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.answer: asyncio.Future[tuple[int, bytes]] | None = None
        self.buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head, found, body = self.buffer.partition(b"\r\n\r\n")
        if not found or self.answer is None:
            return
        lowered = head.lower()
        start = lowered.index(b"content-length: ") + 16
        length = int(lowered[start:].split(b"\r\n", 1)[0])
        if len(body) < length:
            return
        self.buffer = b""
        at = lowered.find(ID_HEADER)
        generation = lowered[at + len(ID_HEADER) :].split(b"\r\n", 1)[0] if at >= 0 else b""
        answer, self.answer = self.answer, None
        status = int(head[9:12])
        answer.set_result(
            (TOLD_LATER if status == 429 and b"\r\nretry-after: " in lowered else status, generation)
        )

    def connection_lost(self, exc: Exception | None) -> None:
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(exc or ConnectionError("closed"))


class Load:
    """Sends requests and notes what comes back."""

    def __init__(self, url: str, key: str, *, returning: bool = False) -> None:
        parts = urlsplit(url)
        self.returning = returning
        self.host, self.port = parts.hostname or "", parts.port or 80
        self.head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: {parts.netloc}\r\nauthorization: Bearer {key}\r\n"
            "content-type: application/json\r\ncontent-length: "
        ).encode()
        self.random = random.Random(1)
        self.idle: list[Connection] = []
        self.ms: list[float] = []
        self.ids: list[str] = []
        self.failed = 0
        self.refused = 0

    def request(self) -> bytes:
        """A short conversation of one of the users, in words never seen before."""
        text = " ".join(self.random.choices(TEXT.split(), k=80))
        message = {"role": "user", "content": text}
        user = f"user{self.random.randrange(USERS)}"
        body: dict[str, object] = {"model": "rtrl", "messages": [message], "user": user}
        if self.returning:
            name = f"s{self.random.randrange(SESSIONS)}"
            body |= {"user": f"user-of-{name}", "metadata": {"rtrl_session": name, "rtrl_episode": name}}
        data = json.dumps(body).encode()
        return self.head + str(len(data)).encode() + b"\r\n\r\n" + data

    def kept(self) -> Connection | None:
        """A connection that is free, and that the server has not closed."""
        while self.idle:
            connection = self.idle.pop()
            if connection.transport is not None and not connection.transport.is_closing():
                return connection
        return None

    async def send(self, data: bytes, due: float, counted: bool) -> None:
        """One request; `due` on the perf_counter's clock."""
        loop = asyncio.get_running_loop()
        try:
            connection = self.kept()
            if connection is None:
                _, connection = await loop.create_connection(Connection, self.host, self.port)
            assert connection.transport is not None
            connection.answer = loop.create_future()
            connection.transport.write(data)
            status, generation = await asyncio.wait_for(connection.answer, 60)
        except (OSError, TimeoutError):
            self.failed += 1
            return
        self.idle.append(connection)
        if status != 200:
            self.refused += status == TOLD_LATER
            self.failed += status != TOLD_LATER
            return
        self.ids.append(generation.decode())
        if counted:
            self.ms.append((time.perf_counter() - due) * 1000)

    async def run(self, rate: float, seconds: float, warm_up: float = 2.0) -> None:
        """Poisson arrivals at `rate` per second."""
        tasks: set[asyncio.Task[None]] = set()
        few = min(
            int(rate * (seconds + warm_up) * 1.5) + 50, MOST
        )  # the text is new to the server all the same
        prepared = [self.request() for _ in range(few)]
        gc.freeze()
        gc.disable()
        start = time.perf_counter() + 0.1
        due = start
        for data in itertools.cycle(prepared):
            due += self.random.expovariate(rate)
            if due > start + warm_up + seconds:
                break
            wait = due - time.perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)
            task = asyncio.create_task(self.send(data, due, due > start + warm_up))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        if tasks:
            await asyncio.wait(tasks)

    async def saturate(self, connections: int, seconds: float, warm_up: float = 2.0) -> None:
        """A closed loop on every connection; answers within the `seconds` after warming up are counted."""
        prepared = itertools.cycle([self.request() for _ in range(1000)])
        gc.freeze()
        gc.disable()
        start = time.perf_counter() + warm_up

        async def again() -> None:
            while (now := time.perf_counter()) < start + seconds:
                answered = len(self.ms)
                await self.send(next(prepared), now, now >= start)
                if len(self.ms) == answered:  # warming up, or refused: not as fast as that goes
                    await asyncio.sleep(0.001)

        await asyncio.gather(*(again() for _ in range(connections)))


def main() -> None:
    url, key, rate, seconds, *returning = sys.argv[1:]
    load = Load(url, key, returning=bool(returning))
    if rate.startswith("x"):
        uvloop.run(load.saturate(int(rate[1:]), float(seconds)))
    else:
        uvloop.run(load.run(float(rate), float(seconds)))
    print(json.dumps({"ms": load.ms, "ids": load.ids, "refused": load.refused, "failed": load.failed}))


if __name__ == "__main__":
    main()
