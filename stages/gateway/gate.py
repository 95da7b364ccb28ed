"""Keeps weight swaps and generations apart: many generations pass, or one swap.

While a swap waits for those in flight, new requests wait; they are let in when it is done. One event
loop only; no locks needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from stages.gateway.errors import unavailable


class DrainTimeoutError(Exception):
    """Generations in flight did not finish in time; the gate is open again and nothing was changed."""


class Gate:
    """An asynchronous many-or-one lock that favours the one."""

    def __init__(self) -> None:
        self.in_flight = 0
        self.waiting = 0
        self._open = asyncio.Event()
        self._open.set()
        self._idle = asyncio.Event()

    @property
    def closed(self) -> bool:
        """Whether a swap holds the gate or waits for it."""
        return not self._open.is_set()

    async def enter(self, timeout: float) -> None:
        """Begin a generation. Raises ApiError 503 when a swap takes longer than `timeout` seconds."""
        if not self._open.is_set():
            self.waiting += 1
            try:
                async with asyncio.timeout(timeout):
                    while not self._open.is_set():
                        await self._open.wait()
            except TimeoutError:
                raise unavailable("weights_updating", "the model's weights are being updated") from None
            finally:
                self.waiting -= 1
        self.in_flight += 1

    def leave(self) -> None:
        """The generation's last token has come from the engine."""
        self.in_flight -= 1
        if self.in_flight == 0:
            self._idle.set()

    @asynccontextmanager
    async def exclusive(self, timeout: float) -> AsyncIterator[None]:
        """Hold new generations, wait for those in flight, be alone; then let everybody in again.

        Raises:
            DrainTimeoutError: they were not done after `timeout` seconds.
        """
        self._open.clear()
        try:
            try:
                async with asyncio.timeout(timeout):
                    while self.in_flight:
                        self._idle.clear()
                        await self._idle.wait()
            except TimeoutError:
                raise DrainTimeoutError(f"{self.in_flight} generations were still running") from None
            yield
        finally:
            self._open.set()
