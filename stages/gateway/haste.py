"""One swap after another, and what one that cannot wait ends of the one before it.

A swap that has changed nothing yet gives up; an engine that is taking weights gets so much time as the one
that waits allows. Not here: what a swap does (`swapper.py`), generations in flight (`gate.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from stages.gateway.errors import SwapError
from stages.gateway.gate import Gate, OvertakenError

OTHERS_S = 10.0  # for a swap that is under way: of a command that was killed, it goes on to its end
AGAIN_S = 0.05  # what goes on may come to a wait that it was not in before


@asynccontextmanager
async def alone(
    busy: asyncio.Lock, limit_s: float | None, hurry: Callable[[], None] | None
) -> AsyncIterator[None]:
    """Holds `busy`.

    Args:
        limit_s: patience with the engine, if that is more than OTHERS_S.
        hurry: called over and over while another swap goes on, by one that cannot wait for it.

    Raises:
        SwapError: it goes on for longer.
    """
    limit = max((limit_s or 0.0) + OTHERS_S / 2, OTHERS_S)
    try:
        async with asyncio.timeout(limit):
            hurrying = asyncio.create_task(_again(hurry)) if hurry and busy.locked() else None
            try:
                await busy.acquire()
            finally:
                if hurrying is not None:
                    hurrying.cancel()
    except TimeoutError:
        raise SwapError("swap_running", f"another swap is running, for {limit:g} s and more") from None
    try:
        yield
    finally:
        busy.release()


async def _again(hurry: Callable[[], None]) -> None:
    while True:
        hurry()
        await asyncio.sleep(AGAIN_S)


class Haste:
    """Of one engine's swaps, one at a time."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._preparing: asyncio.Timeout | None = None
        self._updating: asyncio.Timeout | None = None
        self._gives_way = self._hurried = False

    def begun(self, *, cut: bool) -> None:
        """A swap has its turn; one that may `cut` answers gives way to nobody."""
        self._gives_way, self._hurried = not cut, False

    def require(self) -> None:
        """Before what is served changes. Raises OvertakenError: `hurry` was called since it began."""
        if self._gives_way and self._hurried:
            raise OvertakenError

    def hurry(self, drain_s: float, limit_s: float | None) -> None:
        """Somebody who cannot wait comes next, with this patience."""
        self._hurried = True
        now = asyncio.get_running_loop().time()
        self._gate.hurry(drain_s)
        if self._preparing is not None and self._preparing.when() is None:
            self._preparing.reschedule(now)
        if self._updating is not None and self._updating.when() is None and limit_s is not None:
            self._updating.reschedule(now + limit_s)

    @asynccontextmanager
    async def preparing(self, limit_s: float | None) -> AsyncIterator[None]:
        """Before anything is changed. Raises TimeoutError after `limit_s`; OvertakenError without one."""
        limit = asyncio.timeout(limit_s)
        try:
            async with limit:
                self._preparing = limit
                yield
        except TimeoutError:
            if limit_s is None and limit.expired():
                raise OvertakenError from None
            raise
        finally:
            self._preparing = None

    @asynccontextmanager
    async def updating(self) -> AsyncIterator[None]:
        """While the engine takes weights. Raises SwapError: it may hold anything then."""
        limit = asyncio.timeout(None)
        try:
            async with limit:
                self._updating = limit
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            raise SwapError("engine_unknown", "the engine took long, and a rollback could not wait") from None
        finally:
            self._updating = None
