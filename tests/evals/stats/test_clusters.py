"""Clustered means and paired ratios, by hand and against statsmodels."""

from __future__ import annotations

import math

import numpy as np
import pytest

from evals.stats.clusters import cluster_sums
from evals.stats.paired import paired_sums, paired_values, ratio, ratio_values, sampling_variance


def test_mean_and_error_by_hand() -> None:
    # Clusters a: 1, 3 (sum 4, n 2); b: 2 (sum 2, n 1); c: 6 (sum 6, n 1). N = 4, mean = 3.
    # Residual sums: 4 - 6 = -2, 2 - 3 = -1, 6 - 3 = 3; squares 4 + 1 + 9 = 14.
    # Shares 1/2, 1/4, 1/4: se^2 = (4 / .5 + 1 / .75 + 9 / .75) / 16 = 4/3.
    # Degrees of freedom: squares 1/4 + 1/16 + 1/16 = 3/8; f^2 / (1 - f) = 1/2, 1/12, 1/12, in pairs
    # 2 (1/24 + 1/24 + 1/144) = 13/72: 1 / (27/72 + 13/72) = 9/5.
    data = cluster_sums([1, 3, 2, 6], ["a", "a", "b", "c"])
    assert data.mean == 3
    assert (data.cases, data.clusters) == (4, 3)
    assert data.se == pytest.approx(math.sqrt(4 / 3))
    assert data.freedom == pytest.approx(1.8)


def test_single_cases_give_the_textbook_error() -> None:
    values = [1.0, 4.0, 4.0, 7.0]
    data = cluster_sums(values, range(4))
    assert data.se == pytest.approx(np.std(values, ddof=1) / 2)


def test_same_as_statsmodels() -> None:
    import statsmodels.api as sm  # two seconds, which each worker would take if it stood above

    rng = np.random.default_rng(3)
    groups = np.repeat(np.arange(25), 16)  # of one size: CR2 is then the CR1 of statsmodels
    values = rng.normal(size=400) + rng.normal(size=25)[groups]
    fit = sm.OLS(values, np.ones(400)).fit(cov_type="cluster", cov_kwds={"groups": groups})
    data = cluster_sums(values, list(groups))
    assert data.mean == pytest.approx(fit.params[0], abs=1e-12)
    assert data.se == pytest.approx(fit.bse[0], rel=1e-9)
    assert data.freedom == pytest.approx(24)


def test_same_as_the_matrix_formulas_of_bell_and_mccaffrey() -> None:
    """CR2 and its degrees of freedom for lopsided clusters, from the general formulas of regression."""
    rng = np.random.default_rng(4)
    groups = np.repeat(np.arange(6), [20, 9, 5, 3, 2, 1])
    values = rng.normal(size=40)
    hat = np.full((40, 40), 1 / 40)
    rows = []
    for label in range(6):
        own = np.flatnonzero(groups == label)
        eigenvalues, vectors = np.linalg.eigh(np.eye(len(own)) - hat[np.ix_(own, own)])
        adjust = vectors @ np.diag(eigenvalues**-0.5) @ vectors.T
        rows.append((np.eye(40) - hat)[own].T @ adjust @ np.full(len(own), 1 / 40))
    matrix = np.array(rows) @ np.array(rows).T
    data = cluster_sums(values, list(groups))
    assert data.se**2 == pytest.approx(sum((row @ values) ** 2 for row in rows))
    assert data.freedom == pytest.approx(np.trace(matrix) ** 2 / np.trace(matrix @ matrix))


def test_one_cluster_has_no_error() -> None:
    assert math.isnan(cluster_sums([1, 2], ["a", "a"]).se)


def test_equal_values_have_no_spread_despite_rounding() -> None:
    assert cluster_sums([0.1] * 30, [i % 7 for i in range(30)]).se == 0


def test_what_is_not_finite_is_refused() -> None:
    with pytest.raises(ValueError, match="not finite"):
        cluster_sums([1, math.nan], ["a", "b"])
    with pytest.raises(ValueError, match="labels"):
        cluster_sums([1, 2], ["a"])


def test_ratio_by_hand() -> None:
    # y = 1, 0, 1; n = 1, 0, 1 ... two edits, both kept.
    assert ratio([1, 0, 1], [1, 0, 1]) == 1
    # R = 2 / 4 = 0.5, mean n = 4/3; v = 0.5 + (y - 0.5 n) / (4/3) = 0.5 + [0.5, -0.5, 0] * 0.75
    assert ratio_values([1, 0, 1], [1, 1, 2]) == pytest.approx([0.875, 0.125, 0.5])
    with pytest.raises(ValueError, match="denominator"):
        ratio_values([0, 0], [0, 0])


def test_paired_plain_mean_is_the_difference_of_each_case() -> None:
    assert paired_values(([1, 0, 1], [1, 1, 1]), ([0, 0, 1], [1, 1, 1])) == pytest.approx([1, 0, 0])


def test_paired_ratio_has_the_difference_as_its_mean() -> None:
    candidate, baseline = ([1, 0, 1, 0], [1, 1, 1, 0]), ([1, 0, 0, 0], [1, 1, 0, 1])
    values = paired_values(candidate, baseline)
    assert values.mean() == pytest.approx(2 / 3 - 1 / 3)


def test_the_cases_of_a_ratio_weigh_what_they_have_of_it() -> None:
    """Three files of 1, 1 and 8 lines, of which the first costs 1 bit a line more: 0.1 over all, in parts of
    0.1, 0.1 and 0.8. Residuals 0.9, -0.1 and -0.8: se^2 = (0.81 / 0.9 + 0.01 / 0.9 + 0.64 / 0.2) / 100.
    Degrees of freedom: squares 0.66; f^2 / (1 - f) = 1/90, 1/90, 3.2, in pairs 2 (1/8100 + 6.4/90)."""
    lines = [1, 1, 8]
    data = paired_sums(([3, 2, 16], lines), ([2, 2, 16], lines), "abc")
    assert (data.mean, data.cases, data.clusters) == (pytest.approx(0.1), 3, 3)
    assert data.sizes == pytest.approx([0.3, 0.3, 2.4])
    assert data.sums == pytest.approx([0.3, 0, 0])  # what is alike adds nothing
    assert data.se == pytest.approx(math.sqrt((0.82 / 0.9 + 3.2) / 100))
    assert data.freedom == pytest.approx(1 / (0.66 + 2 / 8100 + 12.8 / 90))


def test_arms_with_other_denominators_weigh_what_they_have_on_average() -> None:
    """Edits 2 and 2 by one, 0 and 2 by the other, kept 2 and 0, 0 and 1: 0.5 in both. Weights 1/2 and 3/2,
    v = (2 - 1) / 2 - 0 and (0 - 1) / 2 - (1 - 1) / 1."""
    data = paired_sums(([2, 0], [2, 2]), ([0, 1], [0, 2]), "ab")
    assert (data.mean, data.cases) == (pytest.approx(0), 2)
    assert data.sizes == pytest.approx([0.5, 1.5])
    assert data.sums == pytest.approx([0.5, -0.5])


def test_ratio_error_matches_a_simulation() -> None:
    """The delta method's standard error is the spread of the ratio over repeated worlds."""
    rng = np.random.default_rng(5)

    def world() -> tuple[float, float]:
        users = np.repeat(np.arange(150), 4)
        skill = rng.beta(4, 4, size=150)[users]
        edits = (rng.random(600) < 0.6).astype(float)
        kept = edits * (rng.random(600) < skill)
        data = cluster_sums(ratio_values(kept, edits), list(users))
        return data.mean, data.se

    worlds = np.array([world() for _ in range(400)])
    assert worlds[:, 1].mean() == pytest.approx(worlds[:, 0].std(ddof=1), rel=0.1)


def test_sampling_variance_by_hand() -> None:
    # Plain means of two cases with variances .25 and .75 of their means: (1) / 2^2 ... = .25.
    spread = np.array([[0.25, 0, 0], [0.75, 0, 0]])
    assert sampling_variance(([1, 0], [1, 1]), spread) == pytest.approx((0.25 + 0.75) / 4)
    # A case with one attempt counts like the others; with none that has two, nothing is known.
    one = np.array([[0.25, 0, 0], [np.nan] * 3])
    assert sampling_variance(([1, 0], [1, 1]), one) == pytest.approx((0.25 + 0.25) / 4)
    assert sampling_variance(([1, 0], [1, 1]), np.full((2, 3), np.nan)) is None
    # A ratio: R = .5, mean n = 1; s = .2 - 2 * .5 * .1 + .25 * .4 = .2 for each of two cases.
    ratios = np.array([[0.2, 0.1, 0.4]] * 2)
    assert sampling_variance(([1, 0], [1, 1]), ratios) == pytest.approx(0.2 / 2)
    # mean n = 3: s = .1 - .02 + .01 and .3 - .1 + .05, over (2 * 3)^2
    uneven = np.array([[0.1, 0.02, 0.04], [0.3, 0.1, 0.2]])
    assert sampling_variance(([1, 2], [2, 4]), uneven) == pytest.approx((0.09 + 0.25) / 36)


def test_pairs_are_of_the_same_cases() -> None:
    with pytest.raises(ValueError, match="2 cases against 1"):  # which numpy would repeat
        paired_values(([1, 0], [1, 1]), ([1], [1]))
