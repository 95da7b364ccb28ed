"""What a suite can tell: how often an identical model passes, and how many cases would decide.

With the standard error se of a difference and its degrees of freedom (`clusters.py`), the
non-inferiority test of margin M passes a model of true difference delta with probability
P(T > t_alpha), T noncentral Student with these degrees and noncentrality (delta + M) / se.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import scipy

from evals.stats.clusters import ClusterSums, Floats

_MOST = 1 << 40  # of cases or clusters: more are none


def pass_probability(
    se: float, freedom: float, margin: float, delta: float = 0.0, alpha: float = 0.05
) -> float:
    """Probability that the non-inferiority test passes. delta > 0 is better. 1 or 0 without any spread."""
    if not freedom > 0:
        return 0.0
    if se == 0:
        return 1.0 if delta + margin > 0 else 0.0
    return _above(float(-scipy.special.stdtrit(freedom, alpha)), freedom, (delta + margin) / se)


def detectable_loss(se: float, freedom: float, power: float = 0.8, alpha: float = 0.025) -> float:
    """The loss (above 0) that the one-sided regression test at alpha finds with probability `power`."""
    if not freedom > 0:
        return math.inf
    if se == 0:
        return 0.0
    quantile = float(-scipy.special.stdtrit(freedom, alpha))

    def miss(shift: float) -> float:
        return _above(quantile, freedom, shift) - power

    return se * float(scipy.optimize.brentq(miss, 0.0, 10 * quantile + 40.0))


def cases_needed(
    data: ClusterSums, margin: float, *, delta: float = 0.0, power: float = 0.9, alpha: float = 0.05
) -> int | None:
    """How many cases, in clusters like the present ones, would pass a model of true difference delta.

    The standard error shrinks with the root of the number of clusters, the degrees of freedom grow
    with it. None when no number would: delta is at or below -margin, or there is nothing to
    extrapolate from.
    """
    if data.clusters < 2 or delta + margin <= 0:
        return None
    if data.se == 0:
        return data.cases

    def enough(count: int) -> bool:
        times = count / data.clusters
        freedom = max(1.0, (data.freedom + 1) * times - 1)
        return pass_probability(data.se / math.sqrt(times), freedom, margin, delta, alpha) >= power

    count = _smallest(enough, 2)
    return None if count is None else math.ceil(count * data.cases / data.clusters)


def cases_needed_unseen(
    data: ClusterSums, margin: float, span: float, *, delta: float = 0.0, alpha: float = 0.05
) -> int | None:
    """How many cases would pass where all of them show the gain `delta`, as all of the present ones do.

    Without a spread it is what may be hidden that counts: with q = (delta + M) / (delta + span) the share of
    clusters at -span that would use up the margin M, (1 - q)^G must be at most alpha
    (`evals/stats/inference.py`; a gain of `span` would need half as many, which this leaves out). None when
    no number would do, or there is nothing to extrapolate from.
    """
    if data.clusters < 2 or delta + margin <= 0:
        return None
    if margin >= span:
        return math.ceil(2 * data.cases / data.clusters)
    hidden = math.log1p(-(delta + margin) / (delta + span))
    if math.log(alpha) < hidden * _MOST:
        return None
    return math.ceil(max(2, math.ceil(math.log(alpha) / hidden - 1e-9)) * data.cases / data.clusters)


def rare_loss(data: ClusterSums, span: float, power: float = 0.8, alpha: float = 0.025) -> float:
    """`detectable_loss` where the data have no spread: the loss comes of a share q of clusters at -span.

    Its standard error is span sqrt(q (1 - q) / G); with s the detectable loss in standard errors,
    q = s^2 / (G + s^2).
    """
    errors = detectable_loss(1.0, data.freedom, power, alpha)
    return span * errors**2 / (data.clusters + errors**2)


def attempts_needed(
    data: ClusterSums,
    sampling: float,
    attempts: float,
    margin: float,
    *,
    power: float = 0.9,
    alpha: float = 0.05,
) -> int | None:
    """How many attempts at each of the present cases would pass an equal model.

    Only what comes of sampling shrinks: se(k)^2 = se^2 - sampling + sampling * attempts / k.

    Args:
        sampling: the part of se^2 that is due to there being no more attempts.
        attempts: how many there are now at each case.
    """
    if data.clusters < 2 or data.se == 0:
        return None
    rest = max(data.se**2 - sampling, 0.0)
    if pass_probability(math.sqrt(rest), data.freedom, margin, alpha=alpha) < power:
        return None

    def enough(count: int) -> bool:
        se = math.sqrt(rest + sampling * attempts / count)
        return pass_probability(se, data.freedom, margin, alpha=alpha) >= power

    return _smallest(enough, 1)


def _smallest(enough: Callable[[int], bool], start: int, limit: int = _MOST) -> int | None:
    """The smallest count from `start` on that is enough (then every larger one is); None beyond `limit`."""
    high = start
    while not enough(high):
        high *= 2
        if high > limit:
            return None
    low = max(start - 1, high // 2)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


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
        errors.append(np.sqrt((residuals**2 / (1 - one.sizes / total)).sum(axis=1)) / total)
    return np.stack(means, axis=1), np.stack(errors, axis=1)


def share_passing(
    means: Floats, errors: Floats, margins: Sequence[float], freedoms: Sequence[float], alpha: float
) -> float:
    """Share of worlds [draws, metrics] in which every metric's lower bound clears its margin."""
    quantiles = -scipy.special.stdtrit(np.asarray(freedoms), alpha)
    cleared = means + np.asarray(margins)[None, :] >= quantiles[None, :] * errors
    return float(np.mean(np.all(cleared, axis=1)))


def _above(quantile: float, freedom: float, shift: float) -> float:
    value = float(scipy.stats.nct.sf(quantile, freedom, shift))
    # scipy's nct loses itself far out; the normal approximation is exact to 1e-6 there.
    return value if math.isfinite(value) else float(scipy.special.ndtr(shift - quantile))
