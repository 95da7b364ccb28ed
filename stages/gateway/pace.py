"""How fast an arm answers: its last answers' times, and whether a canary's collapsed beside the live arm's.

No statistics: a canary whose typical answer takes many times as long is of no use to anybody, whatever it
says, and is taken away at once. What is slower by less is the A/B's question (`stages/ab/`).
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence

KEPT = 500  # answers
WINDOW_S = 300.0
LEAST = 20  # answers of each arm, before anything is said
NOTICED_MS = 500.0  # typical answers that take less than this longer are slow for nobody


class Pace:
    """Of one arm: (when, milliseconds, tokens) of its last answers."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: deque[tuple[float, float, int]] = deque(maxlen=KEPT)

    def add(self, ms: float, tokens: int) -> None:
        """An answer of so many tokens; those without any say nothing of speed."""
        if tokens:
            self._last.append((self._clock(), ms, tokens))

    def recent(self) -> list[tuple[float, int]]:
        """(milliseconds, tokens) of the last five minutes."""
        since = self._clock() - WINDOW_S
        return [(ms, tokens) for at, ms, tokens in self._last if at >= since]


Answers = Sequence[tuple[float, int]]


def collapsed(live: Answers, canary: Answers, factor: float) -> str:
    """Why the canary is too slow, "" when it is not, or when there is too little to go by. 0 is never."""
    if not factor or min(len(live), len(canary)) < LEAST:
        return ""
    before, after = (statistics.median(ms / n for ms, n in each) for each in (live, canary))
    length = statistics.median(tokens for _, tokens in live)
    if after < factor * before or (after - before) * length < NOTICED_MS:
        return ""
    return f"its latency collapsed: {after:.3g} ms a token where the live arm takes {before:.3g} (medians)"
