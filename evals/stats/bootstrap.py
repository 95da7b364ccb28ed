"""The wild cluster bootstrap-t with the null imposed, for fewer clusters than a t quantile likes.

For H0: mean = m0 the residual sums r_g = S_g - m0 n_g get random signs w_g, and the t statistic of
the resampled world is compared with the one observed (Cameron, Gelbach & Miller 2008, section III.C;
Rademacher weights). Up to 14 clusters all 2^G sign patterns are counted, which makes the test exact
when the differences are symmetric, as they are between two samples of one model. Of 15 to 19 clusters it is
a fixed sample of 16,384, so that what the cases are called, which decides which cluster comes first, moves a
p value of 0.05 by some 0.002 (2,000, from 12 clusters on, moved it by 0.005). A pattern and its opposite
have opposite statistics, so half of them are computed. The smallest
possible p is 2^-G, so that 8 clusters could never call a loss with ten metrics, those against the anchor
among them (Holm's level is then 0.25 %): below 10, which serve 25 metrics, `inference.py` uses Student's t.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from evals.stats.clusters import ClusterSums, Floats

EXACT_UP_TO = 14
HALF = 1 << 13  # patterns that are drawn of more clusters, without their opposites


@lru_cache(maxsize=32)
def signs(clusters: int) -> Floats:
    """Half of the sign patterns [draws, G], one of each two opposites, with the identity first.

    All of them for few clusters, else a fixed sample.
    """
    if clusters <= EXACT_UP_TO:
        bits = (np.arange(2 ** (clusters - 1))[:, None] >> np.arange(clusters)[None, :]) & 1
        return np.asarray(1.0 - 2.0 * bits, dtype=np.float64)
    drawn = np.random.default_rng(clusters).integers(0, 2, size=(HALF - 1, clusters))
    return np.concatenate([np.ones((1, clusters)), 1.0 - 2.0 * drawn])


class _Worlds:
    """The resampled worlds of one data set: p values for many nulls from four sums per pattern.

    With c_g = 1 / (1 - f_g), r_g = S_g - m0 n_g and shift = sum w_g r_g / N, and as w_g^2 = 1:
    spread^2 N^2 = sum c_g r_g^2 - 2 shift sum w_g c_g r_g n_g + shift^2 sum c_g n_g^2.
    """

    def __init__(self, data: ClusterSums) -> None:
        if data.clusters < 2 or not data.se > 0:
            raise ValueError("the bootstrap needs two clusters and some spread")
        self._data, self._se, self._mean = data, data.se, data.mean
        self._total = float(data.sizes.sum())
        self._scale = 1 / (1 - data.sizes / self._total)
        weighted = self._scale * data.sizes
        columns = np.stack([data.sums, data.sizes, weighted * data.sums, weighted * data.sizes], axis=1)
        self._sums = (signs(data.clusters) @ columns).T
        self._square = float((weighted * data.sizes).sum())

    def p_greater(self, null: float) -> float:
        """One-sided p value against mean <= null."""
        sums, sizes, cross_sums, cross_sizes = self._sums
        residuals = self._data.sums - null * self._data.sizes
        own = float((self._scale * residuals**2).sum())
        shift = (sums - null * sizes) / self._total
        square = own - 2 * shift * (cross_sums - null * cross_sizes) + shift**2 * self._square
        spread = np.sqrt(np.where(square > 1e-12 * own, square, 0.0)) / self._total
        # A pattern without spread is as extreme as its shift says: +inf, -inf, or 0 for no shift at all.
        with np.errstate(divide="ignore", invalid="ignore"):
            statistic = np.where(
                spread > 0, shift / spread, np.where(shift == 0, 0.0, np.inf * np.sign(shift))
            )
        seen = (self._mean - null) / self._se - 1e-9
        return float(np.mean(statistic >= seen) + np.mean(-statistic >= seen)) / 2


def p_greater(data: ClusterSums, null: float) -> float:
    """One-sided p value against mean <= null.

    Raises:
        ValueError: fewer than two clusters, or values without any spread.
    """
    return _Worlds(data).p_greater(null)


def lower_bound(data: ClusterSums, alpha: float) -> float:
    """The largest null rejected at one-sided alpha; -inf when none is (too few clusters)."""
    worlds = _Worlds(data)
    far = data.mean - 60 * data.se
    if worlds.p_greater(far) > alpha:
        return float("-inf")
    rejected, kept = far, data.mean
    while kept - rejected > 1e-4 * max(data.se, 1e-300):
        middle = (rejected + kept) / 2
        if worlds.p_greater(middle) <= alpha:
            rejected = middle
        else:
            kept = middle
    return rejected
