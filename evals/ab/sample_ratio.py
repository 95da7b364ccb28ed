"""Whether the arms have as many users as they were assigned to have.

When they do not, users were lost or counted differently in one arm, and no comparison of the rest can
be believed (Fabijan et al. 2019, "Diagnosing Sample Ratio Mismatch in Online Controlled Experiments").
Pearson's chi-square on users; below p = 0.001 the test says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scipy import stats

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
    """Compare users by arm with the assigned shares (sum 1, each above 0).

    Raises ValueError when arms and shares have different names.
    """
    if observed.keys() != shares.keys():
        raise ValueError(f"arms {sorted(observed)} with shares of {sorted(shares)}")
    total = sum(observed.values())
    expected = {arm: total * share for arm, share in shares.items()}
    if not total:
        return SampleRatio(dict(observed), expected, 1.0)
    found = stats.chisquare(list(observed.values()), [expected[arm] for arm in observed])
    return SampleRatio(dict(observed), expected, float(found.pvalue))
