"""A one-sided confidence sequence: a bound that holds at all looks together, however many there are.

A difference with information I (1 over its variance) and z = value / standard error behaves, over the
looks, as a Brownian motion at time I. Robbins' mixture over effects on one side,

    e(z, r) = 2 / sqrt(1 + r) * exp(z^2 r / (2 (1 + r))) * Phi(z sqrt(r / (1 + r))),     r = rho^2 I

is then a nonnegative martingale under no effect, and exceeds 1 / alpha at any time with probability at
most alpha (Ville). So looking costs nothing, and stopping when one likes neither. The bound inverts it
in the effect. rho is chosen so that the bound is tightest at the information that is planned for; it
holds whatever comes.

Asymptotic: it needs enough users for a normal approximation at the first look (`MIN_USERS`).
Sources: Robbins 1970, "Statistical Methods Related to the Law of the Iterated Logarithm"; Waudby-Smith
et al. 2024, arXiv 2103.06476 (asymptotic confidence sequences; the closed form there is an upper bound
of the one inverted here). Not here: estimates and their variance (`arms.py`).
"""

from __future__ import annotations

import math
from functools import cache

import scipy

MIN_USERS = 50  # in each arm, before anything is said


def log_e_value(z: float, r: float) -> float:
    """Logarithm of e(z, r), the evidence against "no effect or one below 0"; r = rho^2 I above 0."""
    share = r / (1 + r)
    tail = float(scipy.special.log_ndtr(z * math.sqrt(share)))
    return math.log(2) - 0.5 * math.log1p(r) + 0.5 * z * z * share + tail


@cache
def critical_z(r: float, alpha: float) -> float:
    """The z at which the evidence reaches 1 / alpha."""
    wanted = -math.log(alpha)
    high = 2.0
    while log_e_value(high, r) < wanted:
        high *= 2
    found: float = scipy.optimize.brentq(lambda z: log_e_value(z, r) - wanted, 0.0, high, xtol=1e-9)
    return found


@cache
def best_r(alpha: float) -> float:
    """The r at which `critical_z` is smallest: where the bound is tightest."""
    found = scipy.optimize.minimize_scalar(
        lambda log_r: critical_z(round(math.exp(log_r), 12), alpha), bounds=(-3.0, 8.0), method="bounded"
    )
    return math.exp(float(found.x))


def boundary(information: float, planned: float, alpha: float) -> float:
    """The z at which the sequence is crossed with so much information, above 0.

    `planned` is the information the sequence is tightest at, above 0.
    """
    return critical_z(best_r(alpha) * information / planned, alpha)
