"""A mean over cases that come in clusters, with the standard error that knows it.

With S_g the sum and n_g the number of the values of cluster g, N = sum n_g and m = sum S_g / N:

    se^2 = G / (G - 1) * sum_g (S_g - m n_g)^2 / N^2

the cluster-robust variance CR1 of the mean (Liang & Zeger 1986; Miller 2024, "Adding Error Bars to
Evals", eq. 4, with the small-sample factor). Quantiles are Student's with G - 1 degrees of freedom.
Equal to `statsmodels` OLS on a constant with `cov_type="cluster"` (tested).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ClusterSums:
    """What every clustered statistic of a mean needs: per-cluster sums and sizes, both [G] float64."""

    sums: Floats
    sizes: Floats

    @property
    def clusters(self) -> int:
        """G."""
        return len(self.sums)

    @property
    def cases(self) -> int:
        """N."""
        return round(float(self.sizes.sum()))

    @property
    def mean(self) -> float:
        """Mean over cases; nan without cases."""
        total = float(self.sizes.sum())
        return float(self.sums.sum()) / total if total > 0 else float("nan")

    @property
    def se(self) -> float:
        """Standard error of the mean; nan below two clusters."""
        count = self.clusters
        if count < 2:
            return float("nan")
        residuals = self.sums - self.mean * self.sizes
        # Summation leaves rounding dust where all values are equal: that is no spread.
        dust = 1e-12 * max(float(np.abs(self.sums).max()), 1e-300)
        residuals = np.where(np.abs(residuals) <= dust, 0.0, residuals)
        variance = count / (count - 1) * float((residuals**2).sum()) / float(self.sizes.sum()) ** 2
        return float(np.sqrt(variance))


def cluster_sums(values: ArrayLike, clusters: Sequence[Hashable]) -> ClusterSums:
    """Group values [N] by cluster label.

    Raises:
        ValueError: lengths differ, or a value is not finite.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or len(array) != len(clusters):
        raise ValueError(f"{array.shape} values for {len(clusters)} cluster labels")
    if not np.isfinite(array).all():
        raise ValueError("a value is not finite: leave the case out and count it, do not average it")
    index: dict[Hashable, int] = {}
    where = np.array([index.setdefault(label, len(index)) for label in clusters], dtype=np.intp)
    sums = np.bincount(where, weights=array, minlength=len(index)).astype(np.float64)
    sizes = np.bincount(where, minlength=len(index)).astype(np.float64)
    return ClusterSums(sums, sizes)
