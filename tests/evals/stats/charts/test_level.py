"""Scores of a series: what is new, given how far it is used to moving."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.stats.charts import level
from evals.stats.charts.level import Level


def scores(
    values: Sequence[float], errors: Sequence[float], alarm: Callable[[float], bool] = lambda score: False
) -> list[float]:
    """The score of each value from those before it; nan where the value is nan, and for the first.

    Args:
        alarm: told each score in order; whether it is called.
    """
    level, found = Level(float(np.nanmedian(errors))), []
    for value, se in zip(values, errors, strict=True):
        if np.isnan(value):
            found.append(float("nan"))
            continue
        score = level.score(value, se)
        level.tell(value, se, alarmed=not np.isnan(score) and alarm(score))
        found.append(score)
    return found


def test_with_a_single_point_of_the_grid_it_is_kalmans_filter() -> None:
    """omega = tau = 0, se 1: the mean of what was before. (3 - 1) / sqrt(1 + 1), then (3 - 2) / sqrt(1.5)."""
    series, found = Level(1.0), []
    series._weights[1:] = -1e9
    for value in (1.0, 3.0, 3.0):
        found.append(series.score(value, 1.0))
        series.tell(value, 1.0)
    assert math.isnan(found[0])
    assert series.mean == pytest.approx(7 / 3)
    assert series.spread(1.0) == pytest.approx(math.sqrt(1 + 1 / 3))
    assert found[1:] == pytest.approx([2 / math.sqrt(2), 1 / math.sqrt(1.5)], rel=1e-9)


def test_the_band_of_the_next_value_is_that_of_the_density_it_is_foretold_with() -> None:
    """A mixture of normal ones: also how far their means are apart is in its variance."""
    series = Level(1.0)
    for value in (0.0, 9.0, -4.0):
        series.tell(value, 1.0)
    values = np.arange(-400.0, 400.0, 2.0)
    density = np.exp([series._foretold(value, 1.0) for value in values])
    density /= density.sum()
    assert series.mean == pytest.approx(values @ density)
    assert series.spread(1.0) == pytest.approx(math.sqrt((values - series.mean) ** 2 @ density), rel=1e-3)


def test_a_direction_is_carried_on_and_wears_off() -> None:
    """omega = tau = 0, beta = 1, se 1, values 0 and 3.

    Before the second: variance 1 + 1 of the level, 0.9 with the direction, 0.81 of the direction. The gains
    are 2/3 and 0.9/3, so level 2, direction 0.9, variances 2/3, 0.3, 0.54: next is 2.9 with 2/3 + 0.6 + 0.54.
    """
    series = Level(1.0)
    series._weights[:] = -1e9
    series._weights[(level._OMEGA == 0) & (level._TAU == 0) & (level._BETA == 1)] = 0.0
    series.tell(0.0, 1.0)
    assert series.score(3.0, 1.0) == pytest.approx(3 / math.sqrt(3))
    series.tell(3.0, 1.0)
    assert series.mean == pytest.approx(2.9)
    assert series.spread(1.0) == pytest.approx(math.sqrt(2 / 3 + 0.6 + 0.54 + 1))
    for _ in range(60):
        series.tell(series.mean, 1.0)
    assert abs(series.mean - 2.9) < 10 * 0.9  # the sum of what is left of 0.9
    settled = series.mean
    series.tell(settled, 1.0)
    assert series.mean == pytest.approx(settled, abs=0.01)


def test_going_on_is_no_news_and_turning_back_is() -> None:
    """A series falls by 1.5 standard errors at first, by less each time; then it rises by four."""
    falling = [-sum(0.9**n for n in range(at)) * 1.5 for at in range(10)]
    step = falling[-2] - falling[-1]
    on, back = (scores([*falling, falling[-1] + turn], [1.0] * 11)[-1] for turn in (-step, 4.0))
    assert abs(on) < 0.3
    assert back > 3
    assert scores([*[falling[-1]] * 10, falling[-1] + 4.0], [1.0] * 11)[-1] == pytest.approx(back, abs=0.6)


def test_the_same_jump_is_news_to_a_steady_series_and_none_to_a_moving_one() -> None:
    random = np.random.default_rng(1)
    steady = [float(x) for x in random.normal(size=12)]
    moving = [float(x) for x in np.cumsum(random.normal(size=12) * 6)]
    assert scores([*steady, steady[-1] + 8], [1.0] * 13)[-1] > 4
    assert abs(scores([*moving, moving[-1] + 8], [1.0] * 13)[-1]) < 2.5


def test_a_short_series_has_wide_limits() -> None:
    found = [Level(1.0) for _ in range(2)]
    for n, series in zip((2, 12), found, strict=True):
        for _ in range(n):
            series.tell(0.0, 1.0)
    short, long = (series.spread(1.0) for series in found)
    assert short > 1.3 * long
    assert long == pytest.approx(math.sqrt(1 + 1 / 12), rel=0.25)


def test_what_was_called_teaches_nothing_and_is_the_new_level() -> None:
    values = [0.0] * 8 + [10.0, 10.0]
    silent = scores(values, [1.0] * 10)
    called = scores(values, [1.0] * 10, alarm=lambda score: score > 4.5)
    assert silent[8] == called[8] > 4.5
    assert abs(called[9]) < 0.5
    assert scores([*values, 20.0], [1.0] * 11, alarm=lambda score: score > 4.5)[-1] > 4
    assert scores([*values, 20.0], [1.0] * 11)[-1] < 4  # it has learnt to expect jumps


@pytest.mark.parametrize("days", [1, 3])
def test_an_excursion_that_was_called_and_is_over_is_news_when_it_comes_again(days: int) -> None:
    """The way back, where it is no alarm, taught that the series jumps: the same rise was then none."""
    values = [0.0] * 8 + [10.0] * days + [0.0] * 4 + [10.0, 10.0]
    found = scores(values, [1.0] * len(values), alarm=lambda score: score > 4)
    assert found[8] > 4
    assert found[8 + days] < -3
    assert max(map(abs, found[9 + days : 12 + days])) < 0.5
    assert found[-2] > found[8] - 0.5
    assert abs(found[-1]) < 0.5


def test_a_called_level_that_stays_is_the_level() -> None:
    values = [0.0] * 8 + [10.0] * 8 + [11.0]
    found = scores(values, [1.0] * len(values), alarm=lambda score: score > 4)
    assert max(map(abs, found[9:16])) < 0.5
    assert 0.5 < found[-1] < 1.5


def test_the_first_error_is_not_the_measure_of_all() -> None:
    """Noise of three standard errors from the second value on, and a first value that is hardly known."""
    random = np.random.default_rng(5)
    errors, found = [40.0] + [1.0] * 24, []
    for _ in range(60):
        found += scores([float(v) for v in random.normal(size=25) * 3], errors)[4:]
    assert float(np.mean(np.abs(found) > 3)) < 0.008


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(0.01, 1e3)), min_size=2, max_size=12))
def test_scores_are_finite_whatever_comes(series: list[tuple[float, float]]) -> None:
    found = scores([value for value, _ in series], [se for _, se in series])
    assert all(abs(score) <= 8 for score in found[1:])
    shifted = scores([value + 100 for value, _ in series], [se for _, se in series])
    assert shifted[1:] == pytest.approx(found[1:], abs=1e-3)


@pytest.mark.parametrize(("omega", "tau"), [(0.0, 0.0), (2.0, 0.0), (0.0, 2.0)])
def test_clean_series_are_no_news(omega: float, tau: float) -> None:
    """Of 60 series of 25, the scores from the fifth on have about the spread of standard normals."""
    random = np.random.default_rng(4)
    found = []
    for _ in range(60):
        mean = np.cumsum(random.normal(size=25) * tau)
        values = mean + random.normal(size=25) * math.sqrt(1 + omega**2)
        found += scores([float(v) for v in values], [1.0] * 25)[4:]
    assert 0.75 < float(np.std(found)) < 1.1
    assert float(np.mean(np.abs(found) > 3)) < 0.008
