"""No user contributes more than a capped share of the batch's gradient.

A user's contribution is c_u = sum over their tokens of |coefficient| (importance weight times
|advantage|): the size of what they can do to the loss. Users above the cap are scaled down to a common
level L, such that afterwards each of them has exactly the share `cap` of the total:

    f_u = min(1, L / c_u),   L = cap * sum_u min(c_u, L)

Not here: who the users are, and detecting that they act together.
"""

from __future__ import annotations

from collections.abc import Mapping


def effective_cap(cap: float, contributions: Mapping[str, float]) -> float:
    """The cap in force: at least 2 / (contributing users), so that a small team is not flattened.

    Without this, five users could never all stay below a share of 0.1, and every one of them would be
    scaled down to the quietest.
    """
    users = sum(1 for value in contributions.values() if value > 0)
    return min(1.0, max(cap, 2.0 / users)) if users else 1.0


def user_factors(contributions: Mapping[str, float], cap: float) -> dict[str, float]:
    """Factor in (0, 1] for each user's coefficients. `contributions` are not negative.

    `cap` is a share of at least 1 / (contributing users), see `effective_cap`; 1 scales nobody.
    """
    largest_first = sorted((value for value in contributions.values() if value > 0), reverse=True)
    rest = sum(largest_first)
    level = float("inf")
    for capped, value in enumerate(largest_first):
        if capped * cap >= 1:
            break
        # the common level if exactly the `capped` largest users are scaled down to it
        level = cap * rest / (1 - capped * cap)
        if value <= level:
            break
        rest -= value
    return {user: min(1.0, level / value) if value > 0 else 1.0 for user, value in contributions.items()}
