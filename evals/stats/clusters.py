"""A mean over cases that come in clusters, with the standard error that knows it.

With S_g the sum and n_g the number of the values of cluster g, N = sum n_g, f_g = n_g / N and
m = sum S_g / N (of a ratio n_g is the cluster's part of the denominator, and m the ratio):

    se^2 = sum_g (S_g - m n_g)^2 / (1 - f_g) / N^2

the bias-reduced cluster-robust variance CR2 of the mean (Bell & McCaffrey 2002, "Bias Reduction in
Standard Errors for Linear Regression with Multi-Stage Samples"). Quantiles are Student's with their
Satterthwaite degrees of freedom, which for a mean and independent cases of one variance are

    1 / (sum f_g^2 + sum_{g != h} f_g^2 f_h^2 / ((1 - f_g)(1 - f_h)))

that is G - 1 for clusters of one size and fewer for lopsided ones. The plain CR1 with G - 1 degrees
called nothing a loss 7 to 9 times in 100 at a level of 5 where sizes were skewed, with 25 clusters
too (docs/lab-notes.md). For clusters of one size CR1 and CR2 are the same number.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ClusterSums:
    """What every clustered statistic of a mean needs: per-cluster sums and sizes, both [G] float64.

    Of a ratio sizes are parts of the denominator, in units of the mean case's: a file, user or session with
    most of it has most of the weight, however few cases that are, and leverage and degrees of freedom are of
    weights. `labels` say which clusters these are, where that matters; `differ` [G] in which of them two arms
    did, where the sums do not tell: those of a ratio's differences hold what all cases have in common.
    """

    sums: Floats
    sizes: Floats
    labels: tuple[Hashable, ...] = ()
    differ: NDArray[np.bool_] | None = None

    @property
    def clusters(self) -> int:
        """G."""
        return len(self.sums)

    @property
    def cases(self) -> int:
        """N."""
        return round(float(self.sizes.sum()))

    @cached_property
    def mean(self) -> float:
        """Mean over cases; nan without cases."""
        total = float(self.sizes.sum())
        return float(self.sums.sum()) / total if total > 0 else float("nan")

    @cached_property
    def se(self) -> float:
        """Standard error of the mean, CR2; nan below two clusters."""
        if self.clusters < 2:
            return float("nan")
        residuals = self.sums - self.mean * self.sizes
        # Summation leaves rounding dust where all values are equal: that is no spread.
        dust = 1e-12 * max(float(np.abs(self.sums).max()), 1e-300)
        residuals = np.where(np.abs(residuals) <= dust, 0.0, residuals)
        total = float(self.sizes.sum())
        return math.sqrt(float((residuals**2 / (1 - self.sizes / total)).sum())) / total

    @cached_property
    def freedom(self) -> float:
        """Satterthwaite degrees of freedom of `se`; nan below two clusters."""
        if self.clusters < 2:
            return float("nan")
        share = self.sizes / float(self.sizes.sum())
        across = share**2 / (1 - share)
        return 1 / float((share**2).sum() + across.sum() ** 2 - (across**2).sum())


def with_two(sums: Floats, sizes: Floats, of: tuple[float, float], size: float) -> tuple[Floats, Floats]:
    """Sums and sizes [G] with two clusters more of this `size`, whose means are `of`: [G + 2] each.

    Few clusters show too little of what is rare (`sparse.py`, `evals/ab/arms.py`).
    """
    return np.append(sums, np.multiply(of, size)), np.append(sizes, [size, size])


def cluster_sums(
    values: ArrayLike, clusters: Sequence[Hashable], weights: ArrayLike | None = None
) -> ClusterSums:
    """Group values [N] by cluster label; `weights` [N] of a sum N are the cases' sizes, 1 by default.

    Raises:
        ValueError: lengths differ, or a value is not finite.
    """
    array = np.asarray(values, dtype=np.float64)
    each = np.ones(len(clusters)) if weights is None else np.asarray(weights, dtype=np.float64)
    if array.ndim != 1 or not len(array) == len(clusters) == len(each):
        raise ValueError(f"{array.shape} values for {len(clusters)} cluster labels")
    if not (np.isfinite(array) & np.isfinite(each)).all():
        raise ValueError("a value is not finite: leave the case out and count it, do not average it")
    index: dict[Hashable, int] = {}
    where = np.array([index.setdefault(label, len(index)) for label in clusters], dtype=np.intp)
    sums = np.bincount(where, weights=array, minlength=len(index)).astype(np.float64)
    sizes = np.bincount(where, weights=each, minlength=len(index)).astype(np.float64)
    return ClusterSums(sums, sizes, tuple(index))
