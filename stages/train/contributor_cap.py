"""No user and no API key contributes more than a capped share of the batch's gradient.

A contributor's contribution is c_u = sum over their tokens of |coefficient| (importance weight times
|advantage|): the size of what they can do to the loss. Those above the cap are scaled down to a common
level L, such that afterwards each of them has exactly the share `cap` of the total:

    f_u = min(1, L / c_u),   L = cap * sum_u min(c_u, L)

Clients choose users' names, so one client could be many users; keys are given out. Users are capped
first and keys then, on what is left: the keys' cap holds exactly, a user's share is that of the batch
before keys were scaled down. A single key, or one of two, is never scaled down: all there is to learn
from came through it.

Not here: who the contributors are, and detecting that they act together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence


def effective_cap(cap: float, contributions: Mapping[str, float]) -> float:
    """The cap in force: at least 2 / (contributors), so that a small team is not flattened.

    Without this, five users could never all stay below a share of 0.1, and every one of them would be
    scaled down to the quietest.
    """
    contributors = sum(1 for value in contributions.values() if value > 0)
    return min(1.0, max(cap, 2.0 / contributors)) if contributors else 1.0


def cap_factors(contributions: Mapping[str, float], cap: float) -> dict[str, float]:
    """Factor in (0, 1] for each contributor's coefficients. `contributions` are not negative.

    `cap` is a share of at least 1 / (contributors), see `effective_cap`; 1 scales nobody.
    """
    largest_first = sorted((value for value in contributions.values() if value > 0), reverse=True)
    rest = sum(largest_first)
    level = float("inf")
    for capped, value in enumerate(largest_first):
        if capped * cap >= 1:
            break
        # the common level if exactly the `capped` largest are scaled down to it
        level = cap * rest / (1 - capped * cap)
        if value <= level:
            break
        rest -= value
    return {name: min(1.0, level / value) if value > 0 else 1.0 for name, value in contributions.items()}


def capped_shares(
    names: Sequence[str], sizes: Sequence[float], cap: float
) -> tuple[float, dict[str, float], list[float]]:
    """The cap over a batch: episode e is `names[e]`'s and contributes `sizes[e]`.

    Returns:
        The cap in force, the factors below 1 by name, and the factor of each episode.
    """
    contributions: defaultdict[str, float] = defaultdict(float)
    for name, size in zip(names, sizes, strict=True):
        contributions[name] += size
    in_force = effective_cap(cap, contributions)
    factors = cap_factors(contributions, in_force)
    reached = {name: value for name, value in sorted(factors.items()) if value < 1}
    return in_force, reached, [factors[name] for name in names]
