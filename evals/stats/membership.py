"""Whether what a filter removed differs from what it kept: tests that know who the episodes are of.

H0: which episodes were removed has nothing to do with their values. Two ways to shuffle under it:

    within users   each user's own episodes change places, the number removed of each user held fixed. For
                   filters that take some of a user's episodes: who the user is cannot explain a difference
    users          whole users change places. For filters that take all of a user or nothing

The first is the stratified permutation test; for 0/1 values its distribution is exact (a sum of
hypergeometric ones; Fisher's test with one stratum, the exact test of Mantel and Haenszel with several,
Agresti 2013, section 7.3.5). For means it is drawn, its far tail that of a Student's t with the variance and
kurtosis of the draws; or, where there is much data, normal with the moments of sampling without replacement
(Cochran 1977, section 2.5). Not for: repeated looks, nor what to do about it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy
from numpy.typing import NDArray

from evals.stats.two_sides import difference_interval

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Test = Literal["fisher", "within users", "users", "none"]

DRAWS = 1999
FEW = 10  # draws at least as far as what was seen, under which they tell too little of the tail
_DRAWN = 6_000_000  # draws x episodes up to which places are really shuffled
_EXACT = 20_000  # removed episodes up to which the exact distribution is added up
_STRATA = 400
_SAME = 1e-9


@dataclass(frozen=True)
class Shift:
    """How what was removed differs from what was kept, in one value.

    Attributes:
        removed, kept: means over the known; None where nothing is.
        difference, low, high: removed - kept, with its 95 % interval, clustered by user (`two_sides.py`); no
            interval where all of a side is one user's.
        effect: the difference in standard deviations over all episodes (Cohen's d, total spread).
        p: two-sided, uncorrected; 1 where nothing can be said.
        test: how p was had.
    """

    removed: float | None
    kept: float | None
    difference: float | None
    low: float | None
    high: float | None
    effect: float | None
    p: float
    test: Test


class Shuffled:
    """The shuffles of one filter, made once for all the values it is looked at with.

    Args:
        removed: which episodes the filter took, [N].
        users: a code for each episode's user, [N].
    """

    def __init__(self, removed: Bools, users: Ints) -> None:
        self.removed = removed
        self.users = np.unique(users, return_inverse=True)[1].astype(np.int64)
        self.n = np.bincount(self.users).astype(np.float64)
        self.taken = np.bincount(self.users, weights=removed, minlength=len(self.n))
        mixed = (self.taken > 0) & (self.taken < self.n)
        # a filter is of single episodes when half of what it took is of users who kept others
        self.within = bool(removed.any()) and self.taken[mixed].sum() * 2 >= removed.sum()
        self._in_mixed = mixed[self.users]
        self._places: Bools | None = None

    def shift(self, values: Floats) -> Shift:
        """How `values` [N] (nan: not known) differ between the two sides."""
        known = ~np.isnan(values)
        inside, outside = values[known & self.removed], values[known & ~self.removed]
        if not len(inside) or not len(outside):
            left, stayed = (float(side.mean()) if len(side) else None for side in (inside, outside))
            return Shift(left, stayed, None, None, None, None, 1.0, "none")
        gap = float(inside.mean() - outside.mean())
        spread = float(values[known].std())
        low, high = self._interval(values, known)
        rate = bool(np.isin(values[known], (0.0, 1.0)).all())
        p, test = self._within(values, known, rate) if self.within else self._between(values, known)
        return Shift(
            removed=float(inside.mean()),
            kept=float(outside.mean()),
            difference=gap,
            low=low,
            high=high,
            effect=gap / spread if spread > _SAME else 0.0,
            p=p,
            test=test,
        )

    def _interval(self, values: Floats, known: Bools) -> tuple[float | None, float | None]:
        """The 95 % interval of the difference; none where a side is one user's, as it does not tell how users
        differ. Of a filter of one user's episodes it is of episodes."""
        users = np.unique(self.users[known], return_inverse=True)[1].astype(np.int64)
        of = users if users.max() > 0 else np.arange(len(users))
        return difference_interval(values[known], self.removed[known], of) or (None, None)

    def _within(self, values: Floats, known: Bools, rate: bool) -> tuple[float, Test]:
        """Each user's own episodes change places."""
        rows = self._in_mixed & known
        users = np.unique(self.users[rows], return_inverse=True)[1]
        n = np.bincount(users).astype(np.float64)
        taken = np.bincount(users, weights=self.removed[rows], minlength=len(n))
        sums = np.bincount(users, weights=values[rows], minlength=len(n))
        centred = values[rows] - (sums / np.maximum(n, 1))[users]
        total = float(centred[self.removed[rows]].sum())
        least = np.minimum(np.minimum(taken, n - taken), np.minimum(sums, n - sums)) if rate else n
        if rate and len(n) <= _STRATA and least.sum() <= _EXACT:
            table = np.stack([n, taken, sums], axis=1).round().astype(np.int64)
            ones = int(values[rows][self.removed[rows]].sum())
            return hypergeometric_p(table, ones), "fisher" if len(n) == 1 else "within users"
        if DRAWS * int(self._in_mixed.sum()) <= _DRAWN:
            padded = np.zeros(len(values))
            padded[rows] = centred
            drawn = self._shuffles() @ padded[self._in_mixed]
            ways = _choose(n.astype(np.int64), taken.astype(np.int64))
            return drawn_p(drawn, total, float(ways.sum())), "within users"
        squares = np.bincount(users, weights=centred**2, minlength=len(n))
        variance = float((taken * (n - taken) / np.maximum(n * (n - 1), 1) * squares).sum())
        return _normal(total, variance), "within users"

    def _shuffles(self) -> Floats:
        """[DRAWS, mixed episodes]: who is removed, the number of each user as it was."""
        if self._places is None:
            random = np.random.default_rng(0)
            users, removed = self.users[self._in_mixed], self.removed[self._in_mixed]
            first = np.lexsort((~removed, users))  # a user's removed ones first: so are its places filled
            order = np.argsort(users + random.random((DRAWS, len(users))), axis=1)
            found = np.zeros(order.shape, dtype=np.bool_)
            np.put_along_axis(found, order, np.broadcast_to(removed[first], order.shape), axis=1)
            self._places = found
        return self._places.astype(np.float64)

    def _between(self, values: Floats, known: Bools) -> tuple[float, Test]:
        """Whole users change places; one that was taken in part goes by the larger part."""
        groups = len(self.n)
        sums = np.bincount(self.users[known], weights=values[known], minlength=groups).astype(np.float64)
        sizes = np.bincount(self.users[known], minlength=groups).astype(np.float64)
        taken = self.taken * 2 >= self.n
        count = int(taken.sum())
        if not 0 < count < groups:
            return 1.0, "none"
        random = np.random.default_rng(0)
        observed = _gap(taken[None, :].astype(np.float64), sums, sizes)[0]
        if np.isnan(observed):
            return 1.0, "none"
        if DRAWS * groups > _DRAWN:
            rest = np.where(taken, 1 / sizes[taken].sum(), -1 / sizes[~taken].sum())
            mean = sums.sum() / sizes.sum()
            return _normal(float(observed), float(((rest * (sums - mean * sizes)) ** 2).sum())), "users"
        places = np.argsort(random.random((DRAWS, groups)), axis=1) < count
        drawn = _gap(places.astype(np.float64), sums, sizes)
        ways = float(_choose(np.array([groups]), np.array([count]))[0])
        return drawn_p(drawn, float(observed), ways), "users"


def drawn_p(drawn: Floats, observed: float, ways: float) -> float:
    """Two-sided p of `observed` among values `drawn` under H0, [draws]; `ways`: ln of all shuffles' number.

    Draws alone can say no less than 1 / (1 + draws), which no correction for many tests survives. Where fewer
    than `FEW` are as far, the tail is that of a Student's t with the variance and kurtosis of the draws (its
    excess is 6 / (df - 4); normal where there is none), between 1 in all shuffles and what the draws say.
    """
    far = int((np.abs(drawn) >= abs(observed) - _SAME * (1 + abs(observed))).sum())
    counted = (1 + far) / (1 + len(drawn))
    spread = float(drawn.std())
    if far >= FEW or spread <= _SAME * (1 + abs(observed)):
        return float(counted)
    excess = float(((drawn - drawn.mean()) ** 4).mean()) / spread**4 - 3
    df = 4 + 6 / excess if excess > _SAME else np.inf
    scaled = abs(observed - float(drawn.mean())) / spread
    if np.isfinite(df):
        scaled *= float(np.sqrt(df / (df - 2)))
    tail = 2 * float(scipy.special.stdtr(df, -scaled) if np.isfinite(df) else scipy.special.ndtr(-scaled))
    return float(min(counted, max(tail, np.exp(-ways))))


def hypergeometric_p(strata: Ints, ones: int) -> float:
    """Two-sided exact p of `ones` removed ones: the total of what is no likelier than it (Fisher's rule).

    Args:
        strata: rows (episodes, removed, ones) [S, 3]; the removed are drawn within each stratum.
    """
    total, low = np.ones(1), 0
    for n, taken, positive in strata:
        first, last = max(0, taken + positive - n), min(taken, positive)
        k = np.arange(first, last + 1)
        logs = _choose(positive, k) + _choose(n - positive, taken - k) - _choose(n, taken)
        total = np.convolve(total, np.exp(logs))
        low += int(first)
    at = total[ones - low]
    return float(min(1.0, total[total <= at * (1 + 1e-7)].sum()))


def _choose(n: NDArray[np.int64], k: NDArray[np.int64]) -> Floats:
    log_factorial = scipy.special.gammaln
    return np.asarray(log_factorial(n + 1) - log_factorial(k + 1) - log_factorial(n - k + 1))


def _gap(places: Floats, sums: Floats, sizes: Floats) -> Floats:
    """Difference of the two sides' means for each shuffle of users, [draws]."""
    inside, weight = places @ sums, places @ sizes
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(inside / weight - (sums.sum() - inside) / (sizes.sum() - weight))


def _normal(total: float, variance: float) -> float:
    if variance <= 0:
        return 1.0
    return float(2 * scipy.special.ndtr(-abs(total) / np.sqrt(variance)))
