"""Run lengths against the published tables."""

from __future__ import annotations

import pytest

from evals.stats.charts.cusum import average_run_length, limit


@pytest.mark.parametrize(
    ("k", "h", "shift", "length"),
    [  # Montgomery 9.1: two-sided 168 and 465 in control, which is half of one side's
        (0.5, 4.0, 0.0, 2 * 168),
        (0.5, 5.0, 0.0, 2 * 465),
        (0.5, 4.0, 1.0, 8.38),
        (0.5, 5.0, 1.0, 10.4),
        (0.5, 4.0, 2.0, 3.34),
        (0.5, 5.0, 2.0, 4.01),
        # Hawkins 1993: two-sided 370
        (0.25, 8.01, 0.0, 2 * 370),
        (1.0, 2.52, 0.0, 2 * 370),
        (1.5, 1.61, 0.0, 2 * 370),
    ],
)
def test_run_lengths_of_the_tables(k: float, h: float, shift: float, length: float) -> None:
    assert average_run_length(k, h, shift) == pytest.approx(length, rel=0.02)


def test_a_limit_has_the_rate_it_was_made_for() -> None:
    h = limit(1.0, 1e-3)
    assert average_run_length(1.0, h) == pytest.approx(1000, rel=1e-3)
    assert limit(0.5, 1 / 930.7) == pytest.approx(5.0, abs=0.01)
