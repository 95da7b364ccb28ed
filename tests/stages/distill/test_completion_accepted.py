"""Tab's setting by hand: taken +0.75, dismissed -0.25, not shown 0."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stages.distill.reward import combine
from stages.distill.signals.completion_accepted import completion_accepted
from stages.distill.spec import load
from stages.records import Event


def happened(*told: tuple[str, int]) -> list[Event]:
    return [
        Event(id=str(n), key_id="k", generation_id="g", type=kind, at=at, wall=at)  # type: ignore[arg-type]
        for n, (kind, at) in enumerate(told)
    ]


@pytest.mark.parametrize(
    ("told", "value"),
    [
        ([], None),
        ([("completion_shown", 0)], 0.0),
        ([("completion_shown", 0), ("completion_accepted", 900)], 1.0),
        ([("completion_accepted", 900), ("completion_shown", 0)], 1.0),
        ([("completion_shown", 0), ("completion_rejected", 900)], 0.0),
        ([("completion_shown", 0), ("completion_rejected", 500), ("completion_accepted", 900)], 1.0),
        ([("completion_shown", 0), ("completion_accepted", 1001)], 0.0),  # too late
    ],
)
def test_the_signal(told: list[tuple[str, int]], value: float | None) -> None:
    assert completion_accepted(happened(*told), 0, 1000) == value


def test_the_shipped_reward_pays_from_one_acceptance_in_four_on() -> None:
    spec, _ = load("completions", Path())
    values = {
        "completion_accepted": np.array([1.0, 0.0, np.nan]),
        "latency_first_token": np.array([0.0, 0.0, 0.0]),
    }
    rewards = combine(values, np.zeros(3, dtype=np.int64), spec, None).reward
    assert rewards.tolist() == [0.75, -0.25, 0.0]
    assert 0.25 * rewards[0] + 0.75 * rewards[1] == 0.0
