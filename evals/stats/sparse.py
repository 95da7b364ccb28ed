"""Two cases more, a gain and a loss, where hardly any case differs.

Student's t and the bootstrap believe the spread that they see. Where two models did alike in nearly all
cases they see too little of it: one gain among 12 tasks and no loss, and a model that loses 5 points more
than it gains passed a margin of 5 points 14 times in 100, with a margin of 2 points 20 times, at a level of
5. Bonett & Price 2012, "Adjusted Wald Confidence Interval for a Difference of Binomial Proportions Based on
Paired Data": with one pair added to either kind that differs, levels hold (at most 7 where they were up to
22, but for what a count of whole losses cannot hit; tests/evals/stats/test_sparse.py). Here the added two
are clusters of the usual size that differ as much as the one that differs most.

What differs is told by the cases' own figures: in a ratio over other numbers of edits each case that is alike
moves the difference a little. 40 edits of which the candidate lacked one were never padded, and a loss of
the margin passed 17 times in 100.

Where none differs there is nothing to add to: `inference.py` says what is concluded then.

The same of an arm whose ratio has hardly any case: a candidate that makes an edit in 3 of 1,000 requests has
kept all of its four edits one time in four, and a ratio of 1 without any spread. Two cases more, one at
either bound, and it passes with a loss of the margin once in a hundred, not 27 times.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from evals.stats.clusters import ClusterSums, with_two
from evals.stats.paired import Columns

FEW = 15  # clusters that differ; from there on the spread that is seen will do


def sparse(data: ClusterSums) -> bool:
    """Whether fewer than FEW clusters, and at most half of them, differ, but some do."""
    apart = data.sums != 0
    differ = int(np.count_nonzero(apart if data.differ is None else apart & data.differ))
    return 0 < differ < FEW and 2 * differ <= data.clusters


def padded(data: ClusterSums) -> ClusterSums:
    """The data as it is tested; with the two more where it is sparse."""
    if not sparse(data):
        return data
    size = float(data.sizes.mean())
    most = float(np.abs(data.sums / data.sizes).max())
    return ClusterSums(*with_two(data.sums, data.sizes, (most, -most), size))


def with_few(
    candidate: Columns, baseline: Columns, clusters: Sequence[Hashable], bounds: tuple[float, float]
) -> tuple[Columns, Columns, list[Hashable]]:
    """The arms as they are tested: two cases more, one at either bound, in an arm that says nothing of cases
    of which the other does, and something of fewer than FEW clusters.
    """
    arms = [
        (np.asarray(y, dtype=np.float64), np.asarray(n, dtype=np.float64)) for y, n in (candidate, baseline)
    ]
    told = [n > 0 for _, n in arms]
    more = [
        float(n[own].mean()) if (other & ~own).any() and _clusters(own, clusters) < FEW else 0.0
        for (_, n), own, other in zip(arms, told, reversed(told), strict=True)
    ]
    if not any(more):
        return candidate, baseline, list(clusters)
    left, right = (with_two(y, n, bounds, size) for (y, n), size in zip(arms, more, strict=True))
    return left, right, [*clusters, ("low",), ("high",)]


def _clusters(told: NDArray[np.bool_], clusters: Sequence[Hashable]) -> int:
    return len({clusters[place] for place in np.flatnonzero(told)})


def aligned(data: Sequence[ClusterSums]) -> list[ClusterSums]:
    """Metrics over the same clusters in one order, as they are tested, and two clusters more.

    A cluster that says nothing of a metric has no case in it there, nor have the two more of one that is
    not padded.
    """
    places: dict[Hashable, int] = {}
    for one in data:
        for label in one.labels or range(one.clusters):
            places.setdefault(label, len(places))
    return [_placed(one, padded(one), places) for one in data]


def _placed(data: ClusterSums, tested: ClusterSums, places: Mapping[Hashable, int]) -> ClusterSums:
    own = [places[label] for label in data.labels or range(data.clusters)]
    own += range(len(places), len(places) + tested.clusters - data.clusters)
    sums, sizes = np.zeros(len(places) + 2), np.zeros(len(places) + 2)
    sums[own], sizes[own] = tested.sums, tested.sizes
    return ClusterSums(sums, sizes)
