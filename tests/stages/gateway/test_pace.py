"""When a canary's latency has collapsed: by hand."""

from __future__ import annotations

import pytest

from stages.gateway import pace as pacing
from stages.gateway.pace import WINDOW_S, Pace


def collapsed(live: Pace, canary: Pace, factor: float) -> str:
    return pacing.collapsed(live.recent(), canary.recent(), factor)


def paces(live_ms: float, canary_ms: float, *, answers: int = 20, tokens: int = 50) -> tuple[Pace, Pace]:
    found = Pace(), Pace()
    for pace, ms in zip(found, (live_ms, canary_ms), strict=True):
        for _ in range(answers):
            pace.add(ms, tokens)
    return found


@pytest.mark.parametrize(
    ("live", "canary", "says"),
    [
        (200.0, 1100.0, True),  # 22 ms a token where it was 4
        (200.0, 900.0, False),  # 4.5 times
        (5.0, 200.0, False),  # 40 times, and nobody notices 0.2 s
        (1000.0, 100.0, False),
    ],
)
def test_by_hand(live: float, canary: float, says: bool) -> None:
    assert bool(collapsed(*paces(live, canary), 5.0)) == says


def test_what_it_says_and_when_it_is_silent() -> None:
    assert "22 ms a token where the live arm takes 4" in collapsed(*paces(200, 1100), 5.0)
    assert collapsed(*paces(200, 1100, answers=19), 5.0) == ""
    assert collapsed(*paces(200, 1100, tokens=0), 5.0) == ""
    assert collapsed(*paces(200, 1100), 0.0) == ""


def test_a_few_slow_answers_are_no_collapse_and_old_ones_are_forgotten() -> None:
    live, canary = paces(200, 210)
    for _ in range(10):
        canary.add(60_000, 50)
    assert collapsed(live, canary, 5.0) == ""
    now = 0.0
    slow = Pace(lambda: now)
    for _ in range(30):
        slow.add(60_000, 50)
    assert collapsed(live, slow, 5.0)
    now = WINDOW_S + 1
    assert slow.recent() == []
    assert collapsed(live, slow, 5.0) == ""
