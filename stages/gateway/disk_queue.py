"""Received records of many requests go to the disk with one sync, and no more wait than memory has.

One event loop only. Not for: the writing (`stages/inbox/writer.py`).
"""

from __future__ import annotations

import asyncio

from stages.gateway.errors import ApiError
from stages.inbox.writer import InboxWriter, Received

WAITING_BYTES = 64 << 20  # records of requests that wait for the disk; more get 429


class Queue:
    """Before one writer."""

    def __init__(self, inbox: InboxWriter) -> None:
        self._inbox = inbox
        self._waiting: list[tuple[Received, asyncio.Future[None]]] = []
        self._bytes = 0
        self._task: asyncio.Task[None] | None = None

    async def put(self, batch: Received) -> None:
        """Returns when it is on disk. Raises ApiError 429, DependencyDownError."""
        size = sum(map(len, batch.lines))
        if self._bytes and self._bytes + size > WAITING_BYTES:
            raise ApiError(
                429, "rate_limit_error", "too_many_requests", "too much waits for the disk", retry_after=2
            )
        done = asyncio.get_running_loop().create_future()
        self._waiting.append((batch, done))
        self._bytes += size
        if self._task is None:
            self._task = asyncio.create_task(self._write())
        try:
            await done
        finally:
            self._bytes -= size

    async def _write(self) -> None:
        while self._waiting:
            now, self._waiting = self._waiting, []
            failed: Exception | None = None
            try:
                await asyncio.to_thread(self._inbox.append, [batch for batch, _ in now])
            except Exception as error:  # noqa: BLE001  # each of the waiting requests raises it
                failed = error
            for _, done in now:
                if done.done():
                    continue
                if failed is None:
                    done.set_result(None)
                else:
                    done.set_exception(failed)
        self._task = None
