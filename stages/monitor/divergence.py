"""Does the training reward rise while what users tell does not? A paired trend test over the last cycles.

Per cycle t there is the mean training reward R_t and the mean U_t of what users told that was not trained on
(of all they told, where the newest `LEAST` cycles do not all have that), each with its standard error. In
units of a usual standard error, r_t = R_t / se_R and u_t = U_t / se_U, with least-squares slopes over the
last `SPAN` cycles. It is a divergence when

    slope(r) is surely above 0,    slope(r - u) is surely above 0,    slope(u) is not likely above 0

"surely": one-sided Student's t at the rate given, of the standard errors, widened by how far the points lie
off their line (at least by 1; `PRIOR` cycles' worth of 1). "likely": the same at `LIKELY`. Not for: reward or
users alone (`charts.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from stages.monitor.history import Window

Measured = tuple[float, float]  # mean, standard error

SPAN = 6
LEAST = 4
PRIOR = 6.0
LIKELY = 0.1


@dataclass(frozen=True)
class Trend:
    """A least-squares slope per cycle, its standard error, and its one-sided p against slope <= 0."""

    slope: float
    error: float
    p: float


@dataclass(frozen=True)
class Divergence:
    """The three trends, in usual standard errors a cycle, and the p that decides (the larger of two).

    `newest`: mean reward and mean of what users told in the newest of its `cycles`.
    """

    reward: Trend
    user: Trend
    gap: Trend
    p: float
    cycles: int
    newest: tuple[float, float]


def trend(values: Sequence[float], error: float) -> Trend:
    """The trend of equally spaced values [n], n >= 3, each with this standard error."""
    y = np.asarray(values, dtype=np.float64)
    x = np.arange(len(y)) - (len(y) - 1) / 2
    squares = float((x**2).sum())
    slope = float((x * y).sum()) / squares
    off = float(((y - y.mean() - slope * x) ** 2).sum()) / error**2
    free = len(y) - 2
    widened = max(1.0, (PRIOR + off) / (PRIOR + free))
    se = error * float(np.sqrt(widened / squares))
    return Trend(slope, se, float(scipy.special.stdtr(PRIOR + free, -slope / se)))


def divergence(windows: Sequence[Window]) -> Divergence | None:
    """The test on the newest windows with one reward spec; None when there are too few of them."""
    pairs = _newest(windows, lambda window: window.user)
    if len(pairs) < LEAST:
        pairs = _newest(windows, lambda window: window.told)
    if len(pairs) < LEAST:
        return None
    r, u = (_in_errors(series) for series in zip(*pairs, strict=True))
    if r is None or u is None:
        return None
    gap = trend([a - b for a, b in zip(r, u, strict=True)], float(np.sqrt(2.0)))
    reward, user = trend(r, 1.0), trend(u, 1.0)
    return Divergence(reward, user, gap, max(reward.p, gap.p), len(r), (pairs[-1][0][0], pairs[-1][1][0]))


def _newest(
    windows: Sequence[Window], told: Callable[[Window], Measured | None]
) -> list[tuple[Measured, Measured]]:
    """(reward, what users told) of the newest windows with one spec that have both, oldest first."""
    found: list[tuple[Measured, Measured]] = []
    for window in reversed(windows[-SPAN:]):
        users = told(window)
        if window.spec != windows[-1].spec or window.reward is None or users is None:
            break
        found.append((window.reward, users))
    return found[::-1]


def diverges(found: Divergence, rate: float) -> bool:
    """Whether it is one, at this rate of false alarms."""
    return found.user.p > LIKELY and found.p <= rate


def _in_errors(series: Sequence[Measured]) -> list[float] | None:
    usual = float(np.sqrt(np.mean([error**2 for _, error in series])))
    return [value / usual for value, _ in series] if usual > 0 else None
