"""A series as scores: how surprising is each value, given all before it?

The model is the local level of a policy that is trained between the cycles (Harvey 1989, section 2.2), with a
direction of travel that wears off (the damped trend of Gardner & McKenzie 1985):

    y_t  = mu_t + e_t,                 e_t ~ N(0, se_t^2 + omega^2)   omega: noise of cycles beyond sampling
    mu_t = mu_{t-1} + b_{t-1} + d_t,   d_t ~ N(0, tau^2)              tau: how far the level strays in a cycle
    b_t  = phi b_{t-1},                b_0 ~ N(0, beta^2)             beta: how fast it travelled at first

se_t is known from the cycle's own data. omega, tau and beta are random effects, learnt from the series
itself: a grid of them in units of the typical se, with half-Cauchy priors, weighted by how well each point
foretold the values so far. The score is the normal quantile of y_t in that mixture of predictions. A series
that is used to drifting so gets wide limits, a steady one narrow ones, a short one wide ones, one that gets
better step by step narrow ones around where it is going; none is set by hand.

A value may be called (`alarmed`): its surprise then teaches nothing, and the level begins anew with it, in a
direction that is not known. What was known before is put aside: a later value that it foretells better than
what came after it is the end of an excursion, and that the level came back teaches nothing either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import scipy
from numpy.typing import NDArray

Floats = NDArray[np.float64]

RATIOS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)  # of omega and tau to the typical se
DIRECTIONS = (0.0, 1.0, 2.0, 4.0)  # of beta
PRIOR_SCALE = 0.5  # of the half-Cauchy of each: as a rule cycles vary by less than their sampling error
DAMPING = 0.9  # phi: half of a direction is gone in six and a half cycles
DOUBTED = 1  # values that may wait to teach how much the series moves
_FAR = 8.0  # scores beyond are this


def _mass(ratios: Sequence[float]) -> Floats:
    """Log prior weights [n] of ratios [n]: half-Cauchy mass between their midpoints."""
    at = np.array(ratios)
    edges = np.concatenate([[0.0], (at[1:] + at[:-1]) / 2, [np.inf]])
    return np.asarray(np.log(np.diff(2 / np.pi * np.arctan(edges / PRIOR_SCALE))))


def _grid(*axes: Sequence[float] | Floats) -> tuple[Floats, ...]:
    """Every point of the axes' grid: an array [G] for each axis."""
    return tuple(axis.ravel() for axis in np.meshgrid(*axes, indexing="ij"))


_OMEGA, _TAU, _BETA = _grid(RATIOS, RATIOS, DIRECTIONS)
_PRIOR: Floats = np.sum(_grid(_mass(RATIOS), _mass(RATIOS), _mass(DIRECTIONS)), axis=0)


@dataclass
class Level:
    """What is known of a series so far; `tell` takes the next value. `unit`: the typical se."""

    unit: float

    _mean: Floats = field(default_factory=lambda: np.zeros(len(_PRIOR)))  # of the next level, [G]
    _direction: Floats = field(default_factory=lambda: np.zeros(len(_PRIOR)))  # of the next step, [G]
    _variance: Floats = field(default_factory=lambda: np.full(len(_PRIOR), np.inf))  # of both, [G] each
    _together: Floats = field(default_factory=lambda: np.zeros(len(_PRIOR)))
    _of_direction: Floats = field(default_factory=lambda: np.zeros(len(_PRIOR)))
    _weights: Floats = field(default_factory=_PRIOR.copy)  # logs, not normalised
    _doubted: list[Floats] = field(default_factory=list)  # what they are not told yet
    _before: Level | None = None  # as it would be without the values since the first alarm

    def score(self, value: float, se: float) -> float:
        """Standard normal while nothing new happens; nan for the first value of all."""
        if not np.isfinite(self._variance).all():
            return float("nan")
        z = (value - self._mean) / np.sqrt(self._variance + self._noise(se))
        weights = self._shares()
        # of the tail on the value's own side, so that far values keep their digits
        side = 1.0 if float(weights @ (value - self._mean)) > 0 else -1.0
        tails = scipy.special.log_ndtr(-side * z)
        highest = float(tails.max())
        log_tail = highest + float(np.log(max(weights @ np.exp(tails - highest), 1e-300)))
        return side * float(min(_FAR, -scipy.special.ndtri_exp(min(log_tail, 0.0))))

    def tell(self, value: float, se: float, *, alarmed: bool = False, doubted: bool = False) -> None:
        """Learn from a value with its standard error.

        `alarmed`: begin anew with it. `doubted`: it may be the beginning of what will be called, so how much
        the series is used to moving is learnt from it when the doubt has gone, or `DOUBTED` values later.
        """
        self._put_aside_or_back(value, se, alarmed)
        noise = self._noise(se)
        if alarmed or not np.isfinite(self._variance).all():
            self._mean, self._direction = np.full(len(_PRIOR), value), np.zeros(len(_PRIOR))
            self._variance, self._together = noise, np.zeros(len(_PRIOR))
            self._of_direction = (_BETA * self.unit) ** 2
            self._doubted = []
        else:
            total = self._variance + noise
            gap = value - self._mean
            self._doubted.append(-0.5 * (np.log(total) + gap**2 / total))
            while len(self._doubted) > (DOUBTED if doubted else 0):
                self._weights = self._weights + self._doubted.pop(0)
            gain, turn = self._variance / total, self._together / total
            self._mean, self._direction = self._mean + gain * gap, self._direction + turn * gap
            self._of_direction = self._of_direction - turn * self._together
            self._variance, self._together = gain * noise, self._together - gain * self._together
        self._step()

    def _put_aside_or_back(self, value: float, se: float, alarmed: bool) -> None:
        """Keep what was known before an alarm; go back to it where it foretold a value better."""
        if alarmed and self._before is None and np.isfinite(self._variance).all():
            self._before = replace(self, _doubted=[])
            self._before._step()
        elif self._before is not None:
            if not alarmed and self._before._foretold(value, se) > self._foretold(value, se):
                vars(self).update(vars(self._before))
            else:
                self._before._step()

    def _foretold(self, value: float, se: float) -> float:
        """Log density of a value, before it is told."""
        total = self._variance + self._noise(se)
        logs = -0.5 * (np.log(total) + (value - self._mean) ** 2 / total)
        return float(scipy.special.logsumexp(self._weights + logs) - scipy.special.logsumexp(self._weights))

    def _step(self) -> None:
        """From this cycle to what the next is expected to be."""
        self._mean = self._mean + self._direction
        moved = self._of_direction + (_TAU * self.unit) ** 2
        self._variance = self._variance + 2 * self._together + moved
        self._together = DAMPING * (self._together + self._of_direction)
        self._direction, self._of_direction = DAMPING * self._direction, DAMPING**2 * self._of_direction

    def _shares(self) -> Floats:
        """The grid's weights, adding up to 1, [G]."""
        shares = np.exp(self._weights - self._weights.max())
        return np.asarray(shares / shares.sum())

    def _noise(self, se: float) -> Floats:
        """Variance of a value around its level, [G]."""
        return np.asarray(se**2 + (_OMEGA * self.unit) ** 2)

    @property
    def mean(self) -> float:
        """The level that is expected next."""
        return float(self._shares() @ self._mean)

    def spread(self, se: float) -> float:
        """Standard deviation of the next value, if its standard error is `se`."""
        weights = self._shares()
        mean = weights @ self._mean
        return float(np.sqrt(weights @ (self._variance + self._noise(se) + (self._mean - mean) ** 2)))
