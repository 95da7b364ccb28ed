"""Do stored attempts and attempts made again agree? Only then may stored ones stand in for new ones.

Not here: which are asked, by equal digests (`stages/eval/known.py`, `evals/trials/conditions.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from evals.cases import Attempt, SuiteSpec, pair
from evals.stats.inference import Inference
from evals.stats.paired import paired_sums

DISAGREE_P = 0.001  # two-sided, per gated metric
LEAST = 6  # cases that tell: where all were solved before and none is now, p is 2 * 2^-12; five give 0.002


def least(spec: SuiteSpec, share: float) -> int:
    """So many cases have to be made again, or nothing could show that stored attempts are another model's."""
    if not share:
        return 0
    return LEAST if spec.sampled else 2


def disagreement(again: Sequence[Attempt], stored: Sequence[Attempt], spec: SuiteSpec) -> float:
    """Smallest two-sided p value, over the gated metrics, of both being one model's; 1 without data.

    Each case is its own cluster here: what one model does a second time differs by chance alone, in every
    case for itself, whatever repository or person it is of.
    """
    limits = {metric.name: metric.limits for metric in spec.metrics if metric.gated}
    names = list(limits)
    paired = pair(again, stored, names)
    smallest = 1.0
    for name in names:
        arms = paired.candidate[name].columns, paired.baseline[name].columns
        if any(not arm[1].sum() > 0 for arm in arms):
            continue
        test = Inference(paired_sums(*arms, paired.cases), limits[name])
        smallest = min(smallest, 2 * min(test.p_greater(0.0), test.p_less(0.0)))
    return smallest
