"""Intervals of the report: those of `evals.stats`, and none where few people would have to speak for many."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from evals.stats.clusters import cluster_sums
from evals.stats.intervals import clustered
from evals.stats.shares import share_interval
from stages.report.estimates import interval


@pytest.mark.parametrize("users", [6, 15, 200])
def test_the_same_as_the_clustered_interval_of_the_gate(users: int) -> None:
    rng = np.random.default_rng(users)
    user = np.sort(rng.integers(0, users, 400))  # the bootstrap below 20 draws by their order
    n = rng.integers(1, 5, 400).astype(np.float64)
    y = np.minimum(n, rng.integers(0, 3, 400)).astype(np.float64)
    expected = clustered(y, n, user.tolist())
    assert interval(y, n, user, share=False) == pytest.approx(
        (expected.value, expected.low, expected.high, expected.clusters), rel=1e-12
    )
    low, high = share_interval(cluster_sums(y / n.mean(), user.tolist(), n / n.mean()))
    assert interval(y, n, user, share=True) == pytest.approx(
        (expected.value, low, high, expected.clusters), rel=1e-12
    )


def test_four_users_have_no_interval_and_five_have_one() -> None:
    """Sums 6, 8, 7, 7, 7 of 3 each: mean 7/3, CR2 is sqrt(2 * 5/4) / 15, Student's t with 4 degrees."""
    y = np.tile([1.0, 2.0, 4.0], 5)
    y[0], y[3] = 0.0, 2.0
    ones = np.ones(15)
    users = np.repeat(np.arange(5), 3)
    assert interval(y[:12], ones[:12], users[:12], share=False) == (pytest.approx(7 / 3), None, None, 4)
    value, low, high, count = interval(y, ones, users, share=False)
    assert (value, count) == (pytest.approx(7 / 3), 5)
    half = 2.7764451 * np.sqrt(2.5) / 15
    assert (low, high) == (pytest.approx(7 / 3 - half), pytest.approx(7 / 3 + half))


@pytest.mark.parametrize("users", [5, 10, 30])
def test_users_who_do_not_differ_say_nothing_of_others(users: int) -> None:
    """Of a mean without bounds. There was an interval of no width: where one reward in ten is -2, it had the
    mean in 43 of 100 worlds of five users."""
    y = np.tile([1.0, 2.0, 4.0], users)
    found = interval(y, np.ones(3 * users), np.repeat(np.arange(users), 3), share=False)
    assert found == (pytest.approx(7 / 3), None, None, users)


def test_an_interval_that_is_nearly_all_a_share_can_be_is_none() -> None:
    """All of one user's cases and none of four others': that says nothing of a sixth user. Of five with one
    case each something is known; Student's interval was cut to all of it."""
    y, users = np.array([1.0] * 100 + [0.0] * 4), np.array([0] * 100 + [1, 2, 3, 4])
    assert interval(y, np.ones(104), users, share=True) == (pytest.approx(100 / 104), None, None, 5)
    y = np.array([1.0, 0.0, 1.0, 0.0, 1.0])
    low, high = stats.beta.ppf(0.025, 2.4, 2.6), stats.beta.ppf(0.975, 3.4, 1.6)
    assert interval(y, np.ones(5), np.arange(5), share=True) == pytest.approx((0.6, low, high, 5))


def test_one_session_with_most_of_the_calls_is_most_of_the_figure() -> None:
    """Calls of sessions are very unequal. By sessions, not calls, it had the share 81 times in 100."""
    rng, held = np.random.default_rng(3), 0
    for _ in range(300):
        calls = np.ceil(np.exp(2 + 1.8 * rng.normal(size=20)))
        broken = rng.binomial(calls.astype(int), rng.beta(0.3 * 7 / 3, 0.7 * 7 / 3, 20)).astype(np.float64)
        _, low, high, _ = interval(broken, calls, np.arange(20), share=True)
        held += low is None or high is None or low <= 0.3 <= high
    assert held >= 0.91 * 300


def test_a_ratio_is_known_as_well_as_the_weights_of_its_users_say() -> None:
    """1, 1, 1, 1 and 16 calls, one broken: 0.05. Residuals 0.95, -0.05 thrice, -0.8; leverage 1/20, 16/20."""
    calls, broken = np.array([1.0, 1, 1, 1, 16]), np.array([1.0, 0, 0, 0, 0])
    value, low, high, _ = interval(broken, calls, np.arange(5), share=False)
    error = np.sqrt((0.95**2 + 3 * 0.05**2) / 0.95 + 0.8**2 / 0.2) / 20
    shares = np.array([0.05] * 4 + [0.8])
    across = shares**2 / (1 - shares)
    half = stats.t.ppf(0.975, 1 / ((shares**2).sum() + across.sum() ** 2 - (across**2).sum())) * error
    assert (value, low, high) == (pytest.approx(0.05), pytest.approx(0.05 - half), pytest.approx(0.05 + half))
