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

from collections.abc import Sequence

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


def aligned(data: Sequence[tuple[ClusterSums, bool]]) -> list[ClusterSums]:
    """Metrics over the same clusters, those that may be padded (the second value) as they are tested.

    Where any is, all have two clusters more, the others without a case in them.
    """
    tested = [padded(one) if bounded else one for one, bounded in data]
    most = max(one.clusters for one in tested)
    return [_longer(one, most - one.clusters) for one in tested]


def _longer(data: ClusterSums, more: int) -> ClusterSums:
    return ClusterSums(np.append(data.sums, np.zeros(more)), np.append(data.sizes, np.zeros(more)))
