"""How many generations are let in at a time, and none any more once the gateway drains.

Accepted is what has a place here: from the moment it has come in, and been read, until its answer has been
handed to the connection. Who sends a body slowly, or waits for its tools to be compiled, has none. More than
the engine takes may wait (`gateway.max_queue`); beyond that a request is told at once to come back later, so
that neither memory nor waiting times grow without bound. Where keys ask for more than there is, each has its
share (`shares.py`). Rates per API key are another matter.

One event loop only.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from types import TracebackType

from stages.gateway.errors import ApiError, unavailable
from stages.gateway.gate import Gate
from stages.gateway.shares import Shares, Whose

_LONGEST_S = 60
_CUT_S = 5.0  # for those that were cut short to say so
_SMOOTHING = 0.05  # weight of the newest answer in the mean time of answers


class Admission:
    """The places for generations.

    Args:
        running: generations at the engine at a time.
        queue: how many more may wait.
        streams: streamed answers at a time.
        fair_s: how long a key's share is kept for it (`Shares`).
    """

    def __init__(self, running: int, queue: int, streams: int, fair_s: float = 0.0) -> None:
        self.running = running
        self.places = Shares(running + queue, fair_s)
        self.streams = Shares(streams, fair_s)
        self.draining = False
        self._mean_s = 1.0
        self._idle = asyncio.Event()

    @property
    def accepted(self) -> int:
        """Places that are taken."""
        return self.places.taken

    def admit(self, whose: Whose) -> Place:
        """A place for one generation; use as a context manager.

        Raises:
            ApiError: 503, the gateway is shutting down; 429, all places are taken, or kept for others.
        """
        self.require_open()
        if not self.places.free(whose):
            raise self._full(whose)
        return Place(self, whose)

    def require_room(self, key: str) -> None:
        """Raises as `admit` where there is no place for anybody: what is refused then need not come in."""
        self.require_open()
        if self.places.taken >= self.places.places:
            raise self._full(Whose(key))

    def require_open(self) -> None:
        """Raises ApiError 503 when the gateway is shutting down."""
        if self.draining:
            raise shutting_down()

    def wait_s(self) -> int:
        """Seconds until those who wait now are through, as the answers of late took."""
        waiting = max(0, self.accepted - self.running) + 1
        return max(1, min(_LONGEST_S, math.ceil(self._mean_s * waiting / self.running)))

    async def drain(self, timeout_s: float, gates: Sequence[Gate]) -> int:
        """Let nobody in any more, and wait until those accepted are answered; then cut the rest short.

        Their clients are told, and what was sampled is recorded. Events and telemetry are taken all the
        while. Returns how many were cut short.
        """
        self.draining = True
        if await self.idle(timeout_s):
            return 0
        left = self.accepted
        for gate in gates:
            gate.shut(shutting_down())
        await self.idle(_CUT_S)
        return left

    async def idle(self, timeout_s: float) -> bool:
        """Wait until every accepted generation is answered. Whether that came true in time."""
        try:
            async with asyncio.timeout(timeout_s):
                while self.accepted:
                    self._idle.clear()
                    await self._idle.wait()
        except TimeoutError:
            return False
        return True

    def left(self, seconds: float | None, whose: Whose, *, streamed: bool) -> None:
        """A place is free again, after so many seconds if there was an answer."""
        self.places.give_back(whose)
        if streamed:
            self.streams.give_back(whose)
        if seconds is not None:
            self._mean_s += _SMOOTHING * (seconds - self._mean_s)
        if not self.accepted:
            self._idle.set()

    def _full(self, whose: Whose) -> ApiError:
        self.places.refused(whose)
        return too_many("queue_full", "too many requests wait for the model", self.wait_s())


class Place:
    """One accepted generation.

    Attributes:
        timed: whether how long it takes says how long others wait.
    """

    timed = True

    def __init__(self, admission: Admission, whose: Whose) -> None:
        self._of, self._whose = admission, whose
        self._streamed = False
        self._began = time.monotonic()

    def __enter__(self) -> Place:
        self._of.places.take(self._whose)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        seconds = time.monotonic() - self._began if kind is None and self.timed else None
        self._of.left(seconds, self._whose, streamed=self._streamed)

    def stream(self) -> None:
        """Its answer is to be streamed. Raises ApiError 429: as many are as may be, or kept for others."""
        streams = self._of.streams
        if not streams.free(self._whose):
            streams.refused(self._whose)
            raise too_many("too_many_streams", "too many streams are open", self._of.wait_s())
        streams.take(self._whose)
        self._streamed = True


def too_many(code: str, message: str, retry_after: int) -> ApiError:
    """429: nothing is wrong with the request; later."""
    return ApiError(429, "rate_limit_error", code, message, retry_after=retry_after)


def shutting_down() -> ApiError:
    """503: this gateway takes no more generations."""
    return unavailable("shutting_down", "the gateway is shutting down", retry_after=5)
