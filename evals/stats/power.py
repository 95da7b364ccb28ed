"""What a suite can tell: how often an identical model passes, and how many cases would decide.

With the standard error se of a difference over G clusters, the non-inferiority test of margin M
passes a model of true difference delta with probability P(T > t_alpha), T noncentral Student with
G - 1 degrees of freedom and noncentrality (delta + M) / se.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import optimize, stats

from evals.stats.clusters import ClusterSums, Floats


def pass_probability(
    se: float, clusters: int, margin: float, delta: float = 0.0, alpha: float = 0.05
) -> float:
    """Probability that the non-inferiority test passes. delta > 0 is better. 1 or 0 without any spread."""
    if clusters < 2:
        return 0.0
    if se == 0:
        return 1.0 if delta + margin > 0 else 0.0
    return _above(float(stats.t.isf(alpha, clusters - 1)), clusters - 1, (delta + margin) / se)


def detectable_loss(se: float, clusters: int, power: float = 0.8, alpha: float = 0.025) -> float:
    """The loss (above 0) that the one-sided regression test at alpha finds with probability `power`."""
    if clusters < 2:
        return math.inf
    if se == 0:
        return 0.0
    quantile = float(stats.t.isf(alpha, clusters - 1))

    def miss(shift: float) -> float:
        return _above(quantile, clusters - 1, shift) - power

    return se * float(optimize.brentq(miss, 0.0, quantile + 40.0))


def cases_needed(
    se: float,
    cases: int,
    clusters: int,
    margin: float,
    *,
    delta: float = 0.0,
    power: float = 0.9,
    alpha: float = 0.05,
) -> int | None:
    """How many cases, in clusters of the present size, would pass a model of true difference delta.

    The standard error shrinks with the root of the number of clusters. None when no number would:
    delta is at or below -margin, or there is nothing to extrapolate from.
    """
    if clusters < 2 or cases < 1 or delta + margin <= 0:
        return None
    if se == 0:
        return cases

    def enough(count: int) -> bool:
        return pass_probability(se * math.sqrt(clusters / count), count, margin, delta, alpha) >= power

    high = 2
    while not enough(high):
        high *= 2
        if high > 1 << 40:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return math.ceil(high * cases / clusters)


def identical_worlds(data: list[ClusterSums], draws: int, seed: int) -> tuple[Floats, Floats]:
    """Means and standard errors [draws, metrics] had both arms been the same model.

    Between two samples of one model each cluster's difference is as likely as its opposite, so
    clusters get random signs, the same for all metrics (their correlation is kept). The observed
    mean is taken out first. All metrics must be over the same clusters in the same order.

    Raises:
        ValueError: cluster counts differ or there are fewer than two.
    """
    counts = {one.clusters for one in data}
    if len(counts) != 1 or min(counts) < 2:
        raise ValueError(f"metrics over {sorted(counts)} clusters: need the same, at least two")
    count = counts.pop()
    flips = 1.0 - 2.0 * np.random.default_rng(seed).integers(0, 2, size=(draws, count))
    means, errors = [], []
    for one in data:
        centred = one.sums - one.mean * one.sizes
        total = float(one.sizes.sum())
        world = flips * centred[None, :]
        mean = world.sum(axis=1) / total
        residuals = world - mean[:, None] * one.sizes[None, :]
        means.append(mean)
        errors.append(np.sqrt(count / (count - 1) * (residuals**2).sum(axis=1)) / total)
    return np.stack(means, axis=1), np.stack(errors, axis=1)


def share_passing(
    means: Floats, errors: Floats, margins: Sequence[float], clusters: int, alpha: float
) -> float:
    """Share of worlds [draws, metrics] in which every metric's lower bound clears its margin."""
    quantile = float(stats.t.isf(alpha, clusters - 1))
    cleared = means + np.asarray(margins)[None, :] >= quantile * errors
    return float(np.mean(np.all(cleared, axis=1)))


def _above(quantile: float, freedom: int, shift: float) -> float:
    value = float(stats.nct.sf(quantile, freedom, shift))
    # scipy's nct loses itself far out; the normal approximation is exact to 1e-6 there.
    return value if math.isfinite(value) else float(stats.norm.sf(quantile - shift))
