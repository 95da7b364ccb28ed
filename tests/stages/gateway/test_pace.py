"""When a canary's latency has collapsed: by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stages.gateway import pace as pacing
from stages.gateway.arms import Arm, Arms, Canary
from stages.gateway.pace import WINDOW_S, Pace
from stages.gateway.served import Checkpoint, ServedState

ENGINE: Any = object()


def arm(name: str, pace: Pace) -> Arm:
    served = ServedState("auto", "rtrl", Checkpoint(f"sha256:{name}", Path("/")), engine="ready", arm=name)
    return Arm(served, ENGINE, pace)


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


@pytest.mark.parametrize(("theirs", "says"), [(210.0, False), (1100.0, True)])
def test_one_that_asks_most_has_one_say(theirs: float, says: bool) -> None:
    """A job that wants one token of a long prompt, and three people: 4 ms a token in the live arm."""
    live, canary = Pace(lambda: 0.0), Pace(lambda: 0.0)
    for who in ("ann", "bob", "cid") * 2:
        live.add(200.0, 50, who)
        canary.add(theirs, 50, who)
    for _ in range(14):
        live.add(200.0, 50, "dan")
        canary.add(300.0, 1, "job")
    assert bool(collapsed(live, canary, 5.0)) == says


class Clock:
    """Seconds that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_live_arm_is_held_against_the_canary_over_the_same_time() -> None:
    clock = Clock()
    live, canary = Pace(clock), Pace(clock)
    arms = Arms(arm("live", live))
    arms.collapse = 5.0

    def answers(until: int, live_ms: float, canary_ms: float = 0.0) -> None:
        while clock.now < until:
            clock.now += 1
            live.add(live_ms, 50)
            canary.add(canary_ms, 50 if canary_ms else 0)

    answers(100, 200)  # a quiet machine, and no canary yet
    arms.open(Canary(arm("canary", canary), "d", "salt", 0.5))
    answers(140, 1200, 1200)  # two engines share it: both arms take six times as long
    assert arms.collapsed() == ""
    answers(230, 200, 1200)  # the live arm alone is quick again
    assert "24 ms a token where the live arm takes 4" in arms.collapsed()


def test_busy_arms_are_known_over_the_whole_window_too() -> None:
    clock = Clock()
    busy = Pace(clock)
    for tick in range(600 * 50):  # fifty answers a second, slow ones from 300 s to 400 s
        clock.now = tick / 50
        busy.add(1200 if 300 <= clock.now < 400 else 200, 50)
    took = [answer.ms for answer in busy.recent()]
    assert len(took) == pacing.A_SECOND * WINDOW_S
    assert sum(ms == 1200 for ms in took) == pytest.approx(len(took) / 3, rel=0.02)
    assert len(busy.recent(since=clock.now - 9.5)) == pytest.approx(10 * pacing.A_SECOND, abs=pacing.A_SECOND)
    assert busy.began() == pytest.approx(clock.now - WINDOW_S - 1.2, abs=0.2)
    assert Pace().began() is None
