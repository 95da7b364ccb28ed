"""Whether an engine is asked at all: a circuit breaker over what became of its last requests.

    closed      requests go through; those of the last `window_s` seconds are counted
    open        at least `min_requests` were, and `error_rate` of them failed: requests are refused at
                once (503, Retry-After) in place of waiting for an engine that does not answer
    half_open   the pause is over: `trials` requests go through. All succeed: closed. One fails: open
                again, for twice as long. A stream has succeeded once its pieces come for `open_s`: all
                others are refused meanwhile, and an answer may take minutes

Failed is what the engine is to blame for: no connection, a connection that broke, 5xx, no answer in
time. The health probe may open the breaker as well (`trip`). One per engine; one event loop only.
(M. Nygard, Release It!, 2nd ed., 5.2.)
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal

from stages.gateway.config import BreakerConfig
from stages.gateway.errors import unavailable

State = Literal["closed", "half_open", "open"]
_BUCKETS = 10  # the window moves by a tenth of its length


class Attempt:
    """One request to the engine, as a block that sets `ok`: None where nothing can be said of the engine."""

    def __init__(self, of: Breaker, trial: bool) -> None:
        self._of = of
        self.trial = trial
        self.ok: bool | None = None
        self.answering_since: float | None = None

    def __enter__(self) -> Attempt:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._of.settle(self)


class Breaker:
    """The breaker of one engine.

    Args:
        told: called with the new state and the reason at every change.
        clock: seconds that only grow.

    Attributes:
        state: as above.
        opened: how often it has opened.
        reason: why it opened last.
    """

    def __init__(
        self,
        config: BreakerConfig,
        told: Callable[[State, str], None] = lambda _state, _reason: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.state: State = "closed"
        self.opened = 0
        self.reason = ""
        self.told = told
        self._config = config
        self._clock = clock
        self._window: deque[list[float]] = deque()  # [its begin, requests, failures]
        self._pause = config.open_s
        self._until = self._avoided = 0.0
        self._since = 0.0
        self._trials = 0
        self._succeeded = 0

    def attempt(self) -> Attempt:
        """One request to the engine.

        Raises:
            ApiError: 503, the engine is not asked now.
        """
        return Attempt(self, self._admit())

    def answering(self, attempt: Attempt) -> None:
        """Another piece of a streamed answer has come."""
        if not attempt.trial or self.state != "half_open":
            return
        now = self._clock()
        if attempt.answering_since is None:
            attempt.answering_since = now
        if now - attempt.answering_since >= self._config.open_s:
            attempt.trial = False
            self._tried(ok=True)

    def trip(self, reason: str) -> None:
        """Open it, whatever the requests say."""
        if self.state != "open":
            self._open(reason)

    def nobody_listens(self) -> None:
        """At the engine's address, just now."""
        self._avoided = self._clock() + self._config.open_s

    def reset(self) -> None:
        """The engine is another one now, or has shown that it works."""
        self._avoided = 0.0
        self._window.clear()
        self._pause = self._config.open_s
        if self.state != "closed":
            self._change("closed", "")

    def counted(self) -> tuple[int, int]:
        """(requests, failures) in the window."""
        self._forget()
        return int(sum(b[1] for b in self._window)), int(sum(b[2] for b in self._window))

    @property
    def refusing(self) -> bool:
        """Whether a request that came now would be refused."""
        if self.state == "half_open":
            return self._trials >= self._config.trials
        return self.state == "open" and self._clock() < self._until

    @property
    def avoided(self) -> bool:
        """Whether another engine is to be asked, where there is one."""
        return self.refusing or self._clock() < self._avoided

    @property
    def failing_s(self) -> float:
        """For how long it has not been closed."""
        return 0.0 if self.state == "closed" else self._clock() - self._since

    def as_dict(self) -> dict[str, Any]:
        """For the admin listener."""
        requests, failures = self.counted()
        return {"state": self.state, "requests": requests, "failures": failures, "reason": self.reason}

    def _admit(self) -> bool:
        """Whether the request that may now be sent is a trial. Raises ApiError 503."""
        if self.state == "closed":
            return False
        now = self._clock()
        if self.state == "open" and now >= self._until:
            self._trials = self._succeeded = 0
            self._change("half_open", self.reason)
        if self.state == "open" or self._trials >= self._config.trials:
            wait = max(1, math.ceil(self._until - now))
            raise unavailable("engine_failing", "the engine fails; it is tried again soon", retry_after=wait)
        self._trials += 1
        return True

    def settle(self, attempt: Attempt) -> None:
        """What became of a request."""
        if attempt.ok is None:  # its client left, or the engine was not to blame
            if attempt.trial and self.state == "half_open":
                self._trials -= 1
            return
        self._count(failed=not attempt.ok)
        if self.state == "half_open" and attempt.trial:
            self._tried(attempt.ok)
        elif self.state == "closed" and not attempt.ok:
            requests, failures = self.counted()
            if requests >= self._config.min_requests and failures >= self._config.error_rate * requests:
                self._open(f"{failures} of {requests} requests failed within {self._config.window_s:g} s")

    def _tried(self, ok: bool) -> None:
        if not ok:
            self._pause = min(self._pause * 2, self._config.open_max_s)
            self._open("a trial request failed")
            return
        self._succeeded += 1
        if self._succeeded >= self._config.trials:
            self.reset()

    def _open(self, reason: str) -> None:
        self.opened += 1
        self._until = self._clock() + self._pause
        self._change("open", reason)

    def _change(self, state: State, reason: str) -> None:
        if self.state == "closed":
            self._since = self._clock()
        self.state, self.reason = state, reason
        self.told(state, reason)

    def _count(self, *, failed: bool) -> None:
        self._forget()
        now = self._clock()
        if not self._window or now - self._window[-1][0] >= self._config.window_s / _BUCKETS:
            self._window.append([now, 0, 0])
        self._window[-1][1] += 1
        self._window[-1][2] += failed

    def _forget(self) -> None:
        oldest = self._clock() - self._config.window_s
        while self._window and self._window[0][0] <= oldest:
            self._window.popleft()
