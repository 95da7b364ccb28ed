"""Keeps weight swaps and generations apart: many generations pass, or one swap.

While a swap waits for those in flight, new requests wait; they are let in when it is done. A swap that
cannot wait for ever cuts them short. One event loop only; no locks needed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from types import TracebackType

from stages.gateway.errors import ApiError, unavailable

log = logging.getLogger("rtrl.gateway")

CUT = "abort"  # finish reason of an answer that was not let finish, by its client or by a swap
SLICE_S = 0.1  # of waiting, between two looks at the patience that is left


class DrainTimeoutError(Exception):
    """Generations in flight did not finish in time; the gate is open again and nothing was changed."""


class OvertakenError(Exception):
    """A swap that cannot wait was asked for; the gate is open again and nothing was changed."""


class CutShortError(Exception):
    """A swap or a shutdown that could not wait ended this generation. Whoever made it records it and leaves
    the gate.

    Attributes:
        error: what its client is told.
    """

    def __init__(self, error: ApiError) -> None:
        super().__init__(error.code)
        self.error = error


class _Sampling:
    """See `Gate.sampling`. No generator: each request of all goes through here."""

    def __init__(self, gate: Gate) -> None:
        self._gate, self._limit = gate, asyncio.timeout(None)

    async def __aenter__(self) -> None:
        await self._limit.__aenter__()
        self._gate.begun(self._limit)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._limit.__aexit__(kind, error, trace)
        except TimeoutError:
            if (told := self._gate.ended(self._limit)) is None:
                raise
            raise CutShortError(told) from None
        finally:
            self._gate.ended(self._limit)


class Gate:
    """An asynchronous many-or-one lock that favours the one."""

    def __init__(self) -> None:
        self.in_flight = 0
        self.waiting = 0
        self._open = asyncio.Event()
        self._open.set()
        self._idle = asyncio.Event()
        self._cutting: ApiError | None = None
        self._shut: ApiError | None = None
        self._limits: set[asyncio.Timeout] = set()
        self._patience: float | None = None  # seconds left, of the swap that waits for those in flight
        self._cuts = self._hurried = False

    @property
    def closed(self) -> bool:
        """Whether a swap holds the gate or waits for it."""
        return not self._open.is_set()

    async def enter(self, timeout: float) -> None:
        """Begin a generation. Raises ApiError 503 when a swap takes longer than `timeout` seconds, or the
        gate is shut."""
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
        if self._shut is not None:
            raise self._shut
        self.in_flight += 1

    def leave(self) -> None:
        """The generation's last token has come from the engine."""
        self.in_flight -= 1
        if self.in_flight == 0:
            self._idle.set()

    def sampling(self) -> _Sampling:
        """A block within which the engine samples for the generation that has entered.

        Raises:
            CutShortError: a swap that could not wait has ended it.
        """
        if self._cutting is not None:
            raise CutShortError(self._cutting)
        return _Sampling(self)

    def begun(self, limit: asyncio.Timeout) -> None:
        """What `limit` bounds is cut short by whoever cannot wait."""
        self._limits.add(limit)

    def ended(self, limit: asyncio.Timeout) -> ApiError | None:
        """It is over; what its client is told if it was cut short."""
        self._limits.discard(limit)
        return self._cutting if limit.expired() else None

    @asynccontextmanager
    async def exclusive(self, timeout: float, *, cut: bool = False) -> AsyncIterator[None]:
        """Hold new generations, wait for those in flight, be alone; then let everybody in again.

        Args:
            timeout: seconds to wait for those in flight.
            cut: end those that are not done then, and wait as long again until they have left.

        Raises:
            DrainTimeoutError: they were not done after `timeout` seconds.
            OvertakenError: `hurry` was called, and nobody may be cut.
        """
        self._open.clear()
        self._cuts = cut
        try:
            try:
                await self._drain(timeout, patience=True)
            except DrainTimeoutError:
                if not cut and self._hurried:
                    raise OvertakenError from None
                if not cut:
                    raise
                log.warning("%d generations in flight are cut short by a weight swap", self.in_flight)
                self._cut(cut_short())
                await self._drain(timeout)
            yield
        finally:
            self._cutting = self._shut
            self._open.set()

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Hold new generations, while those in flight go on; then let everybody in again."""
        self._open.clear()
        try:
            yield
        finally:
            self._cutting = self._shut
            self._open.set()

    async def empty(self, timeout: float) -> None:
        """End those in flight, within `held`; returns when they have left, or after `timeout` seconds."""
        self._cut(cut_short())
        with suppress(DrainTimeoutError):
            await self._drain(timeout)

    def hurry(self, patience: float) -> None:
        """A swap that waits for those in flight gives up; one that may cut them does so after `patience`
        seconds at most."""
        if self._patience is None:
            return
        self._hurried = True
        self._patience = min(self._patience, patience) if self._cuts else 0.0
        self._idle.set()  # it looks at its patience again

    def shut(self, error: ApiError) -> None:
        """For good: those in flight are cut short; `error` for them, for those that wait, from now on."""
        self._shut = error
        self._cut(error)
        self._open.set()

    async def _drain(self, timeout: float, *, patience: bool = False) -> None:
        """Seconds in which this process did not run are no patience: neither did the engine, as a rule."""
        loop = asyncio.get_running_loop()
        self._hurried, self._patience = False, timeout if patience else None
        left = timeout
        try:
            while self.in_flight:
                if left <= 0:
                    raise DrainTimeoutError(self._told(timeout))
                self._idle.clear()
                began = loop.time()
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(left, SLICE_S)):
                        await self._idle.wait()
                left -= min(loop.time() - began, 2 * SLICE_S)
                if self._patience is not None:
                    left = self._patience = min(left, self._patience)
        finally:
            self._patience = None

    def _told(self, seconds: float) -> str:
        what = "1 generation was" if self.in_flight == 1 else f"{self.in_flight} generations were"
        return f"{what} still running after {seconds:g} s"

    def _cut(self, error: ApiError) -> None:
        """End what is being sampled now, and what would still begin to."""
        self._cutting = error
        for limit in self._limits:
            limit.reschedule(asyncio.get_running_loop().time())


def cut_short() -> ApiError:
    """What a client is told whose answer a swap has ended."""
    return unavailable("weights_updating", "the answer was cut short: the model's weights are being replaced")
