"""Two arms of users compared on a ratio: edits kept over edits made, complaints over episodes.

Users are what was assigned at random, and a user's episodes resemble one another, so the user is the
unit. With y_u and n_u the sums of user u in an arm, the arm's figure is m = sum y / sum n, and

    var(m) = sum_u (y_u - m n_u)^2 / (sum n)^2 * c,      c = U / (U - 1)

the delta method's variance of a ratio, which is the cluster-robust variance of regressing episodes on
the arm (Deng, Knoblich & Lu 2018, arXiv 1803.06336). Arms are independent: variances of the
difference add up.

With a covariate x_u from before the arms (the same user's figure then), CUPED takes away what x
explains: y_u - m n_u becomes its residual on x_u (one slope for both arms), and the difference changes
by that of the arms in x (Deng et al. 2013, "Improving the Sensitivity of Online Controlled
Experiments by Utilizing Pre-Experiment Data"). Users without a past have the mean one.

With n_u / sum n = f_u the variance is too small where a few users make most of the episodes, and a
normal quantile too short: `cautious_error` has CR2's 1 / (1 - f_u) in place of c, `freedom` are
Satterthwaite's degrees of freedom of each arm (`evals/stats/clusters.py`), joined as Welch does.

Not here: when to look (`confidence_sequence.py`), what is decided (`decision.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from evals.stats.clusters import ClusterSums, Floats, with_two


@dataclass(frozen=True, eq=False)
class Users:
    """One arm's users, those with anything to count. All [U] float64.

    Attributes:
        sums: y_u.
        counts: n_u, above 0.
        before: x_u from before the arms, NaN for a user without; None where there is no such period.
    """

    sums: Floats
    counts: Floats
    before: Floats | None = None

    @classmethod
    def of(cls, sums: ArrayLike, counts: ArrayLike, before: ArrayLike | None = None) -> Users:
        """Leaves out users with nothing to count. Raises ValueError for lengths that differ."""
        y, n = np.asarray(sums, dtype=np.float64), np.asarray(counts, dtype=np.float64)
        x = None if before is None else np.asarray(before, dtype=np.float64)
        if y.shape != n.shape or y.ndim != 1 or (x is not None and x.shape != y.shape):
            raise ValueError("sums, counts and what was before are one number per user each")
        there = n > 0
        return cls(y[there], n[there], None if x is None else x[there])

    @property
    def users(self) -> int:
        """U."""
        return len(self.sums)

    @property
    def mean(self) -> float:
        """m; nan without users."""
        total = float(self.counts.sum())
        return float(self.sums.sum()) / total if total else math.nan

    def with_pair(self, span: float) -> Users:
        """These users and two more of the mean count, one at 0 and one at `span` in every episode.

        Few users show too little of what is rare: a loss as large as its margin could not be excluded by
        60 users of whom none broke a call, and was by 60 of whom one did (Agresti & Caffo 2000 do so for two
        proportions; Bonett & Price 2012, as in `evals/stats/sparse.py`).
        """
        each = float(self.counts.mean())
        before = None if self.before is None else np.append(self.before, [math.nan] * 2)
        return Users(*with_two(self.sums, self.counts, (0.0, span), each), before)

    def unseen_variance(self, span: float) -> float:
        """Variance of one user where no two differ, by at most `span`; 0 where they do.

        That none of U users was unlike the rest does not say that the next one will not be: Laplace's rule of
        succession makes it p = 1 / (U + 2), and the variance span^2 p (1 - p).
        """
        if not self.users or float(np.ptp(self.sums / self.counts)) > 1e-12 * span:
            return 0.0
        p = 1 / (self.users + 2)
        return span**2 * p * (1 - p)


@dataclass(frozen=True)
class Difference:
    """Treated minus control.

    Attributes:
        value: of the figures, adjusted where there was a past.
        standard_error: nan below two users an arm.
        control, treated: the arms' figures, unadjusted.
        variance_left: share of the variance that the past did not explain; 1 without one.
        cautious_error, freedom: of what is decided once; nan below two users an arm.
    """

    value: float
    standard_error: float
    control: float
    treated: float
    users: tuple[int, int]
    variance_left: float = 1.0
    cautious_error: float = math.nan
    freedom: float = math.nan

    @property
    def information(self) -> float:
        """1 / standard_error^2; 0 where it is not known or every user is alike."""
        known = math.isfinite(self.standard_error) and self.standard_error > 0
        return 1 / self.standard_error**2 if known else 0.0

    @property
    def z(self) -> float:
        """Value in standard errors, 0 where that says nothing."""
        return self.value * math.sqrt(self.information)


def difference(control: Users, treated: Users) -> Difference:
    """The arms' difference, adjusted for the past where both arms know one; nan of an arm without users."""
    arms = (control, treated)
    residuals = [arm.sums - arm.mean * arm.counts for arm in arms]
    totals = [float(arm.counts.sum()) for arm in arms]
    value = treated.mean - control.mean
    plain = sum(_variance(e, total) for e, total in zip(residuals, totals, strict=True))
    variance = plain
    if control.before is not None and treated.before is not None and all(totals):
        covariates = _centred(control.before, treated.before)
        slope = _slope(residuals, covariates, totals)
        adjusted = [e - slope * x for e, x in zip(residuals, covariates, strict=True)]
        shifts = [slope * float(x.sum()) / total for x, total in zip(covariates, totals, strict=True)]
        value -= shifts[1] - shifts[0]
        residuals = [e - e.mean() if len(e) else e for e in adjusted]
        variance = sum(_variance(e, total) for e, total in zip(residuals, totals, strict=True))
    cautious_error, freedom = _cautious(residuals, [arm.counts for arm in arms])
    return Difference(
        value=value,
        standard_error=math.sqrt(variance),
        control=control.mean,
        treated=treated.mean,
        users=(control.users, treated.users),
        variance_left=variance / plain if plain > 0 else 1.0,
        cautious_error=cautious_error,
        freedom=freedom,
    )


def unexplained(arm: Users) -> Floats:
    """y_u - m n_u of one arm alone, less what its users' past explains of it. [U]"""
    e = arm.sums - arm.mean * arm.counts
    if arm.before is None:
        return e
    x = _centred(arm.before, np.zeros(0))[0]
    total = float(arm.counts.sum())
    left: Floats = e - _slope([e], (x,), [total]) * x
    centred: Floats = left - left.mean()
    return centred


def _variance(residuals: Floats, total: float) -> float:
    users = len(residuals)
    if users < 2:
        return math.nan
    return float(residuals @ residuals) / total**2 * users / (users - 1)


def _cautious(residuals: Sequence[Floats], counts: Sequence[Floats]) -> tuple[float, float]:
    """The error by CR2 and its degrees of freedom; nan below two users an arm."""
    if min(map(len, counts)) < 2:
        return math.nan, math.nan
    arms = [
        (ClusterSums(e, n).freedom, float((e**2 / (1 - n / n.sum())).sum() / n.sum() ** 2))
        for e, n in zip(residuals, counts, strict=True)
    ]
    variance = sum(one for _, one in arms)
    joined = sum(one**2 / freedom for freedom, one in arms)
    return math.sqrt(variance), variance**2 / joined if joined else math.inf


def _centred(control: Floats, treated: Floats) -> tuple[Floats, Floats]:
    """Both arms' past around their common mean; users without one are there."""
    both = np.concatenate([control, treated])
    known = both[~np.isnan(both)]
    mean = float(known.mean()) if len(known) else 0.0
    return np.nan_to_num(control - mean), np.nan_to_num(treated - mean)


def _slope(residuals: list[Floats], covariates: tuple[Floats, ...], totals: list[float]) -> float:
    """The slope under which the difference varies least: arms weigh as they do in its variance."""
    covariance = square = 0.0
    for e, x, total in zip(residuals, covariates, totals, strict=True):
        if len(e):
            around = x - x.mean()
            covariance += float(around @ e) / total**2
            square += float(around @ around) / total**2
    return covariance / square if square > 0 else 0.0
