"""The wild cluster bootstrap-t with the null imposed, for fewer clusters than a t quantile likes.

For H0: mean = m0 the residual sums r_g = S_g - m0 n_g get random signs w_g, and the t statistic of
the resampled world is compared with the one observed (Cameron, Gelbach & Miller 2008, section III.C;
Rademacher weights). Up to 11 clusters all 2^G sign patterns are counted, which makes the test exact
when the differences are symmetric, as they are between two samples of one model. The smallest
possible p is 2^-G: four clusters can never decide anything at 5 %.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from evals.stats.clusters import ClusterSums, Floats

EXACT_BELOW = 12
DRAWS = 1999


@lru_cache(maxsize=32)
def signs(clusters: int) -> Floats:
    """Sign patterns [draws, G]: all of them for few clusters, else a fixed sample with the identity first."""
    if clusters < EXACT_BELOW:
        bits = (np.arange(2**clusters)[:, None] >> np.arange(clusters)[None, :]) & 1
        return np.asarray(1.0 - 2.0 * bits, dtype=np.float64)
    drawn = np.random.default_rng(clusters).integers(0, 2, size=(DRAWS, clusters))
    return np.concatenate([np.ones((1, clusters)), 1.0 - 2.0 * drawn])


def p_greater(data: ClusterSums, null: float) -> float:
    """One-sided p value against mean <= null.

    Raises:
        ValueError: fewer than two clusters, or values without any spread.
    """
    if data.clusters < 2 or not data.se > 0:
        raise ValueError("the bootstrap needs two clusters and some spread")
    observed = (data.mean - null) / data.se
    total = float(data.sizes.sum())
    resampled = signs(data.clusters) * (data.sums - null * data.sizes)[None, :]
    shift = resampled.sum(axis=1) / total
    residuals = resampled - shift[:, None] * data.sizes[None, :]
    count = data.clusters
    spread = np.sqrt(count / (count - 1) * (residuals**2).sum(axis=1)) / total
    # A pattern without spread is as extreme as its shift says: +inf, -inf, or 0 for no shift at all.
    with np.errstate(divide="ignore", invalid="ignore"):
        statistic = np.where(spread > 0, shift / spread, np.where(shift == 0, 0.0, np.inf * np.sign(shift)))
    return float(np.mean(statistic >= observed - 1e-9))


def lower_bound(data: ClusterSums, alpha: float) -> float:
    """The largest null rejected at one-sided alpha; -inf when none is (too few clusters)."""
    far = data.mean - 60 * data.se
    if p_greater(data, far) > alpha:
        return float("-inf")
    rejected, kept = far, data.mean
    while kept - rejected > 1e-4 * max(data.se, 1e-300):
        middle = (rejected + kept) / 2
        if p_greater(data, middle) <= alpha:
            rejected = middle
        else:
            kept = middle
    return rejected
