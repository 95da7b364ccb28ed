"""Whether redaction's time grows as its text does."""

from __future__ import annotations

import time

from cursorbench.redaction import redact

SMALL, LARGE = 20_000, 80_000  # characters
FREE_S = 0.025


def is_linear(unit: str, beginning: str = "") -> bool:
    """Four times the text takes four times as long; quadratic patterns would take sixteen.

    A collection of garbage or a cold cache may meet one measurement, not three in a row.
    """

    def seconds(size: int) -> float:
        text = beginning + unit * (size // len(unit))
        started = time.process_time()
        redact(text)
        return time.process_time() - started

    seconds(1_000)
    return any(seconds(LARGE) <= 9 * seconds(SMALL) + FREE_S for _ in range(3))
