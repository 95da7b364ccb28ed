import numpy as np
import pytest

from evals.stats.two_sides import difference_interval


def test_whole_users_on_either_side_are_as_many_draws_as_there_are_users() -> None:
    """Means of users 1 and 3 against 0 and 4: se^2 = 2/2 + 8/2, (1/2 + 1/2)^2 / (1/4 + 1/4) = 2 degrees."""
    values = np.array([0.0, 2.0, 2.0, 4.0, -1.0, 1.0, 3.0, 5.0])
    first, users = np.repeat([True, False], 4), np.repeat(np.arange(4), 2)
    half = 4.302653 * np.sqrt(5.0)
    assert difference_interval(values, first, users) == pytest.approx((-half, half))
    narrower = difference_interval(values, first, users, level=0.5)
    assert narrower == pytest.approx((-0.816497 * np.sqrt(5.0), 0.816497 * np.sqrt(5.0)))


def test_users_with_some_on_either_side_are_pairs() -> None:
    """Three users with one case on each side: the t of their differences, 1, 7 and 6, with two degrees."""
    values = np.array([3.0, 2.0, 7.0, 0.0, 10.0, 4.0])
    first, users = np.array([True, False] * 3), np.repeat(np.arange(3), 2)
    differences = np.array([1.0, 7.0, 6.0])
    half = 4.302653 * differences.std(ddof=1) / np.sqrt(3)
    found = difference_interval(values, first, users)
    assert found == pytest.approx((differences.mean() - half, differences.mean() + half))


def test_a_side_of_one_user_does_not_tell_how_users_differ() -> None:
    values, users = np.arange(6.0), np.array([0, 0, 1, 1, 2, 2])
    assert difference_interval(values, users == 0, users) is None
    assert difference_interval(values, users >= 0, users) is None


def test_where_no_two_users_differ_nothing_says_how_far_the_next_one_would() -> None:
    """It was 0.9 to 0.9."""
    users = np.arange(8)
    assert difference_interval(np.where(users < 3, 1.0, 0.1), users < 3, users) is None


def test_one_user_with_most_of_the_episodes_is_one_user() -> None:
    """Twelve users with habits on either side, 240 episodes of one and 5 of each other: 95 % intervals. Those
    by the plain clustered error had the difference 32 times in 100."""
    random, has = np.random.default_rng(0), 0
    users = np.repeat(np.arange(12), [240, *[5] * 11])
    for _ in range(400):
        habits = random.normal(0, np.sqrt(0.2), (12, 2))
        first = random.random(len(users)) < 0.3
        values = habits[users, first.astype(int)] + random.normal(0, np.sqrt(0.8), len(users))
        found = difference_interval(values, first, users)
        has += found is not None and found[0] <= 0 <= found[1]
    assert has / 400 > 0.92
