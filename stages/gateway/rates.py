"""How often an API key may ask: a token bucket per key.

A key's bucket holds `burst` tokens and gains `rate` a second; a request takes one. What a key says of itself
(`ApiKey.rate`, `ApiKey.burst`) comes before the gateway's settings; a rate of 0 is no limit.
Not for: how much work waits for the engine, from all keys together (`admission.py`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from stages.durations import LONGEST_S
from stages.gateway.errors import ApiError
from stages.gateway.key_file import ApiKey

_SECONDS = 2.0  # a burst that nobody has set is what comes in so long


class Rates:
    """Buckets of all keys. One event loop only; they are full when the process begins.

    Args:
        rate, burst: of keys that have none of their own; requests a second, requests.
    """

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._buckets: dict[str, tuple[float, float]] = {}  # tokens, and when there were so many

    def take(self, key: ApiKey) -> None:
        """One request with `key`. Raises ApiError 429 with the seconds until the next token."""
        rate = self._rate if key.rate is None else key.rate
        if rate <= 0:
            return
        burst = max(1.0, key.burst or self._burst or rate * _SECONDS)
        now = self._clock()
        tokens, at = self._buckets.get(key.id, (burst, now))
        tokens = min(burst, tokens + (now - at) * rate)
        if tokens < 1.0:
            self._buckets[key.id] = tokens, now
            raise ApiError(
                429,
                "rate_limit_error",
                "rate_limit_exceeded",
                f"this API key may be used {rate:g} times a second",
                retry_after=math.ceil(min((1.0 - tokens) / rate, LONGEST_S)),
            )
        self._buckets[key.id] = tokens - 1.0, now
