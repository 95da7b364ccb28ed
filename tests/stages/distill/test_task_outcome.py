"""Outcomes of whole tasks: the last one in time, within its bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stages.distill.signals.task_outcome import task_outcome
from stages.distill.spec import load
from stages.records import Event

HOUR = 3_600_000


def told(at: int, value: Any) -> Event:
    return Event(
        id=f"e{at}", key_id="k", generation_id="g", type="outcome", at=at, wall=at, data={"value": value}
    )


@pytest.mark.parametrize(
    ("events", "value"),
    [
        ([], None),
        ([told(6 * HOUR, 1.0)], 1.0),
        ([told(9 * HOUR, 1.0)], None),  # for reports
        ([told(7 * HOUR, -0.5), told(6 * HOUR, 1.0)], -0.5),
        ([told(6 * HOUR, 1.0), told(9 * HOUR, -1.0)], 1.0),
        ([told(HOUR, 7)], 1.0),
        ([told(HOUR, "good")], None),
    ],
)
def test_the_signal(events: list[Event], value: float | None) -> None:
    assert task_outcome(events, 0, 8 * HOUR) == value


def test_the_shipped_reward_waits_eight_hours() -> None:
    spec, _ = load("background", Path())
    assert spec.horizon_s == 28_800
