"""Bounds and p values of a clustered mean: Student's t, and the bootstrap from 10 to 19 clusters.

One interface for both, so that what is decided does not depend on how many clusters there are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from evals.stats import bootstrap
from evals.stats.clusters import ClusterSums

BOOTSTRAP_BELOW = 20
BOOTSTRAP_FROM = 10  # its smallest p value is 2^-G


@dataclass(frozen=True)
class Inference:
    """What can be said of the mean of clustered values.

    `limits` are the least and the most that one value of a *sampled* metric can be: (0, 1) for a rate,
    (-1, 1) for a difference of two. Where every value came out as m, the standard error is 0 and says
    nothing; with limits, a share q of clusters may still be at the far one unseen, with q up to
    1 - alpha^(1/G), and the bound is m - q (m - least). Where every difference is the most it can be, both
    arms were at an end in every cluster, each on its own: that is 2 G draws. Without limits (a
    deterministic metric) equal is equal.
    """

    data: ClusterSums
    limits: tuple[float, float] | None = None

    @property
    def decidable(self) -> bool:
        """Two clusters are needed to say anything."""
        return self.data.clusters >= 2

    @property
    def method(self) -> str:
        """How bounds are computed, for the report."""
        if not self.decidable:
            return "none"
        if self.data.se == 0:
            return "equal"
        return "wild-bootstrap" if BOOTSTRAP_FROM <= self.data.clusters < BOOTSTRAP_BELOW else "t"

    def p_greater(self, null: float) -> float:
        """One-sided p value against mean <= null; 1 where nothing can be said."""
        method = self.method
        if method == "none":
            return 1.0
        if method == "equal":
            return self._p_equal(null)
        if method == "wild-bootstrap":
            return bootstrap.p_greater(self.data, null)
        statistic = (self.data.mean - null) / self.data.se
        return float(scipy.special.stdtr(self.data.freedom, -statistic))

    def p_less(self, null: float) -> float:
        """One-sided p value against mean >= null."""
        return self._mirror().p_greater(-null)

    def lower(self, alpha: float) -> float:
        """Lower end of the one-sided 1 - alpha interval; -inf where nothing can be said."""
        method = self.method
        if method == "none":
            return float("-inf")
        if method == "equal":
            return self.data.mean - self._room * hidden_share(alpha, self._draws)
        if method == "wild-bootstrap":
            return bootstrap.lower_bound(self.data, alpha)
        return self.data.mean + float(scipy.special.stdtrit(self.data.freedom, alpha)) * self.data.se

    def upper(self, alpha: float) -> float:
        """Upper end of the one-sided 1 - alpha interval; inf where nothing can be said."""
        return -self._mirror().lower(alpha)

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Two-sided interval at `level`."""
        alpha = (1 - level) / 2
        return self.lower(alpha), self.upper(alpha)

    def _mirror(self) -> Inference:
        limits = None if self.limits is None else (-self.limits[1], -self.limits[0])
        return Inference(ClusterSums(-self.data.sums, self.data.sizes), limits)

    @property
    def _draws(self) -> int:
        """How many draws the equal values are."""
        low, high = self.limits or (0.0, 0.0)
        both_at_an_end = low == -high < 0 and self.data.mean >= high * (1 - 1e-9)
        return self.data.clusters * (2 if both_at_an_end else 1)

    @property
    def _room(self) -> float:
        """How far below the mean one value can be."""
        return 0.0 if self.limits is None else max(0.0, self.data.mean - self.limits[0])

    def _p_equal(self, null: float) -> float:
        gap = self.data.mean - null
        if gap <= 0:
            return 1.0
        if not self._room:
            return 0.0
        return float(np.clip(1 - gap / self._room, 0.0, 1.0) ** self._draws)


def hidden_share(alpha: float, draws: int) -> float:
    """The largest share of clusters that none of so many draws shows with a probability over alpha."""
    return 1.0 - float(alpha ** (1 / draws))
