"""Clients that keep asking a gateway while its weights change, and note when whose answer came.

An open loop: requests leave on schedule, whatever comes back; a latency counts from the moment the request
was due. Streaming, so that the first token of the new weights is seen when it comes: the first piece of an
answer whose `system_fingerprint` is the new checkpoint's.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import aiohttp

TEXT = "rename the function and keep its callers working please"


@dataclass
class Request:
    """One request. Times by `time.monotonic`; `due` when it should leave."""

    due: float
    first: float = 0.0
    done: float = 0.0
    fingerprint: str = ""
    failed: str = ""


@dataclass
class Clients:
    """The clients of one gateway, in a thread of their own.

    Args:
        url: of the gateway now; asked for every request, since a restart may change it.
        rate: requests/s.
        tokens: of each answer.
    """

    url: Callable[[], str]
    key: str
    rate: float
    tokens: int
    requests: list[Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """No more requests; returns when the last answer is there."""
        self._stop.set()
        self._thread.join()

    def first_of(self, digest: str, since: float, timeout_s: float = 300.0) -> float:
        """When the first token of a checkpoint came after `since`. Raises TimeoutError."""
        wanted = digest.removeprefix("sha256:")[:16]
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            seen = [r.first for r in list(self.requests) if r.fingerprint == wanted and r.first > since]
            if seen:
                return min(seen)
            time.sleep(0.002)
        raise TimeoutError(f"no token of {digest} within {timeout_s:.0f} s")

    async def _run(self) -> None:
        timeout = aiohttp.ClientTimeout(total=120)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            running: set[asyncio.Task[None]] = set()
            due = time.monotonic()
            while not self._stop.is_set():
                task = asyncio.create_task(self._ask(session, Request(due)))
                running.add(task)
                task.add_done_callback(running.discard)
                due += 1 / self.rate
                await asyncio.sleep(max(0.0, due - time.monotonic()))
            await asyncio.gather(*running)

    async def _ask(self, session: aiohttp.ClientSession, request: Request) -> None:
        self.requests.append(request)
        number = len(self.requests)
        body = {
            "model": "rtrl",
            "messages": [{"role": "user", "content": f"{TEXT} {number}"}],
            "max_tokens": self.tokens,
            "stream": True,
            "user": f"user{number % 50}",
        }
        headers = {"authorization": f"Bearer {self.key}"}
        try:
            async with session.post(
                f"{self.url()}/v1/chat/completions", json=body, headers=headers
            ) as answer:
                if answer.status != 200:
                    request.failed = f"{answer.status}"
                    return
                async for line in answer.content:
                    self._read(request, line)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            request.failed = type(error).__name__
        finally:
            request.done = time.monotonic()

    def _read(self, request: Request, line: bytes) -> None:
        if not line.startswith(b"data: {"):
            return
        piece = json.loads(line[6:])
        if "error" in piece:
            request.failed = str(piece["error"].get("code"))
        elif not request.first and piece.get("choices") and piece["choices"][0]["delta"].get("content"):
            request.fingerprint = piece["system_fingerprint"]
            request.first = time.monotonic()
