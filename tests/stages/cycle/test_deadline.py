"""The cycle's deadline: who stops when, and what is not begun late."""

from __future__ import annotations

import time

import pytest

from stages.cycle.deadline import Deadline
from stages.cycle.stub import chain
from stages.cycle_config import STAGES, CycleConfig, seconds
from stages.errors import LateError, UsageError
from stages.registry.store import Store
from stages.workspace import Workspace
from tests.stages.cycle.cycle_world import run


class Clock:
    """Time that goes on only when told."""

    def __init__(self) -> None:
        self.now = time.monotonic()

    def monotonic(self) -> float:
        return self.now

    def go_on(self, seconds: float) -> None:
        self.now += seconds


def test_a_late_stage_stops_and_the_next_cycle_goes_on_there(
    world: tuple[Workspace, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    stages, clock = chain(), Clock()
    monkeypatch.setattr("stages.cycle.deadline.time", clock)
    stages["distill"].before = lambda: clock.go_on(2519.8)  # train is late at 70 % of the hour

    def trains() -> None:
        time.sleep(60)
        raise AssertionError("nobody stopped it")

    stages["train"].before = trains
    result = run(world, stages, deadline="1h")
    assert (result.status, result.exit_code) == ("inconclusive", 4)
    assert result.error is not None
    assert result.error["kind"] == "late"
    assert "train was stopped" in result.error["message"]
    stages["train"].before = lambda: None
    again = run(world, stages)
    assert (again.exit_code, again.resumed_at) == (0, "train")


def test_deploy_is_not_begun_late_and_not_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, shares = Clock(), CycleConfig().shares
    monkeypatch.setattr("stages.cycle.deadline.time", clock)
    over = Deadline(10.0, shares, started=clock.now - 11)
    with pytest.raises(LateError, match="deploy was not begun"), over.limit("deploy"):
        raise AssertionError
    nearly = Deadline(10.0, shares, started=clock.now - 9.95)
    with nearly.limit("deploy"):
        time.sleep(0.1)  # of the timer that the other stages have


def test_the_table_of_shares() -> None:
    table = Deadline(5 * 3600, CycleConfig().shares).table()
    assert [row["late_at_s"] for row in table] == [1800, 3600, 12600, 17100, 18000]
    with pytest.raises(ValueError, match="add up to 1"):
        CycleConfig(shares=dict.fromkeys(STAGES, 0.3))
    with pytest.raises(ValueError, match="must name exactly"):
        CycleConfig(shares={"train": 1.0})


@pytest.mark.parametrize(
    ("text", "expected"), [("5h", 18000), ("90m", 5400), ("1h30m", 5400), ("45s", 45), ("12.5", 12.5)]
)
def test_durations(text: str, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "h", "5 hours", "-1h", "0", "9999999999999999999h"])
def test_what_is_no_duration(world: tuple[Workspace, Store], text: str) -> None:
    with pytest.raises(UsageError) as caught:
        run(world, chain(), deadline=text)
    assert caught.value.hint
