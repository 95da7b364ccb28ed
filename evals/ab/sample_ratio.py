"""Whether the arms have as many users as they were assigned to have.

When they do not, users were lost or counted differently in one arm, and no comparison of the rest can
be believed (Fabijan et al. 2019, "Diagnosing Sample Ratio Mismatch in Online Controlled Experiments").
An exact binomial test on users, as a canary of one per cent has fewer at first than Pearson's chi-square
takes; below p = 0.001 the test says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import scipy

LEVEL = 0.001


@dataclass(frozen=True)
class SampleRatio:
    """Users by arm, those expected, and the p value; `wrong` when nothing may be concluded."""

    observed: Mapping[str, int]
    expected: Mapping[str, float]
    p: float

    @property
    def wrong(self) -> bool:
        """Whether the arms are not what was assigned."""
        return self.p < LEVEL


def sample_ratio(observed: Mapping[str, int], shares: Mapping[str, float]) -> SampleRatio:
    """Compare users of two arms with the assigned shares (sum 1, each above 0).

    Raises ValueError when arms and shares have different names, or are not two.
    """
    if observed.keys() != shares.keys() or len(observed) != 2:
        raise ValueError(f"arms {sorted(observed)} with shares of {sorted(shares)}")
    total = sum(observed.values())
    expected = {arm: total * share for arm, share in shares.items()}
    if not total:
        return SampleRatio(dict(observed), expected, 1.0)
    arm = next(iter(observed))
    found = scipy.stats.binomtest(observed[arm], total, shares[arm])
    return SampleRatio(dict(observed), expected, float(found.pvalue))
