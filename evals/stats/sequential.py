"""Several looks at one comparison, as attempts are added: O'Brien and Fleming's boundary.

Looking again after every batch of attempts until something is significant finds something in the end.
With K equally spaced looks planned beforehand, the score B(j/K) = Z_j sqrt(j/K) at look j moves like
Brownian motion under the null, and the boundary of O'Brien & Fleming (1979) is a level line over it:
reject at look k when B(k/K) >= C, that is Z_k >= C sqrt(K/k), with P(max_j B(j/K) >= C) = alpha. Early
looks ask for much, the last one for hardly more than a single look would (five looks, one-sided 2.5 %:
4.56, 3.23, 2.63, 2.28, 2.04 against 1.96).

`sequential_p` says the same as one p value: the probability that the score of an equal model ever comes
as high, at any of the planned looks, as it has come now. It is at most alpha exactly when the boundary
of level alpha is crossed, so that Holm and everything else works as with one look. Where part of the
spread does not shrink with attempts (tasks that one model likes better), successive looks are more alike
than assumed and the test errs less often than alpha, never more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(96)
_LOWEST = -7.0  # a score of unit variance at the last look does not come below


@dataclass(frozen=True)
class Look:
    """Which of the planned looks at a comparison this is; attempts are added from one to the next."""

    number: int = 1
    planned: int = 1


ONCE = Look()


def sequential_p(p: float, look: int, looks: int) -> float:
    """The p value over all planned looks of a one-sided p value found at one of them.

    Args:
        p: of the data so far, as if it were looked at once.
        look: which look it is, from 1.
        looks: how many are planned, equally spaced in attempts.

    Raises:
        ValueError: no such look.
    """
    _require(look, looks)
    if looks == 1 or p in (0.0, 1.0):
        return p
    return crossing(float(-scipy.special.ndtri(p)) * math.sqrt(look / looks), looks)


@lru_cache(maxsize=512)
def nominal(alpha: float, look: int, looks: int) -> float:
    """The one-sided level at which a look tests so that all looks together err with `alpha`."""
    _require(look, looks)
    if looks == 1:
        return alpha
    level = scipy.optimize.brentq(lambda c: crossing(c, looks) - alpha, 0.0, 8.0, xtol=1e-12)
    return float(scipy.special.ndtr(-level * math.sqrt(looks / look)))


def crossing(level: float, looks: int) -> float:
    """P(max_j B(j/K) >= level) for Brownian motion at K equally spaced times up to 1.

    By the recursion of Armitage, McPherson & Rowe (1969): the density of scores that have not crossed,
    carried from look to look by Gauss-Legendre quadrature (to 12 digits up to ten looks).
    """
    step = math.sqrt(1 / looks)
    if level <= _LOWEST:
        return 1.0
    half = (level - _LOWEST) / 2
    nodes, weights = _LOWEST + half * (_NODES + 1), half * _WEIGHTS
    total = float(scipy.special.ndtr(-level / step))
    density = np.exp(-((nodes / step) ** 2) / 2) / (step * math.sqrt(2 * math.pi))
    kernel = np.exp(-(((nodes[:, None] - nodes[None, :]) / step) ** 2) / 2) / (step * math.sqrt(2 * math.pi))
    for _ in range(looks - 1):
        total += float((weights * density * scipy.special.ndtr(-(level - nodes) / step)).sum())
        density = kernel @ (weights * density)
    return min(total, 1.0)


def _require(look: int, looks: int) -> None:
    if not 1 <= look <= looks:
        raise ValueError(f"look {look} of {looks}")
