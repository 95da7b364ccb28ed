"""Shares over clusters: by hand, and held against made-up worlds whose share is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from evals.stats.clusters import ClusterSums, cluster_sums
from evals.stats.inference import Inference
from evals.stats.shares import share_interval


def test_by_hand() -> None:
    """Three of five: se^2 is 0.06, so 0.24 / 0.06 = 4 trials, as both t have 4 degrees; 2.4 successes."""
    found = share_interval(cluster_sums([1, 0, 1, 0, 1], range(5)))
    assert found == pytest.approx((stats.beta.ppf(0.025, 2.4, 2.6), stats.beta.ppf(0.975, 3.4, 1.6)))


def test_clusters_that_do_not_differ_are_bounded_by_what_they_cannot_show() -> None:
    none = cluster_sums([0, 0, 0, 0, 0, 0], range(6))
    assert share_interval(none) == (0.0, pytest.approx(1 - 0.025 ** (1 / 6)))
    all_of_them = cluster_sums([1] * 6, range(6))
    assert share_interval(all_of_them) == (pytest.approx(0.025 ** (1 / 6)), 1.0)
    with pytest.raises(ValueError, match="one cluster"):
        share_interval(cluster_sums([1, 0], "aa"))


def test_of_many_users_it_is_students() -> None:
    rng = np.random.default_rng(0)
    data = cluster_sums((rng.random(20_000) < 0.3).astype(float), (np.arange(20_000) % 2000).tolist())
    assert share_interval(data) == pytest.approx(Inference(data).interval(), abs=3e-4)


@pytest.mark.parametrize("share", [0.01, 0.05, 0.3])
@pytest.mark.parametrize("users", [6, 12, 30, 100])
def test_it_has_the_share_as_often_as_it_says(share: float, users: int) -> None:
    """Users who differ (a seventh of the variance is between them), of one to some forty cases each.
    Student's interval had 1 % of 100 users 84 times in 100."""
    rng, held, worlds = np.random.default_rng(users), 0, 1000
    for _ in range(worlds):
        rates = rng.beta(6 * share, 6 * (1 - share), users)
        sizes = rng.geometric(0.1, users)
        data = ClusterSums(rng.binomial(sizes, rates).astype(np.float64), sizes.astype(np.float64))
        low, high = share_interval(data)
        held += low <= share <= high
    assert held / worlds > 0.92 - 0.02 * (share == 0.01)


def test_tasks_tried_several_times_by_hand() -> None:
    """Two, one and one of three: se^2 is 1/81, so 20/81 / (1/81) = 20 trials, of 19 degrees where the tasks
    have 2: 4.73 of them."""
    found = share_interval(cluster_sums([2 / 3, 1 / 3, 1 / 3], range(3)))
    n = 20 * (stats.t.ppf(0.975, 19) / stats.t.ppf(0.975, 2)) ** 2
    assert n == pytest.approx(4.73, abs=0.01)
    s = 4 / 9 * n
    assert found == pytest.approx((stats.beta.ppf(0.025, s, n - s + 1), stats.beta.ppf(0.975, s + 1, n - s)))


@pytest.mark.parametrize("tasks", [2, 3, 5, 12])
def test_few_tasks_tried_often_have_the_share_as_often_as_it_says(tasks: int) -> None:
    """Means of 16 attempts in few tasks had it 81 times in 100: nothing of Student's t was left there."""
    rng, held, worlds = np.random.default_rng(tasks), 0, 1000
    for _ in range(worlds):
        values = rng.binomial(16, rng.beta(1.2, 0.8, tasks)) / 16
        low, high = share_interval(cluster_sums(values.tolist(), range(tasks)))
        held += low <= 0.6 <= high
    assert held / worlds > 0.93
