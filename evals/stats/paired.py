"""Differences between two checkpoints on the same cases, for means and for ratios.

A metric gives each case a numerator y and a denominator n (n = 1 for a plain mean; for edit
persistence n says whether there was an edit that could persist). The metric of an arm is
R = sum y / sum n. To first order (delta method; Deng et al. 2018, "Applying the Delta Method in
Metric Analytics", section 4) case i moves the difference R_c - R_b by

    v_i = (R_c - R_b) + (y_ic - R_c n_ic) / mean(n_c) - (y_ib - R_b n_ib) / mean(n_b)

whose mean is the difference and whose clustered standard error is that of the difference. For
n = 1 this is the plain paired difference y_ic - y_ib. A case weighs what it has of the denominators,

    w_i = (n_ic / mean(n_c) + n_ib / mean(n_b)) / 2

and adds v_i + (R_c - R_b) (w_i - 1) to its cluster: the same difference and residuals, with leverage and
degrees of freedom by weight (`clusters.py`). By number, of 12 files of very unequal size, of which one or two
make the figure, the same model was called worse 17 times in 100 at a level of 2.5.

A case that has nothing in its denominator in either arm says nothing: its v_i is the difference of the
others, without any spread. It is left out before clusters are counted, or a suite with one case that
tells and thirty that do not would have thirty-one that agree.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from evals.stats.clusters import ClusterSums, Floats, cluster_sums

ROUNDING = 1e-12  # of what was added up: gains and losses of thirds that cancel leave more than nothing
Columns = tuple[ArrayLike, ArrayLike]  # numerators and denominators [N]


def ratio(numerator: ArrayLike, denominator: ArrayLike) -> float:
    """sum y / sum n; nan when nothing is in the denominator."""
    total = float(np.sum(np.asarray(denominator, dtype=np.float64)))
    return float(np.sum(np.asarray(numerator, dtype=np.float64))) / total if total > 0 else float("nan")


def ratio_values(numerator: ArrayLike, denominator: ArrayLike) -> Floats:
    """Linearised values [N] of one arm's ratio: their mean is the ratio, their spread its spread.

    Raises:
        ValueError: nothing is in the denominator.
    """
    y = np.asarray(numerator, dtype=np.float64)
    n = np.asarray(denominator, dtype=np.float64)
    value = ratio(y, n)
    if not np.isfinite(value):
        raise ValueError("no case has a denominator: the metric is not defined")
    linear: Floats = value + (y - value * n) / n.mean()
    return linear


def paired_values(candidate: Columns, baseline: Columns) -> Floats:
    """Per-case values [N] of the difference candidate - baseline; see the module's formula.

    Args:
        candidate: numerators and denominators [N] of the candidate, case by case.
        baseline: the same cases in the same order.

    Raises:
        ValueError: lengths differ, or an arm has nothing in its denominator.
    """
    left, right = ratio_values(*candidate), ratio_values(*baseline)
    if len(left) != len(right):
        raise ValueError(f"{len(left)} cases against {len(right)}: pairs need the same cases")
    difference: Floats = left - right
    return difference


def paired_sums(candidate: Columns, baseline: Columns, clusters: Sequence[Hashable]) -> ClusterSums:
    """`paired_values` by cluster, over the cases that say something in one arm at least.

    Args:
        clusters: label per case.

    Raises:
        ValueError: as `paired_values`.
    """
    arms = [(np.asarray(y), np.asarray(n)) for y, n in (candidate, baseline)]
    told = np.flatnonzero((arms[0][1] > 0) | (arms[1][1] > 0))
    left, right = ((y[told], n[told]) for y, n in arms)
    where = [clusters[place] for place in told]
    values = paired_values(left, right)
    alike = [np.isclose(*both, rtol=1e-9, atol=1e-12) for both in zip(left, right, strict=True)]
    differ = cluster_sums(~(alike[0] & alike[1]), where).sums > 0
    weights = (left[1] / left[1].mean() + right[1] / right[1].mean()) / 2
    data = cluster_sums(values + values.mean() * (weights - 1), where, weights)
    size = sum((np.abs(y) + abs(ratio(y, n)) * n) / n.mean() for y, n in (left, right))
    dust = ROUNDING * cluster_sums(size, where).sums
    return replace(data, sums=np.where(np.abs(data.sums) <= dust, 0.0, data.sums), differ=differ)


def sampling_variance(means: Columns, spread: Floats) -> float | None:
    """The part of the variance of sum y / sum n that more attempts at the same cases would take away.

    With s the variance of a case's mean over repeated attempts, linearised as in the module's formula:
    sum_i (s_yy - 2 R s_yn + R^2 s_nn) / (N mean(n))^2.

    Args:
        means: numerators and denominators [N], means over each case's attempts.
        spread: [N, 3], see `evals.cases.Arm`; cases with one attempt (nan) count like the mean of the others.

    Returns:
        None where no case has two attempts.
    """
    n = np.asarray(means[1], dtype=np.float64)
    value = ratio(*means)
    each = spread @ np.array([1.0, -2.0 * value, value**2])
    known = each[np.isfinite(each)]
    if not len(known):
        return None
    return float(known.mean()) / (len(n) * float(n.mean()) ** 2)
