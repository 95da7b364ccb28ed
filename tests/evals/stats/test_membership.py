"""What a filter took against what it left: by hand, and against SciPy's own tests."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from evals.stats.membership import Shuffled, drawn_p, hypergeometric_p


def flags(*rows: int) -> np.ndarray:
    return np.array(rows, dtype=np.bool_)


def test_one_stratum_is_fishers_test() -> None:
    for table in ([[3, 1], [1, 3]], [[0, 5], [6, 4]], [[10, 2], [20, 30]]):
        (a, b), (c, d) = table
        strata = np.array([[a + b + c + d, a + b, a + c]])
        assert hypergeometric_p(strata, a) == pytest.approx(stats.fisher_exact(table)[1], rel=1e-9)


def test_two_strata_by_hand() -> None:
    """Two users, each with 2 episodes, one removed, one of value 1: both ones removed is 1/4 of the cases,
    and so is none; one of them is 1/2."""
    strata = np.array([[2, 1, 1], [2, 1, 1]])
    assert hypergeometric_p(strata, 2) == pytest.approx(0.5)
    assert hypergeometric_p(strata, 1) == pytest.approx(1.0)


def test_who_the_user_is_explains_nothing_within_users() -> None:
    """One user breaks every call, and half of each user's episodes are removed: no difference."""
    users = np.repeat([0, 1], 40)
    removed = np.tile(flags(1, 0), 40)
    broken = (users == 0).astype(np.float64)
    shift = Shuffled(removed, users).shift(broken)
    assert (shift.test, shift.difference, shift.p) == ("within users", 0.0, 1.0)


def test_a_filter_of_whole_users_is_judged_by_users() -> None:
    """Two of four users left: whatever they did, 2 of the 6 choices of two are as far apart."""
    users = np.repeat([0, 1, 2, 3], 50)
    removed = users < 2
    shift = Shuffled(removed, users).shift(removed.astype(np.float64))
    assert shift.test == "users"
    assert shift.p == pytest.approx(2 / 6, abs=0.04)
    assert shift.difference == 1.0


def test_means_by_hand_with_their_interval() -> None:
    """One user: episodes [1, 2 | 5, 6, 7]. Gap -4.5, Welch's se^2 = .5 / 2 + 1 / 3, and its degrees of
    freedom where the variances are equal: (1/2 + 1/3)^2 / ((1/2)^2 / 1 + (1/3)^2 / 2) = 25/11."""
    removed = flags(1, 1, 0, 0, 0)
    shift = Shuffled(removed, np.zeros(5, dtype=np.int64)).shift(np.array([1.0, 2, 5, 6, 7]))
    half = stats.t.isf(0.025, 25 / 11) * np.sqrt(0.5 / 2 + 1 / 3)
    assert shift.difference == pytest.approx(-4.5)
    assert (shift.low, shift.high) == pytest.approx((-4.5 - half, -4.5 + half))
    assert shift.effect == pytest.approx(-4.5 / np.std([1, 2, 5, 6, 7]))
    assert shift.p == pytest.approx(0.1, abs=0.03)  # the furthest of the ten choices of two


def test_the_normal_distribution_takes_over_where_there_is_much() -> None:
    random = np.random.default_rng(3)
    users = random.integers(0, 40, 8000)
    removed = random.random(8000) < 0.3
    values = random.exponential(size=8000) + 0.05 * removed
    shift = Shuffled(removed, users).shift(values)
    few = Shuffled(removed[:3000], users[:3000]).shift(values[:3000])
    assert shift.test == few.test == "within users"
    assert shift.p == pytest.approx(stats.ttest_ind(values[removed], values[~removed])[1], abs=0.02)
    assert few.p == pytest.approx(
        stats.ttest_ind(values[:3000][removed[:3000]], values[:3000][~removed[:3000]])[1], abs=0.05
    )


def test_the_normal_distribution_has_the_moments_of_drawing_without_replacement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One user, two of four removed: 0 and 5 of 0, 1, 2, 5. Off their mean by 1 in all; of variance
    2 * 2 / (4 * 3) * (4 + 1 + 0 + 9)."""
    monkeypatch.setattr("evals.stats.membership._DRAWN", 0)
    shift = Shuffled(flags(1, 0, 0, 1), np.zeros(4, dtype=np.int64)).shift(np.array([0.0, 1, 2, 5]))
    assert shift.test == "within users"
    assert shift.p == pytest.approx(2 * stats.norm.sf(1 / np.sqrt(14 / 3)))


def test_of_many_users_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four with one episode each two are gone, 0 and 5 of 0, 1, 2, 5: 2.5 against 1.5. A mean of two has a
    half of each, so the variance is (4 + 1 + 0 + 9) / 4."""
    monkeypatch.setattr("evals.stats.membership._DRAWN", 0)
    shift = Shuffled(flags(1, 0, 0, 1), np.arange(4)).shift(np.array([0.0, 1, 2, 5]))
    assert (shift.test, shift.difference) == ("users", 1.0)
    assert shift.p == pytest.approx(2 * stats.norm.sf(1 / np.sqrt(14 / 4)))


def test_unknown_values_stay_out_and_nothing_known_says_nothing() -> None:
    removed = flags(1, 1, 0, 0)
    users = np.zeros(4, dtype=np.int64)
    nothing = Shuffled(removed, users).shift(np.array([np.nan, np.nan, 1.0, 2.0]))
    assert (nothing.removed, nothing.kept, nothing.p, nothing.test) == (None, 1.5, 1.0, "none")
    half = Shuffled(removed, users).shift(np.array([np.nan, 1.0, 0.0, 0.0]))
    assert (half.removed, half.kept, half.test) == (1.0, 0.0, "fisher")
    assert half.p == pytest.approx(1 / 3)


@pytest.mark.parametrize(("kind", "runs"), [("rate", 400), ("mean", 120)])
def test_no_difference_is_seldom_found(kind: str, runs: int) -> None:
    """Filters that take a third at random, of users with their own habits: 5 % of the p are below 0.05."""
    random = np.random.default_rng(7)
    below = 0
    for _ in range(runs):
        users = np.repeat(np.arange(8), 12)
        habit = random.random(8)[users]
        values = (random.random(96) < habit).astype(float) if kind == "rate" else habit + random.random(96)
        below += Shuffled(random.random(96) < 1 / 3, users).shift(values).p < 0.05
    assert below / runs < 0.1


def test_what_is_far_beyond_the_draws_is_as_sure_as_it_is() -> None:
    """300 of 2,000 episodes half a standard deviation lower: Welch's p is 1e-12, the least drawn 1/2000."""
    random = np.random.default_rng(2)
    users, removed = np.repeat(np.arange(40), 50), np.zeros(2000, np.bool_)
    removed[random.permutation(2000)[:300]] = True
    values = random.normal(size=2000) - 0.5 * removed
    shift = Shuffled(removed, users).shift(values)
    assert shift.test == "within users"
    assert 1e-20 < shift.p < 1e-9


@pytest.mark.parametrize("heavy", [False, True])
def test_the_tail_of_few_draws_agrees_with_that_of_many(heavy: bool) -> None:
    """p of about 1e-3 to 1e-4 from 1,999 draws, beside 400,000 draws counted."""
    random = np.random.default_rng(3)
    every = random.standard_t(6, 400_000) if heavy else random.normal(size=400_000)
    for far in (3.6, 4.2):
        truth = float((np.abs(every) >= far).mean())
        found = [drawn_p(every[n * 1999 : (n + 1) * 1999], far, 100.0) for n in range(30)]
        assert truth / 4 < np.median(found) < 4 * truth


def test_no_p_is_smaller_than_one_in_all_shuffles() -> None:
    drawn = np.random.default_rng(4).normal(size=1999)
    assert drawn_p(drawn, 12.0, np.log(5000)) == pytest.approx(1 / 5000)
    assert drawn_p(drawn, 12.0, np.log(100)) == 1 / 2000  # drawn with fewer there are: as before
    assert drawn_p(np.zeros(1999), 0.0, 1.0) == 1.0
