"""Differences between arms: by hand, and as statsmodels' cluster-robust regression has them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from evals.ab.arms import Users, difference


def test_a_ratio_by_hand() -> None:
    # control: 3 of 4; users (2 of 2), (1 of 2): residuals 0.5, -0.5; treated: 2 of 4, residuals 1, -1
    found = difference(Users.of([2, 1], [2, 2]), Users.of([2, 0], [2, 2]))
    assert found.value == pytest.approx(-0.25)
    # (0.25 + 0.25) / 16 * 2 + (1 + 1) / 16 * 2
    assert found.standard_error == pytest.approx(math.sqrt(0.0625 + 0.25))
    assert found.z == pytest.approx(-0.25 / math.sqrt(0.3125))


def test_users_with_nothing_to_count_are_left_out_and_one_user_says_nothing() -> None:
    arm = Users.of([1, 0], [2, 0], [0.5, 0.7])
    assert arm.users == 1
    found = difference(arm, arm)
    assert math.isnan(found.standard_error)
    assert found.information == 0.0
    assert found.z == 0.0
    with pytest.raises(ValueError, match="one number per user"):
        Users.of([1], [2, 3])


@pytest.mark.parametrize("others", [[], [1.0]], ids=["nobody", "one"])
def test_an_arm_nobody_has_used_yet_is_compared_with_users_who_have_a_past(others: list[float]) -> None:
    """The first look at a canary of few, or one whose users were all forgotten since."""
    past = [0.1 * n for n in range(10)]
    many = Users.of([n % 3 for n in range(10)], [2] * 10, past)
    few = Users.of(others, [2] * len(others), others)
    for found in (difference(many, few), difference(few, many)):
        assert math.isnan(found.value) == (not others)
        assert math.isnan(found.standard_error)
        assert found.information == 0.0
        assert sorted(found.users) == [len(others), 10]


@pytest.mark.parametrize("seed", range(3))
def test_the_same_as_cluster_robust_regression(seed: int) -> None:
    sm = pytest.importorskip("statsmodels.api", reason="statsmodels is not installed")
    random = np.random.default_rng(seed)
    users, arm, value = [], [], []
    for user in range(60):
        treated, level = user % 3 == 0, random.beta(2, 1)
        for _ in range(random.integers(1, 9)):
            users.append(user)
            arm.append(float(treated))
            value.append(float(random.random() < level))
    arms = np.array(arm)
    # one regression per arm: c = U / (U - 1) is then each arm's own
    expected = 0.0
    for which in (0.0, 1.0):
        mine = arms == which
        fit = sm.OLS(np.array(value)[mine], np.ones((mine.sum(), 1))).fit(
            cov_type="cluster", cov_kwds={"groups": np.array(users)[mine], "df_correction": True}
        )
        count = mine.sum()  # statsmodels' own factor (N - 1) / (N - K) is 1 with one column
        assert count > 1
        expected += float(fit.bse[0]) ** 2
    found = difference(*(_users(users, value, arms == which) for which in (0.0, 1.0)))
    both = sm.OLS(np.array(value), sm.add_constant(arms)).fit()
    assert found.value == pytest.approx(float(both.params[1]), abs=1e-12)
    assert found.standard_error**2 == pytest.approx(expected, rel=1e-9)


def _users(users: list[int], value: list[float], mine: np.ndarray) -> Users:
    label, inverse = np.unique(np.array(users)[mine], return_inverse=True)
    return Users.of(
        np.bincount(inverse, np.array(value)[mine], len(label)), np.bincount(inverse, minlength=len(label))
    )


def test_a_past_takes_away_what_it_explains() -> None:
    random = np.random.default_rng(0)
    level = random.normal(size=4000)
    before = level + 0.5 * random.normal(size=4000)
    now = level + 0.5 * random.normal(size=4000)
    ones = np.ones(2000)
    plain = difference(Users.of(now[:2000], ones), Users.of(now[2000:], ones))
    found = difference(Users.of(now[:2000], ones, before[:2000]), Users.of(now[2000:], ones, before[2000:]))
    # correlation 1 / 1.25 = 0.8: 1 - 0.64 is left
    assert found.variance_left == pytest.approx(0.36, abs=0.03)
    assert found.standard_error == pytest.approx(plain.standard_error * 0.6, rel=0.05)
    assert abs(found.value) < 3.5 * found.standard_error
    assert found.control == plain.control


def test_what_a_past_explains_of_the_difference_by_hand() -> None:
    """Every user is as good as before, the treated ones 0.5 better, and these began 1 above the others.
    Who has no past is where the mean is: 1.5 here, and as good as that."""
    ones, unknown = np.ones(3), np.nan
    control = Users.of([0, 2, 1.5], ones, [0, 2, unknown])
    treated = Users.of([1.5, 3.5, 2.0], ones, [1, 3, unknown])
    found = difference(control, treated)
    assert (found.control, found.treated) == pytest.approx((3.5 / 3, 7 / 3))
    # off their arms' means: (-7, 5, 2) / 6 and (-5, 7, -2) / 6 on (-1.5, 0.5, 0), (-0.5, 1.5, 0): slope 1
    assert found.value == pytest.approx(0.5)
    assert found.variance_left == pytest.approx(0.0, abs=1e-9)


def test_users_without_a_past_are_average_and_all_without_one_change_nothing() -> None:
    ones = np.ones(4)
    plain = difference(Users.of([1, 2, 3, 4], ones), Users.of([2, 2, 3, 3], ones))
    nothing = np.full(4, np.nan)
    found = difference(Users.of([1, 2, 3, 4], ones, nothing), Users.of([2, 2, 3, 3], ones, nothing))
    assert found.value == plain.value
    assert found.standard_error == pytest.approx(plain.standard_error)


def test_two_users_more_and_the_cautious_error_by_hand() -> None:
    # 3 of 4 in users (2 of 2), (1 of 2), and two more of 2 episodes: 0 of 2 and 2 of 2; in all 5 of 8
    arm = Users.of([2, 1], [2, 2], [0.5, math.nan]).with_pair(1.0)
    assert arm.sums.tolist() == [2, 1, 0, 2]
    assert arm.counts.tolist() == [2, 2, 2, 2]
    assert arm.before is not None
    assert arm.before.tolist()[0] == 0.5
    assert np.isnan(arm.before[1:]).all()
    arm = Users.of(arm.sums, arm.counts)
    found = difference(arm, arm)
    # residuals .75, -.25, -1.25, .75: sum of squares 2.75, each f 1/4: 2.75 / (3/4) / 64 in either arm
    assert found.cautious_error == pytest.approx(math.sqrt(2 * 2.75 / 0.75 / 64))
    assert found.freedom == pytest.approx(6.0)  # three in either
    assert found.cautious_error == pytest.approx(found.standard_error)  # users of one size: CR2 is CR1
