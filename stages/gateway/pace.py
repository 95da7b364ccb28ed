"""How fast an arm answers: its last answers' times, and whether a canary's collapsed beside the live arm's.

No statistics: a canary whose typical answer takes many times as long is of no use to anybody, whatever it
says, and is taken away at once. What is slower by less is the A/B's question (`stages/ab/`). Both arms are
looked at over the same time: how fast the live one was before there was a canary says how busy the machine
was then, and a canary's engine, which may run on it too, makes it busier.

Whoever asks has one say, however often it does: a job that wants one token of a long prompt takes as long for
it as others for an answer, and in a canary of a tenth of the users most answers may be its own.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from stages.wording import digits

A_SECOND = 20  # answers kept of each second, so that any traffic is known over the whole window
WINDOW_S = 300.0
LEAST = 20  # answers of each arm, before anything is said
NOTICED_MS = 500.0  # typical answers that take less than this longer are slow for nobody


class Answer(NamedTuple):
    """How long one took, and who asked."""

    ms: float
    tokens: int
    whose: str


class Pace:
    """Of one arm: its last answers, by the clock's seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: deque[tuple[float, Answer]] = deque()
        self._second, self._kept = 0, 0  # the current second, and how many were kept of it

    def add(self, ms: float, tokens: int, whose: str = "") -> None:
        """An answer of so many tokens; those without any say nothing of speed. `whose`: an API key's, or a
        user's of a shared one."""
        if not tokens:
            return
        now = self._clock()
        if int(now) != self._second:
            self._second, self._kept = int(now), 0
            while self._last and self._last[0][0] < now - WINDOW_S:
                self._last.popleft()
        if self._kept < A_SECOND:
            self._last.append((now, Answer(ms, tokens, whose)))
            self._kept += 1

    def recent(self, since: float | None = None) -> list[Answer]:
        """Those of the last five minutes, or of what of them came after `since`."""
        start = self._clock() - WINDOW_S
        start = start if since is None else max(start, since)
        return [answer for at, answer in self._last if at >= start]

    def began(self) -> float | None:
        """When the first answer of the last five minutes was asked for; None without any."""
        start = self._clock() - WINDOW_S
        return min((at - answer.ms / 1e3 for at, answer in self._last if at >= start), default=None)


def collapsed(live: Sequence[Answer], canary: Sequence[Answer], factor: float) -> str:
    """Why the canary is too slow, "" when it is not, or when there is too little to go by. 0 is never."""
    if not factor or min(len(live), len(canary)) < LEAST:
        return ""
    before = statistics.median_high(_of_each(live, lambda answer: answer.ms / answer.tokens))
    after = statistics.median_low(_of_each(canary, lambda answer: answer.ms / answer.tokens))
    length = statistics.median(_of_each(live, lambda answer: answer.tokens))
    if after < factor * before or (after - before) * length < NOTICED_MS:
        return ""
    told = f"{digits(after)} ms a token where the live arm takes {digits(before)}"
    return f"its latency collapsed: {told} (medians)"


def _of_each(answers: Sequence[Answer], figure: Callable[[Answer], float]) -> list[float]:
    """The median of each one who asked."""
    found: dict[str, list[float]] = {}
    for answer in answers:
        found.setdefault(answer.whose, []).append(figure(answer))
    return [statistics.median(figures) for figures in found.values()]
