"""Where hardly any case differs: levels by exact enumeration, and figures by hand."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from scipy import stats

from evals.cases import Metric
from evals.comparison import Comparison
from evals.criteria import joint_identical_pass
from evals.stats.clusters import ClusterSums, cluster_sums
from evals.stats.paired import paired_sums, paired_values
from evals.stats.sparse import aligned, padded, sparse, with_few


def tasks(losses: int, gains: int, count: int) -> ClusterSums:
    same = count - losses - gains
    sums = np.r_[-np.ones(losses), np.ones(gains), np.zeros(same)]
    return ClusterSums(sums, np.ones(count))


def solved(margin: float) -> Metric:
    return Metric("solved", "higher", margin, "share", "", bounds=(0.0, 1.0))


@cache
def passes(losses: int, gains: int, count: int, margin: float) -> bool:
    return Comparison(tasks(losses, gains, count), solved(margin), 0.05).p_noninferior <= 0.05


@pytest.mark.parametrize(
    ("count", "margin", "gain", "before"),
    [(8, 0.02, 0.1, 0.22), (12, 0.05, 0.05, 0.14), (30, 0.1, 0.0, 0.18), (200, 0.05, 0.0, 0.12)],
)
def test_a_loss_of_the_margin_passes_as_seldom_as_it_should(
    count: int, margin: float, gain: float, before: float
) -> None:
    """One attempt at each task; a loss in `margin + gain` of them, a gain in `gain`. Exact, not drawn.

    `before` is what it was when the spread that was seen was all that counted.
    """
    loss = margin + gain
    level = 0.0
    for losses in range(count + 1):
        for gains in range(count - losses + 1):
            chance = stats.multinomial.pmf(
                [losses, gains, count - losses - gains], count, [loss, gain, 1 - loss - gain]
            )
            if chance > 1e-4 and passes(losses, gains, count, margin):
                level += chance
    assert level < 0.07 < before


@pytest.mark.parametrize("sampled", [True, False])
@pytest.mark.parametrize(("count", "before"), [(60, 0.19), (100, 0.11), (200, 0.12)])
def test_a_metric_without_chance_or_bounds_passes_no_loss_more_often(
    count: int, before: float, sampled: bool
) -> None:
    """Likelihoods are the same every time, documents are not; and a share need not be called one."""
    metric = Metric("prompt_level_strict_acc", "higher", 0.05, "", "", sampled=sampled)
    level = sum(
        stats.binom.pmf(losses, count, 0.05)
        for losses in range(count + 1)
        if Comparison(tasks(losses, 0, count), metric, 0.05).p_noninferior <= 0.05
    )
    assert level < 0.07 < before


@pytest.mark.parametrize(("count", "attempts", "gone", "before"), [(40, 1, 1, 0.14), (60, 3, 0, 0.11)])
def test_a_ratio_over_other_numbers_of_edits_is_padded_as_well(
    count: int, attempts: int, gone: int, before: float
) -> None:
    """One request without an edit, or several attempts, made of each case that is alike a small difference.

    The live checkpoint's edits all stay, of 7 in 100 requests all of the candidate's are undone: the margin.
    """
    kept = Metric("edit_persistence", "higher", 0.07, "share", "", bounds=(0, 1))
    random = np.random.default_rng(0)
    passed = np.zeros(2)
    for _ in range(600):
        made = random.binomial(attempts, 1.0 if attempts == 1 else 0.7, count) / attempts
        edits = made.copy()
        edits[:gone] = 0
        stays = edits * (random.random(count) >= 0.07)
        data = paired_sums((stays, edits), (made, made), range(count))
        seen = cluster_sums(paired_values((stays, edits), (made, made)), range(count))
        passed += [Comparison(one, kept, 0.05).p_noninferior <= 0.05 for one in (seen, data)]
    assert passed[1] / 600 < 0.08 < before < passed[0] / 600


def test_what_rounding_leaves_is_no_difference() -> None:
    """Of six attempts a sixth more and a sixth less, in five persons of two requests each."""
    base = np.array([1, 5, 2, 4, 1, 4, 5, 2, 3, 2, 0, 6, 3, 3, 6, 0]) / 6
    other = base + np.array([1, -1, 2, -2, 1, -1, -1, 1, 1, -1] + [0] * 5 + [1]) / 6
    data = paired_sums((other, np.ones(16)), (base, np.ones(16)), [place // 2 for place in range(16)])
    assert data.sums[:7].tolist() == [0.0] * 7
    assert data.sums[7] == pytest.approx(1 / 6)
    assert sparse(data)


def test_by_hand() -> None:
    data = ClusterSums(np.array([0.0, 0, 0, -3.0]), np.array([2.0, 2, 2, 6]))
    assert sparse(data)
    assert padded(data).sums.tolist() == [0, 0, 0, -3, 1.5, -1.5]  # clusters of 3 that differ by a half
    assert padded(data).sizes.tolist() == [2, 2, 2, 6, 3, 3]
    for whole in (tasks(0, 0, 9), tasks(3, 4, 13), tasks(15, 0, 90)):
        assert padded(whole) is whole
    assert sparse(tasks(3, 3, 12)), "half of them"
    assert sparse(tasks(14, 0, 90))


def test_metrics_side_by_side_keep_the_same_clusters() -> None:
    """That a metric without bounds kept its nine was what this said too: such metrics are padded as well."""
    one, other = tasks(1, 0, 9), tasks(5, 4, 9)
    assert [found.clusters for found in aligned([one, other])] == [11, 11]
    assert aligned([one, other])[1].se == pytest.approx(other.se)
    assert aligned([one, other])[0].se == pytest.approx(padded(one).se)
    known = joint_identical_pass([(one, solved(0.5)), (other, solved(0.9))], 0.05)
    assert known is not None
    assert 0 < known <= 1


def test_one_gain_more_is_no_reason_to_pass() -> None:
    """Twelve tasks alike do not pass a margin of 2 points; nor do they with a gain in one of them."""
    assert not passes(0, 0, 12, 0.02)
    assert not passes(0, 1, 12, 0.02)


def test_two_cases_more_by_hand() -> None:
    candidate = [1.0, 0, 0, 0], [2.0, 0, 0, 0]
    baseline = [1.0, 1, 2, 0], [1.0, 2, 2, 0]
    left, right, clusters = with_few(candidate, baseline, list("abcd"), (0, 1))
    assert (list(left[0]), list(left[1])) == ([1, 0, 0, 0, 0, 2], [2, 0, 0, 0, 2, 2])
    assert (list(right[0]), list(right[1])) == (
        [1, 1, 2, 0, 0, 0],
        [1, 2, 2, 0, 0, 0],
    )  # what it lacks, both do
    assert clusters == [*"abcd", ("low",), ("high",)]
    alike = [1.0, 0, 1, 1], [1.0, 1, 1, 0]
    assert with_few(alike, alike, list("abcd"), (0, 1)) == (alike, alike, list("abcd"))
    # an edit in 14 users' requests are few, in those of 15 they are not
    made = np.ones(16)
    for known, few in ((14, True), (15, False)):
        some = (np.arange(16) < known).astype(float)
        told = with_few((some, some), (made, made), list(range(16)), (0, 1))
        assert len(told[2]) == 16 + 2 * few


@pytest.mark.parametrize(("share", "before"), [(0.003, 0.25), (0.006, 0.11)])
def test_a_candidate_that_hardly_edits_has_not_shown_that_its_edits_stay(share: float, before: float) -> None:
    """1,500 requests of 250 people, the live checkpoint edits in half of them. A loss of the margin."""
    kept = Metric("edit_persistence", "higher", 0.07, "share", "", bounds=(0, 1))
    users = [str(place // 6) for place in range(1500)]
    random = np.random.default_rng(0)
    passed = np.zeros(2)
    for _ in range(300):
        edits = [(random.random(1500) < rate).astype(float) for rate in (share, 0.5)]
        left, right = (
            (made * (random.random(1500) < stays), made)
            for made, stays in zip(edits, (0.73, 0.8), strict=True)
        )
        if edits[0].any():
            plain = paired_sums(left, right, users)
            tested = paired_sums(*with_few(left, right, users, (0, 1)))
            passed += [Comparison(one, kept, 0.05).p_noninferior <= 0.05 for one in (plain, tested)]
    assert passed[1] / 300 < 0.06 < before < passed[0] / 300
