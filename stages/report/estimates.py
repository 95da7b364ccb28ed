"""A ratio over episodes with its 95 % interval, clustered by user, without a Python loop per episode.

The same numbers as `evals.stats.intervals.clustered`, which takes any labels; here users are codes and the
sums per user are counted in numpy. Under MIN_USERS users no interval is given, so few people say nothing
about the others; nor where it would be all that the figure can be; nor, of a mean without bounds, where no
two users differ: nothing says then how far another one would be.
"""

from __future__ import annotations

import numpy as np

from evals.stats.clusters import ClusterSums
from evals.stats.inference import Inference
from evals.stats.paired import ratio_values
from stages.report.episodes import Floats, Ints

MIN_USERS = 5
LEVEL = 0.95


def interval(
    numerator: Floats, denominator: Floats, users: Ints, bounds: tuple[float, float] | None
) -> tuple[float, float | None, float | None, int]:
    """(sum y / sum n, low, high, number of users) over cases [N].

    Args:
        numerator: y per case.
        denominator: n per case, over 0: what does not count is left out before.
        users: code per case.
        bounds: where the figure can lie; the interval is cut to it.

    Returns:
        Ends are None under MIN_USERS users and where the data cannot say, as the module has it.

    Raises:
        ValueError: there is no case.
    """
    linear = ratio_values(numerator, denominator)
    present, codes = np.unique(users, return_inverse=True)
    sums = np.bincount(codes, weights=linear, minlength=len(present)).astype(np.float64)
    sizes = np.bincount(codes, minlength=len(present)).astype(np.float64)
    data = ClusterSums(sums, sizes)
    if data.clusters < MIN_USERS or (bounds is None and data.se == 0):
        return data.mean, None, None, data.clusters
    low, high = Inference(data, bounds).interval(LEVEL)
    if bounds is not None:
        low, high = max(low, bounds[0]), min(high, bounds[1])
        if (low, high) == bounds:
            return data.mean, None, None, data.clusters
    return data.mean, _finite(low), _finite(high), data.clusters


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
