"""Two cases more, a gain and a loss, where hardly any case differs.

Student's t and the bootstrap believe the spread that they see. Where two models did alike in nearly all
cases they see too little of it: one gain among 12 tasks and no loss, and a model that loses 5 points more
than it gains passed a margin of 5 points 14 times in 100, with a margin of 2 points 20 times, at a level of
5. Bonett & Price 2012, "Adjusted Wald Confidence Interval for a Difference of Binomial Proportions Based on
Paired Data": with one pair added to either kind that differs, levels hold (at most 7 where they were up to
22, but for what a count of whole losses cannot hit; tests/evals/stats/test_sparse.py). Here the added two
are clusters of the usual size that differ as much as the one that differs most.

Where none differs there is nothing to add to: `inference.py` says what is concluded then.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from evals.stats.clusters import ClusterSums

FEW = 15  # clusters that differ; from there on the spread that is seen will do


def sparse(data: ClusterSums) -> bool:
    """Whether fewer than FEW clusters, and at most half of them, differ, but some do."""
    differ = int(np.count_nonzero(data.sums))
    return 0 < differ < FEW and 2 * differ <= data.clusters


def padded(data: ClusterSums) -> ClusterSums:
    """The data as it is tested; with the two more where it is sparse."""
    if not sparse(data):
        return data
    size = float(data.sizes.mean())
    most = size * float(np.abs(data.sums / data.sizes).max())
    return ClusterSums(np.append(data.sums, [most, -most]), np.append(data.sizes, [size, size]))


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
