"""So many streamed answers open all the time, from a process of its own.

    python _streams.py URL KEY STREAMS SECONDS [returning]

prints {"ttft_ms": [until the first piece of each stream], "ids": [generation ids], "events": pieces,
"seconds": s, "refused": n, "failed": n}. The engine is told to send 20 tokens, one every 0.1 s, as a busy one
does. A stream counts as answered when its `[DONE]` came. Streams that began while warming up are not in the
times. Bare sockets, as `_load.py`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import sys
import time
from typing import cast
from urllib.parse import urlsplit

import uvloop

ID_HEADER = b"x-rtrl-generation-id: "
WORDS = "stub:tokens=20 stub:gap=0.1 please fix the function that should return the sum of both arguments"
TIMEOUT_S = 60.0
END = b"0\r\n\r\n"  # the last chunk of a chunked body


class Stream(asyncio.Protocol):
    """One connection, used for one stream after another."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.done: asyncio.Future[None] | None = None
        self.clear()

    def clear(self) -> None:
        """Before the next stream."""
        self.head = b""
        self.tail = b""
        self.status = 0
        self.first: float | None = None
        self.events = 0
        self.complete = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if not self.status:
            self.head += data
            head, found, data = self.head.partition(b"\r\n\r\n")
            if not found:
                return
            self.head, self.status = head.lower(), int(head[9:12])
        if self.first is None and b"data: " in data:
            self.first = time.perf_counter()
        self.events += data.count(b"data: ")
        self.tail = (self.tail + data)[-64:]
        self.complete = self.complete or b"[DONE]" in self.tail
        if self.status != 200 or self.tail.endswith(END):
            self.end()

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self.end()

    def end(self) -> None:
        """The stream is over, well or not."""
        if self.done is not None and not self.done.done():
            self.done.set_result(None)


class Streams:
    """The clients."""

    def __init__(self, url: str, key: str, *, returning: bool) -> None:
        self.parts = urlsplit(url)
        self.returning = returning
        self.head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: {self.parts.netloc}\r\n"
            f"authorization: Bearer {key}\r\ncontent-type: application/json\r\ncontent-length: "
        )
        self.random = random.Random(2)
        self.ttft_ms: list[float] = []
        self.ids: list[str] = []
        self.events = self.failed = self.refused = 0

    def request(self, client: int) -> bytes:
        """One of the conversations of a client."""
        messages = [{"role": "user", "content": f"{WORDS} {self.random.random()}"}]
        body = {"model": "rtrl", "stream": True, "messages": messages, "user": f"streamer{client}"}
        if self.returning:
            body["metadata"] = {"rtrl_session": f"stream{client}", "rtrl_episode": f"stream{client}"}
        data = json.dumps(body)
        return f"{self.head}{len(data)}\r\n\r\n{data}".encode()

    async def client(self, number: int, counted_from: float, until: float) -> None:
        """One stream after another. The first ones do not begin all at once."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self.random.random() * 2)
        stream: Stream | None = None
        while (began := time.perf_counter()) < until:
            try:
                if stream is None or stream.transport is None:
                    host, port = self.parts.hostname or "", self.parts.port or 80
                    _, stream = await loop.create_connection(Stream, host, port)
                stream.clear()
                stream.done = loop.create_future()
                assert stream.transport is not None
                stream.transport.write(self.request(number))
                await asyncio.wait_for(stream.done, TIMEOUT_S)
            except (OSError, TimeoutError):
                self.failed += 1
                stream = None
                await asyncio.sleep(0.1)
                continue
            self.note(stream, began, counted=began >= counted_from)
            if not stream.complete:  # the connection may be in the middle of something
                if stream.transport is not None:
                    stream.transport.abort()
                stream = None
                await asyncio.sleep(0.1)

    def note(self, stream: Stream, began: float, *, counted: bool) -> None:
        """One stream has ended."""
        if stream.status == 429 and b"\r\nretry-after: " in stream.head:
            self.refused += 1
        elif stream.status != 200 or not stream.complete or stream.first is None:
            self.failed += 1
        else:
            at = stream.head.find(ID_HEADER)
            if at >= 0:
                self.ids.append(stream.head[at + len(ID_HEADER) :].split(b"\r\n", 1)[0].decode())
            if counted:
                self.events += stream.events
                self.ttft_ms.append((stream.first - began) * 1000)

    async def run(self, count: int, seconds: float, warm_up: float = 2.0) -> None:
        """All clients."""
        gc.freeze()
        start = time.perf_counter() + warm_up
        await asyncio.gather(*(self.client(n, start, start + seconds) for n in range(count)))
        self.seconds = time.perf_counter() - start


def main() -> None:
    url, key, count, seconds, *returning = sys.argv[1:]
    streams = Streams(url, key, returning=bool(returning))
    uvloop.run(streams.run(int(count), float(seconds)))
    found = {name: getattr(streams, name) for name in ("ttft_ms", "ids", "events", "refused", "failed")}
    print(json.dumps(found | {"seconds": streams.seconds}))


if __name__ == "__main__":
    main()
