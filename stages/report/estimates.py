"""A ratio over episodes with its 95 % interval, clustered by user, without a Python loop per episode.

Shares as `evals/stats/shares.py` has them, as some are rare; other means the same numbers as
`evals.stats.intervals.clustered`, which takes any labels: here users are codes and the sums per user are
counted in numpy. Under MIN_USERS users no interval is given, so few people say nothing about the others; nor
where it would be nearly all that a share can be; nor, of a mean without bounds, where no two users differ:
nothing says then how far another one would be.
"""

from __future__ import annotations

import numpy as np

from evals.stats.clusters import ClusterSums
from evals.stats.inference import Inference
from evals.stats.shares import share_interval
from stages.report.episodes import Floats, Ints

MIN_USERS = 5
LEVEL = 0.95
_MOST = 0.95  # an interval of a share that is wider says nothing


def interval(
    numerator: Floats, denominator: Floats, users: Ints, *, share: bool
) -> tuple[float, float | None, float | None, int]:
    """(sum y / sum n, low, high, number of users) over cases [N].

    Args:
        numerator: y per case.
        denominator: n per case, over 0: what does not count is left out before.
        users: code per case.
        share: y is 0 to n in every case; else it has no bounds.

    Returns:
        Ends are None under MIN_USERS users and where the data cannot say, as the module has it.

    Raises:
        ValueError: there is no case.
    """
    if not len(users):
        raise ValueError("no case has a denominator: the figure is not defined")
    present, codes = np.unique(users, return_inverse=True)
    sums, sizes = (
        np.bincount(codes, weights=column / denominator.mean(), minlength=len(present)).astype(np.float64)
        for column in (numerator, denominator)
    )
    data = ClusterSums(sums, sizes)
    nothing = data.mean, None, None, data.clusters
    if data.clusters < MIN_USERS or (not share and data.se == 0):
        return nothing
    if share:
        low, high = share_interval(data, LEVEL)
        return nothing if high - low > _MOST else (data.mean, low, high, data.clusters)
    low, high = Inference(data).interval(LEVEL)
    return data.mean, _finite(low), _finite(high), data.clusters


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
