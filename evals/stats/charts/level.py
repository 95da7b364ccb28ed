"""A series as scores: how surprising is each value, given all before it?

The model is the local level of a policy that is trained between the cycles (Harvey 1989, section 2.2):

    y_t  = mu_t + e_t,          e_t ~ N(0, se_t^2 + omega^2)     omega: cycle-to-cycle noise beyond sampling
    mu_t = mu_{t-1} + d_t,      d_t ~ N(0, tau^2)                tau: how far the level moves in a cycle

se_t is known from the cycle's own data. omega and tau are random effects, learnt from the series itself: a
grid of both in units of the typical se, with half-Cauchy priors, weighted by how well each point foretold
the values so far. The score is the normal quantile of y_t in that mixture of predictions. A series that is
used to drifting so gets wide limits, a steady one narrow ones, a short one wide ones; none is set by hand.

A value may be called (`alarmed`): its surprise then teaches nothing, and the level begins anew with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]

RATIOS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)  # of omega and tau to the typical se
PRIOR_SCALE = 0.5  # of the half-Cauchy: as a rule cycles vary by less than their sampling error
_FAR = 8.0  # scores beyond are this


def _prior() -> Floats:
    """Log weights of the grid [G]: half-Cauchy mass between the midpoints of the ratios."""
    ratios = np.array(RATIOS)
    edges = np.concatenate([[0.0], (ratios[1:] + ratios[:-1]) / 2, [np.inf]])
    mass = np.diff(2 / np.pi * np.arctan(edges / PRIOR_SCALE))
    return np.asarray(np.log(np.outer(mass, mass)).ravel())


_PRIOR = _prior()
_OMEGA, _TAU = (np.array(RATIOS)[index] for index in np.divmod(np.arange(len(RATIOS) ** 2), len(RATIOS)))


@dataclass
class Level:
    """What is known of a series so far; `tell` takes the next value. The unit is the first value's se."""

    _mean: Floats = field(default_factory=lambda: np.zeros(len(_PRIOR)))
    _variance: Floats = field(default_factory=lambda: np.full(len(_PRIOR), np.inf))
    _weights: Floats = field(default_factory=_PRIOR.copy)  # logs, not normalised
    _unit: float = 0.0

    def score(self, value: float, se: float) -> float:
        """Standard normal while nothing new happens; nan for the first value of all."""
        if not np.isfinite(self._variance).all():
            return float("nan")
        z = (value - self._mean) / np.sqrt(self._predicted(se))
        weights = self._shares()
        # of the tail on the value's own side, so that far values keep their digits
        side = 1.0 if float(weights @ (value - self._mean)) > 0 else -1.0
        tails = special.log_ndtr(-side * z)
        highest = float(tails.max())
        log_tail = highest + float(np.log(max(weights @ np.exp(tails - highest), 1e-300)))
        return side * float(min(_FAR, -special.ndtri_exp(min(log_tail, 0.0))))

    def tell(self, value: float, se: float, *, alarmed: bool = False) -> None:
        """Learn from a value with its standard error. `alarmed`: begin anew with it."""
        self._unit = self._unit or se
        noise = se**2 + (_OMEGA * self._unit) ** 2
        if alarmed or not np.isfinite(self._variance).all():
            self._mean, self._variance = np.full(len(_PRIOR), value), noise
            return
        total = self._predicted(se)
        gap = value - self._mean
        self._weights = self._weights - 0.5 * (np.log(total) + gap**2 / total)
        gain = (total - noise) / total
        self._mean = self._mean + gain * gap
        self._variance = gain * noise

    def _shares(self) -> Floats:
        """The grid's weights, adding up to 1, [G]."""
        shares = np.exp(self._weights - self._weights.max())
        return np.asarray(shares / shares.sum())

    def _predicted(self, se: float) -> Floats:
        """Variance of the next value around the level, [G]."""
        return np.asarray(self._variance + (_TAU * self._unit) ** 2 + se**2 + (_OMEGA * self._unit) ** 2)

    @property
    def mean(self) -> float:
        """The level that is expected next."""
        return float(self._shares() @ self._mean)

    def spread(self, se: float) -> float:
        """Standard deviation of the next value, if its standard error is `se`."""
        weights = self._shares()
        mean = weights @ self._mean
        return float(np.sqrt(weights @ (self._predicted(se) + (self._mean - mean) ** 2)))


def scores(
    values: Sequence[float], errors: Sequence[float], alarm: Callable[[float], bool] = lambda score: False
) -> list[float]:
    """The score of each value from those before it; nan where the value is nan, and for the first.

    Args:
        alarm: told each score in order; whether it is called.
    """
    level, found = Level(), []
    for value, se in zip(values, errors, strict=True):
        if np.isnan(value):
            found.append(float("nan"))
            continue
        score = level.score(value, se)
        level.tell(value, se, alarmed=not np.isnan(score) and alarm(score))
        found.append(score)
    return found
