"""Bounds, the few-cluster bootstrap, Holm, intervals and power: by hand, against libraries, calibrated."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from evals.cases import Attempt, Metric, SuiteSpec
from evals.gate import Rules, Verdict, decide
from evals.stats import bootstrap, power
from evals.stats.clusters import ClusterSums, cluster_sums
from evals.stats.holm import holm
from evals.stats.inference import Inference
from evals.stats.intervals import Estimate, clustered, proportion
from evals.stats.paired import paired_sums


def plain(values: list[float]) -> Inference:
    return Inference(cluster_sums(values, range(len(values))))


def test_many_clusters_use_the_t_quantile() -> None:
    values = list(np.random.default_rng(0).normal(0.3, 1, size=40))
    test = plain(values)
    reference = stats.ttest_1samp(values, 0.0, alternative="greater")
    assert test.method == "t"
    assert test.p_greater(0.0) == pytest.approx(reference.pvalue)
    assert test.p_less(0.0) == pytest.approx(1 - reference.pvalue)
    assert test.p_less(0.7) == pytest.approx(stats.ttest_1samp(values, 0.7, alternative="less").pvalue)
    two_sided = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert test.interval(0.95) == pytest.approx((two_sided.low, two_sided.high))


def test_what_is_equal_without_chance_is_no_gain_and_no_loss() -> None:
    test = plain([0.25] * 9)
    assert (test.p_greater(0.25), test.p_less(0.25)) == (1.0, 1.0)
    assert (test.p_greater(0.2), test.p_less(0.2)) == (0.0, 1.0)
    assert test.interval() == (0.25, 0.25)


def test_bootstrap_by_hand() -> None:
    # Five clusters, all better: of 32 sign patterns only the observed one is as extreme.
    data = ClusterSums(np.array([1.0, 2, 3, 4, 5]), np.ones(5))
    assert bootstrap.p_greater(data, 0.0) == 1 / 32
    # Three clusters 3, 3, -1: only the observed signs and all positive are as extreme, 2 of 8.
    data = ClusterSums(np.array([3.0, 3, -1]), np.ones(3))
    assert bootstrap.p_greater(data, 0.0) == 2 / 8


def test_few_clusters_use_the_t_quantile() -> None:
    """The bootstrap of four clusters has no p value under 1 / 16, of nine none under 1 / 512."""
    values = [1.0, 1.1, 0.9, 1.05]
    test = plain(values)
    assert (test.method, plain([*values, 2, 3, 5, 9, 7, 8]).method) == ("t", "wild-bootstrap")
    assert test.p_greater(0.0) == pytest.approx(stats.ttest_1samp(values, 0, alternative="greater").pvalue)
    assert bootstrap.p_greater(test.data, 0.0) == 1 / 16


def test_lopsided_clusters_have_fewer_degrees_of_freedom() -> None:
    test = Inference(cluster_sums([1, 3, 2, 6], ["a", "a", "b", "c"]))
    # Mean 3, se sqrt(4/3), 1.8 degrees of freedom: see test_clusters.py.
    assert test.p_greater(0.0) == pytest.approx(stats.t.sf(3 / math.sqrt(4 / 3), 1.8))
    assert test.lower(0.05) == pytest.approx(3 - stats.t.isf(0.05, 1.8) * math.sqrt(4 / 3))


@pytest.mark.parametrize(("clusters", "apart"), [(12, 0.0), (14, 0.0), (19, 0.008)])
def test_bootstrap_does_not_hang_on_what_the_cases_are_called(clusters: int, apart: float) -> None:
    """Which cluster came first moved a p value of 0.05 between 0.038 and 0.06."""
    rng = np.random.default_rng(1)
    sums, sizes = rng.normal(-0.1, 0.4, clusters), np.full(clusters, 5.0)
    orders = [rng.permutation(clusters) for _ in range(8)]
    found = [bootstrap.p_greater(ClusterSums(sums[one], sizes[one]), -0.05) for one in orders]
    assert max(found) - min(found) <= apart


def test_bootstrap_bound_is_where_the_test_turns() -> None:
    test = plain([0.4, 1.1, 0.9, 1.6, -0.2, 0.7, 1.3, 0.5, 0.8, 0.6])
    low = test.lower(0.05)
    assert test.method == "wild-bootstrap"
    assert test.p_greater(low - 1e-3) <= 0.05 < test.p_greater(low + 1e-3)
    assert test.upper(0.05) > test.data.mean > low
    thousands = plain([1000 * one for one in (0.4, 1.1, 0.9, 1.6, -0.2, 0.7, 1.3, 0.5, 0.8, 0.6)])
    assert thousands.lower(0.05) == pytest.approx(1000 * low)
    # of four the smallest p is 1 in 16
    assert bootstrap.lower_bound(cluster_sums([1, 2, 3, 4], range(4)), 0.05) == -math.inf


def test_one_cluster_says_nothing() -> None:
    test = Inference(cluster_sums([1, 2, 3], ["a", "a", "a"]))
    assert test.method == "none"
    assert test.p_greater(-10) == 1.0
    assert test.interval() == (-math.inf, math.inf)


def test_equal_outcomes_of_a_sampled_rate_keep_a_bound() -> None:
    # 100 users, no invalid call in either arm: up to 1 - 0.05^(1/100) = 2.95 % may still differ.
    test = Inference(cluster_sums([0.0] * 100, range(100)), limits=(-1.0, 1.0))
    assert test.method == "equal"
    assert test.lower(0.05) == pytest.approx(-(1 - 0.05**0.01))
    assert test.p_greater(-0.05) == pytest.approx(0.95**100)
    assert Inference(test.data).lower(0.05) == 0.0


@pytest.mark.parametrize(("clusters", "skew"), [(6, False), (9, True), (14, True), (30, False)])
def test_false_alarms_stay_at_the_level(clusters: int, skew: bool) -> None:
    """Under no difference a 5 % test rejects at most about 5 % of the time, lopsided clusters included."""
    rng = np.random.default_rng(clusters)
    sizes = rng.integers(1, 30 if skew else 6, size=clusters)
    labels = np.repeat(np.arange(clusters), sizes)
    rejections = 0
    for _ in range(600):
        skill = rng.beta(2, 2, size=clusters)[labels]
        difference = (rng.random(len(labels)) < skill).astype(float) - (rng.random(len(labels)) < skill)
        data = cluster_sums(difference, list(labels))
        rejections += data.se > 0 and Inference(data).p_greater(0.0) <= 0.05
    assert stats.binomtest(rejections, 600, 0.05, alternative="greater").pvalue > 0.001


@pytest.mark.parametrize("files", [6, 30])
def test_files_of_very_unequal_size_are_no_loss_that_is_certain(files: int) -> None:
    """Bits a byte of the same model but for chance, one or two files with most bytes: called worse 13.7 times
    in 100 (6 files) and 9.9 (30) at a level of 2.5; a loss of the margin passed 18.5 and 15.4 times at 5."""
    rng, worse, passed = np.random.default_rng(5), 0, 0
    for _ in range(1000):
        size = np.ceil(np.exp(6 + 1.8 * rng.normal(size=files)))
        bits = size * (1.2 + 0.3 * rng.normal(size=files))
        gained = size * 0.02 * rng.normal(size=files)
        equal, margin = (
            Inference(paired_sums((bits + gained - loss * size, size), (bits, size), range(files)))
            for loss in (0.0, 0.01)
        )
        worse += equal.p_less(0.0) <= 0.025
        passed += margin.p_greater(-0.01) <= 0.05
    assert worse <= 40
    assert passed <= 80


def test_holm_by_hand() -> None:
    # Sorted .01, .02, .04: times 3, 2, 1 = .03, .04, .04.
    assert holm({"b": 0.02, "a": 0.01, "c": 0.04}) == pytest.approx({"a": 0.03, "b": 0.04, "c": 0.04})
    # .001 * 6, .012 * 5, .04 * 4 for both, .3 * 2, .9
    found = holm({"a": 0.3, "b": 0.001, "c": 0.04, "d": 0.04, "e": 0.9, "f": 0.012})
    assert found == pytest.approx({"a": 0.6, "b": 0.006, "c": 0.16, "d": 0.16, "e": 0.9, "f": 0.06})
    assert holm({"a": 0.6, "b": 0.7}) == {"a": 1.0, "b": 1.0}
    assert holm({}) == {}


def test_wilson_by_hand() -> None:
    # With z = 1.96: (7/30 + z^2 / 60 -+ z sqrt(7/30 23/30 / 30 + z^2 / 3600)) / (1 + z^2 / 30)
    assert proportion(7, 30) == pytest.approx((0.1179239, 0.4092833), abs=1e-6)


def test_clustered_interval() -> None:
    estimate = clustered([1, 0, 1, 1], [1, 1, 1, 1], ["a", "a", "b", "c"], bounds=(0, 1))
    assert (estimate.value, estimate.cases, estimate.clusters) == (0.75, 4, 3)
    assert estimate.low is None or estimate.low >= 0
    nothing = clustered([0, 0], [0, 0], ["a", "b"])
    assert nothing.value is None
    assert nothing.cases == 0


def test_a_rare_share_is_not_told_too_surely() -> None:
    """One of 20 was 0 to 0.155 by Student's t; it is 0.95 of 19 trials by Clopper and Pearson."""
    found = clustered([1, *[0] * 19], [1] * 20, range(20), bounds=(0.0, 1.0))
    ends = stats.beta.ppf(0.025, 0.95, 19.05), stats.beta.ppf(0.975, 1.95, 18.05)
    assert (found.low, found.high) == pytest.approx(ends)
    one = clustered([1, 0], [1, 1], ["a", "a"], bounds=(0.0, 1.0))
    assert (one.value, one.low, one.high) == (0.5, 0.0, 1.0)


def test_intervals_apart() -> None:
    low = clustered([0, 0, 1, 0] * 25, [1] * 100, range(100))
    high = clustered([1, 1, 1, 0] * 25, [1] * 100, range(100))
    assert high.apart_from(low)
    assert low.apart_from(high)
    assert not low.apart_from(low)
    assert not low.apart_from(clustered([0], [0], ["a"]))
    below, above = Estimate(0.2, 0.1, 0.5, 9, 9), Estimate(0.7, 0.5, 0.9, 9, 9)
    assert not below.apart_from(above), "they touch"
    assert not above.apart_from(below), "they touch"


UNEQUAL = ClusterSums(np.array([4.0, 0.0, 1.0, 0.0]), np.array([5.0, 1.0, 2.0, 1.0]))


def test_pass_probability_by_hand() -> None:
    # Margin 0: an identical model passes at the level itself. Many clusters: normal arithmetic.
    assert power.pass_probability(1.0, 29, 0.0) == pytest.approx(0.05)
    assert power.pass_probability(0.018, 10**6, 0.05) == pytest.approx(
        stats.norm.sf(1.6449 - 0.05 / 0.018), abs=1e-3
    )
    assert power.pass_probability(0.0, 30, 0.01) == 1.0
    assert power.pass_probability(0.0, 30, 0.01, delta=-0.02) == 0.0
    assert power.pass_probability(1.0, math.nan, 9.0) == power.pass_probability(1.0, 0.0, 9.0) == 0.0
    assert power.pass_probability(1.0, 1.0, 0.0) == pytest.approx(0.05)  # of two clusters
    assert power.pass_probability(0.0, 30, 0.01, delta=-0.01) == 0.0


def test_design_figures_of_the_gate() -> None:
    """200 tasks: standard errors of 1.7 to 2.4 points; 2 points pass 21-33 %, 5 points 68-89 %."""
    low = [power.pass_probability(0.024, 200, margin) for margin in (0.02, 0.05)]
    high = [power.pass_probability(0.017, 200, margin) for margin in (0.02, 0.05)]
    assert low == pytest.approx([0.21, 0.66], abs=0.03)
    assert high == pytest.approx([0.32, 0.90], abs=0.03)


def test_detectable_loss_by_hand() -> None:
    # Normal limit: (1.96 + 0.8416) standard errors.
    assert power.detectable_loss(0.01, 10**5) == pytest.approx(0.02802, rel=1e-3)
    assert power.detectable_loss(0.01, math.nan) == power.detectable_loss(0.01, 0.0) == math.inf
    assert power.detectable_loss(0.0, 5.0) == 0.0
    found = power.detectable_loss(1.0, 1.0)  # of two clusters: 12.7 standard errors are the level alone
    assert stats.nct.sf(stats.t.isf(0.025, 1), 1, found) == pytest.approx(0.8)


def test_cases_needed_inverts_the_pass_probability() -> None:
    sums = np.tile([1.2, -1.2], 50)
    data = ClusterSums(sums, np.full(100, 3.0))
    assert data.se == pytest.approx(0.04, rel=0.01)
    needed = power.cases_needed(data, 0.05)
    assert needed is not None
    assert needed > 300
    clusters = needed / 3
    reached = power.pass_probability(data.se * math.sqrt(100 / clusters), clusters - 1, 0.05)
    assert reached == pytest.approx(0.9, abs=0.01)
    assert power.cases_needed(data, 0.05, delta=-0.05) is None


@pytest.mark.parametrize("data", [ClusterSums(np.array([1.0, 0.0]), np.ones(2)), UNEQUAL])
def test_cases_needed_are_the_fewest(data: ClusterSums) -> None:
    """Counted up one cluster at a time."""

    def reached(clusters: int) -> float:
        times = clusters / data.clusters
        freedom = max(1.0, (data.freedom + 1) * times - 1)
        shift = (0.3 + 0.1) / (data.se / math.sqrt(times))
        return float(stats.nct.sf(stats.t.isf(0.05, freedom), freedom, shift))

    fewest = next(count for count in range(2, 1000) if reached(count) >= 0.9)
    assert fewest > 2
    needed = power.cases_needed(data, 0.3, delta=0.1)
    assert needed == math.ceil(fewest * data.cases / data.clusters)


def test_of_data_without_a_spread_what_may_be_hidden_counts() -> None:
    """0.95^n is at most 0.05 from 59 clusters on; where a loss of all is no harm, two are enough."""
    alike = ClusterSums(np.zeros(4), np.full(4, 3.0))
    one = ClusterSums(np.zeros(1), np.full(1, 3.0))
    assert power.cases_needed(alike, 0.05) == 12  # of those there are, if no more is hidden
    assert power.cases_needed_unseen(alike, 0.05, 1.0) == 59 * 3
    assert power.cases_needed_unseen(alike, 0.05, 1.0, delta=0.1) == math.ceil(
        3 * math.ceil(math.log(0.05) / math.log(1 - 0.15 / 1.1))
    )
    assert power.cases_needed_unseen(alike, 1.0, 1.0) == 6
    assert power.cases_needed_unseen(alike, 0.99, 1.0) == 6  # two at least
    assert power.cases_needed_unseen(alike, 1e-15, 1.0) is None
    for data, margin in ((one, 0.05), (alike, 0.0)):
        assert power.cases_needed(data, margin) is power.cases_needed_unseen(data, margin, 1.0) is None
    two = ClusterSums(np.zeros(2), np.ones(2))
    assert power.cases_needed_unseen(two, 0.05, 1.0) == 59
    errors = power.detectable_loss(1.0, alike.freedom)
    assert power.rare_loss(alike, 2.0) == pytest.approx(2 * errors**2 / (4 + errors**2))


def test_attempts_needed_take_away_what_is_sampling() -> None:
    # Many clusters, se .03, all of it sampling at two attempts: (1.6449 + 1.2816) se = .05 wants
    # se = .017086, two attempts times (.03 / .017086)^2 = 6.17, so seven.
    data = ClusterSums(np.tile([0.03, -0.03], 50000) * math.sqrt(1e5), np.ones(100_000))
    assert data.se == pytest.approx(0.03, rel=1e-4)
    assert power.attempts_needed(data, data.se**2, 2, 0.05) == 7
    # Half of it between the tasks: se of .0212 remains whatever the attempts, which does not do.
    assert power.attempts_needed(data, data.se**2 / 2, 2, 0.05) is None


def test_identical_worlds_keep_the_correlation() -> None:
    rng = np.random.default_rng(1)
    first = rng.normal(size=60)
    data = [cluster_sums(first, range(60)), cluster_sums(-first, range(60))]
    means, errors = power.identical_worlds(data, 500, seed=0)
    assert means.shape == errors.shape == (500, 2)
    assert means[:, 0] == pytest.approx(-means[:, 1])
    assert means[:, 0].std() == pytest.approx(data[0].se, rel=0.15)


@pytest.mark.parametrize("clusters", [2, 3, 4, 5])
def test_few_equal_losses_of_a_rate_are_no_certainty(clusters: int) -> None:
    """Two models that pass half of the time differ by a whole point in all of G cases once in 4^G."""
    lost = Inference(cluster_sums([-1.0] * clusters, range(clusters)), limits=(-1.0, 1.0))
    assert lost.p_less(0.0) == pytest.approx(0.25**clusters)
    assert lost.p_greater(-0.03) == 1.0
    won = Inference(cluster_sums([1.0] * clusters, range(clusters)), limits=(-1.0, 1.0))
    assert won.p_greater(-0.03) == pytest.approx(0.485 ** (2 * clusters))
    low, high = won.interval(0.95)
    assert high == 1.0
    assert won.p_greater(low) == pytest.approx(0.025)


def test_equal_values_of_one_arm_are_bounded_as_clopper_and_pearson_do() -> None:
    from statsmodels.stats.proportion import proportion_confint

    for value, expected in ((1.0, proportion_confint(9, 9, method="beta")), (0.0, (0.0, 0.3362671))):
        estimate = clustered([value] * 9, [1] * 9, list(range(9)), bounds=(0, 1))
        assert (estimate.low, estimate.high) == pytest.approx(expected, abs=1e-6)
    half = clustered([0.5] * 9, [1] * 9, list(range(9)), bounds=(0, 1))
    assert (half.low, half.high) == pytest.approx((0.5 - 0.5 * 0.3362671, 0.5 + 0.5 * 0.3362671))


@pytest.mark.parametrize("values", [(1.0, 1.0), (0.0, 1.0)])
def test_so_many_cases_as_would_tell_of_equal_arms_do(values: tuple[float, float]) -> None:
    """A suite that both arms pass in full has no spread; the number of cases named was the present one."""
    metric = Metric("done", "higher", 0.03, "share", "", bounds=(0.0, 1.0))

    def gate(cases: int) -> Verdict:
        arm = [Attempt(f"c{n}", f"u{n // 2}", 0, {"done": values}) for n in range(cases)]
        return decide([(SuiteSpec("s", (metric,), 1, "user"), (arm, arm))], Rules())

    few = gate(10)
    tell = few.criteria[0].tell
    assert (few.verdict, few.identical_pass) == ("inconclusive", 0.0)
    assert tell is not None
    assert tell.cases_if_equal == tell.cases_if_observed == 198  # .97^99 = .049, of two cases each
    assert (gate(198).verdict, gate(198).identical_pass, gate(196).verdict) == ("pass", 1.0, "inconclusive")
    # of five clusters q = s^2 / (5 + s^2), s the noncentrality that t with 4 degrees finds 80 times in 100
    share = tell.loss_caught
    shift = share * math.sqrt(5 / (share * (1 - share)))
    assert stats.nct.sf(stats.t.isf(0.025, 4), 4, shift) == pytest.approx(0.8)


@pytest.mark.parametrize("clusters", range(5, 24))
def test_a_loss_in_every_cluster_can_be_called_whatever_their_number(clusters: int) -> None:
    """Ten metrics, those against the anchor among them; of 8 clusters the bootstrap has no p value under
    1 / 256, so that a candidate 30 points below the anchor passed."""
    losses = [-0.3 + 0.01 * (-1) ** n for n in range(clusters)]
    assert plain(losses).p_less(0.0) * 10 <= 0.025
