"""The interval of a share over cases that come in clusters, for rare ones too.

Clopper and Pearson's for p n successes in n trials, n being how many independent trials would know the share
as well as these clusters do (Korn & Graubard 1998, "Confidence Intervals for Proportions with Small Expected
Number of Positive Counts Estimated from Survey Data"):

    n = p (1 - p) / se^2 * (t(N - 1) / t(df))^2

with the standard error and degrees of freedom of `clusters.py`, N cases and t the quantile of Student's t. A
case whose value is the mean of several trials is more than one: N is p (1 - p) / se^2 where that is more.
Where the share is no rare one this is Student's interval, nearly. About a rare one that, and the bootstrap's,
has the share too seldom (docs/lab-notes.md): where few cases are seen, its middle is low and its width small.
"""

from __future__ import annotations

import scipy

from evals.stats.clusters import ClusterSums
from evals.stats.inference import Inference


def share_interval(data: ClusterSums, level: float = 0.95) -> tuple[float, float]:
    """Two-sided interval in [0, 1] of a mean of values that are 0 to 1 each.

    Where no two clusters differ, the standard error says nothing: see `Inference`.

    Raises:
        ValueError: there are fewer than two clusters.
    """
    if data.clusters < 2:
        raise ValueError("one cluster says nothing of others")
    p, tail = data.mean, (1 - level) / 2
    if data.se == 0 or not 0 < p < 1:
        low, high = Inference(data, (0.0, 1.0)).interval(level)
        return max(low, 0.0), min(high, 1.0)
    n = p * (1 - p) / data.se**2
    known = max(data.cases, n)  # of a case that is a mean of several trials there are more than it
    fewer = scipy.special.stdtrit(known - 1, 1 - tail) / scipy.special.stdtrit(data.freedom, 1 - tail)
    n *= fewer**2
    low = scipy.special.betaincinv(p * n, n - p * n + 1, tail)
    high = scipy.special.betaincinv(p * n + 1, n - p * n, 1 - tail)
    return float(low), float(high)
