"""The difference of two means whose cases share clusters: each user may have some on either side.

With side s of N_s cases, n_sg of them of cluster g, f_sg = n_sg / N_s, and S_sg the sum of cluster g's
residuals there (its values less the side's mean):

    se^2 = sum_g (S_1g / (N_1 sqrt(1 - f_1g)) - S_0g / (N_0 sqrt(1 - f_0g)))^2

the bias-reduced cluster-robust variance CR2 of a regression on the side (Bell & McCaffrey 2002); that of one
mean is in `clusters.py`. Quantiles are Student's with the Satterthwaite degrees of freedom of independent
cases of one variance: tr(M)^2 / tr(M M), where M are the covariances of the sum's terms,

    M_gg = d_g - u_g^2 - w_g^2,   M_gh = -(u_g u_h + w_g w_h)
    u_g = n_1g a_1g / sqrt(N_1),   w_g = n_0g a_0g / sqrt(N_0),   a_sg = 1 / (N_s sqrt(1 - f_sg)),
    d_g = n_1g a_1g^2 + n_0g a_0g^2

A side that is one cluster's does not tell how clusters differ there; nor do sides on which no two do, of
which the standard error is 0. Pure.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_DUST = 1e-12  # of the values: what summation leaves where all are equal


def difference_interval(
    values: Floats, first: NDArray[np.bool_], clusters: NDArray[np.int64], level: float = 0.95
) -> tuple[float, float] | None:
    """Two-sided interval of the mean of the `first` less that of the others; None where a side has no case,
    or is one cluster's, or on either no two clusters differ.

    Args:
        values: [N], finite.
        first: which of them are on the first side, [N].
        clusters: codes from 0, [N].
    """
    sides = [
        _Side(values[side], clusters[side], int(clusters.max(initial=0)) + 1) for side in (first, ~first)
    ]
    if any(side.clusters < 2 for side in sides):
        return None
    one, other = sides
    se = math.sqrt(float(((one.terms - other.terms) ** 2).sum()))
    if se <= _DUST * float(np.abs(values).max()):
        return None
    half = -float(scipy.special.stdtrit(_freedom(one, other), (1 - level) / 2)) * se
    return one.mean - other.mean - half, one.mean - other.mean + half


class _Side:
    """One side: `terms` of the standard error [G], and `lean` u and `own` d of each [G]."""

    def __init__(self, values: Floats, clusters: NDArray[np.int64], count: int) -> None:
        def by_cluster(weights: Any = None) -> Floats:
            return np.bincount(clusters, weights=weights, minlength=count).astype(np.float64)

        cases, total = by_cluster(), len(values)
        self.clusters = int((cases > 0).sum())
        if self.clusters < 2:
            return
        self.mean = float(values.mean())
        weight = 1 / (total * np.sqrt(1 - cases / total))
        self.terms = by_cluster(values - self.mean) * weight
        self.lean = cases * weight / math.sqrt(total)
        self.own = cases * weight**2


def _freedom(one: _Side, other: _Side) -> float:
    u, w, d = one.lean, other.lean, one.own + other.own
    trace = float((d - u**2 - w**2).sum())
    squares = (d**2 - 2 * d * (u**2 + w**2)).sum() + (u**2).sum() ** 2 + (w**2).sum() ** 2
    return trace**2 / float(squares + 2 * (u * w).sum() ** 2)
