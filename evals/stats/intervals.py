"""Intervals of one arm's figures: ratios and means clustered by user, and plain proportions.

For tables and plots. What compares two arms is in `evals/stats/paired.py`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike

from evals.stats.clusters import cluster_sums
from evals.stats.inference import Inference
from evals.stats.shares import share_interval

SHARE = (0.0, 1.0)


@dataclass(frozen=True)
class Estimate:
    """A figure with its 95 % interval. Ends are None where the data cannot say."""

    value: float | None
    low: float | None
    high: float | None
    cases: int
    clusters: int

    def to_json(self) -> dict[str, float | int | None]:
        """Plain fields, for meta and reports."""
        return asdict(self)

    def apart_from(self, other: Estimate) -> bool:
        """Whether the two intervals do not touch."""
        ends = (self.low, self.high, other.low, other.high)
        if any(end is None for end in ends):
            return False
        return bool(self.low > other.high or self.high < other.low)  # type: ignore[operator]


def clustered(
    numerator: ArrayLike,
    denominator: ArrayLike,
    clusters: Sequence[Hashable],
    *,
    bounds: tuple[float, float] | None = None,
    level: float = 0.95,
) -> Estimate:
    """Ratio sum y / sum n over cases [N] with an interval clustered by user. A case without n says nothing.

    Args:
        numerator: y per case.
        denominator: n per case, 1 for a plain mean.
        clusters: label per case.
        bounds: where the figure can lie; the interval is cut to it. (0, 1) is a share, of values that are 0
            to n each, and has Korn and Graubard's interval (`shares.py`).
        level: two-sided level.
    """
    y, n = np.asarray(numerator, dtype=np.float64), np.asarray(denominator, dtype=np.float64)
    told = np.flatnonzero(n)
    used = len(told)
    if used == 0:
        return Estimate(None, None, None, 0, 0)
    each = float(n[told].mean())
    data = cluster_sums(y[told] / each, [clusters[place] for place in told], n[told] / each)
    if bounds == SHARE and data.clusters > 1:  # some are rare: Student's is too narrow about these
        low, high = share_interval(data, level)
    else:
        low, high = Inference(data, bounds).interval(level)
    if bounds is not None:
        low, high = max(low, bounds[0]), min(high, bounds[1])
    return Estimate(data.mean, finite(low), finite(high), used, data.clusters)


def proportion(successes: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """Wilson's interval of a share of independent trials.

    Raises:
        ValueError: no trials, or more successes than trials.
    """
    interval = scipy.stats.binomtest(successes, trials).proportion_ci(level, method="wilson")
    return float(interval.low), float(interval.high)


def finite(value: float) -> float | None:
    """The number for a record that people read; None for one that is infinite or none."""
    return value + 0.0 if np.isfinite(value) else None  # and no -0.0
