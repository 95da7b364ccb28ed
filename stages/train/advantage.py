"""Advantages of episodes: reward minus a baseline that knows nothing of the episode itself.

    A_e = r_e - b_e

Production gives one answer per request, so b_e is a running mean per stratum, read before the batch
and updated after it. Where an experience holds groups (several rollouts of one task), b_e is the mean
of the group's other members. There is no division by a standard deviation inside groups.

Sources: REINFORCE with a baseline (Williams 1992, section 4); leave-one-out baseline (Kool et al.
2019, "Buy 4 REINFORCE samples", eq. 7); no standard deviation: Dr. GRPO (Liu et al. 2025, section 3.2).
Not here: KL in the reward (`kl.py`), caps per user and key (`stages/contributor_cap.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from stages.linestate import Baseline

Floats = NDArray[np.float64]

LINE = "*"  # the key of the whole line in a table of baselines


def ema_baselines(
    rewards: Floats, strata: Sequence[str], table: Mapping[str, Baseline], shrinkage: float
) -> Floats:
    """b_e from the running means of earlier batches.

        b_s = (w_s v_s + k m) / (w_s + k)

    v_s and w_s are value and weight of the stratum, m is the line's mean, k the shrinkage in episodes:
    a cold stratum (w_s = 0) has the line's mean. On a line that has no mean yet, v_s and m are the
    means of the *other* episodes of this batch and w_s is their number, which keeps b_e independent
    of r_e.

    Shapes: rewards [E], strata of length E, result [E]. Unit: reward.
    """
    line = table.get(LINE)
    if line is None or line.weight <= 0:
        return _leave_one_out_baselines(rewards, strata, shrinkage)
    means = {}
    for stratum in set(strata):
        known = table.get(stratum, Baseline(0.0, 0.0))
        weight = known.weight + shrinkage
        total = known.weight * known.value + shrinkage * line.value
        means[stratum] = total / weight if weight > 0 else line.value
    return np.array([means[stratum] for stratum in strata], dtype=np.float64)


def _leave_one_out_baselines(rewards: Floats, strata: Sequence[str], shrinkage: float) -> Floats:
    count = len(rewards)
    if count < 2:
        return np.zeros(count)
    line = (rewards.sum() - rewards) / (count - 1)
    totals: defaultdict[str, float] = defaultdict(float)
    counts: defaultdict[str, int] = defaultdict(int)
    for stratum, reward in zip(strata, rewards, strict=True):
        totals[stratum] += float(reward)
        counts[stratum] += 1
    others = np.array([counts[stratum] - 1 for stratum in strata], dtype=np.float64)
    sums = np.array([totals[stratum] for stratum in strata]) - rewards
    weight = others + shrinkage
    safe = np.where(weight > 0, weight, 1.0)
    return np.where(weight > 0, (sums + shrinkage * line) / safe, line)


def group_baselines(rewards: Floats, groups: Sequence[str]) -> Floats:
    """Mean reward of the group's other members; NaN for "" and for a group of one.

    Shapes: rewards [E], groups of length E, result [E].
    """
    members: defaultdict[str, list[int]] = defaultdict(list)
    for index, group in enumerate(groups):
        if group:
            members[group].append(index)
    result = np.full(len(rewards), np.nan)
    for indices in members.values():
        if len(indices) > 1:
            total = rewards[indices].sum()
            result[indices] = (total - rewards[indices]) / (len(indices) - 1)
    return result


def advantages(
    rewards: Floats,
    strata: Sequence[str],
    groups: Sequence[str],
    table: Mapping[str, Baseline],
    *,
    shrinkage: float,
    scale: bool,
) -> tuple[Floats, Floats]:
    """(A, b), both [E]: the group's baseline where there is a group, else the stratum's.

    With `scale` every A is divided by the batch's root mean square of A (off by default: it makes the
    step's size independent of how much there is to learn).
    """
    by_group = group_baselines(rewards, groups)
    baseline = np.where(np.isnan(by_group), ema_baselines(rewards, strata, table, shrinkage), by_group)
    result = rewards - baseline
    if scale:
        size = float(np.sqrt(np.mean(result**2)))
        result = result / size if size > 0 else result
    return result, baseline


def updated_baselines(
    rewards: Floats, strata: Sequence[str], table: Mapping[str, Baseline], half_life: float
) -> dict[str, Baseline]:
    """The table after this batch: old evidence decays by the number of new episodes of its stratum.

        d = 2^(-n / half_life);  w' = d w + n;  v' = (d w v + sum r) / w'

    for each stratum seen and for the whole line ("*"); strata not seen stay as they are.
    """
    result = dict(table)
    by_stratum: defaultdict[str, list[float]] = defaultdict(list)
    for stratum, reward in zip(strata, rewards, strict=True):
        by_stratum[stratum].append(float(reward))
        by_stratum[LINE].append(float(reward))
    for stratum, new in sorted(by_stratum.items()):
        old = table.get(stratum, Baseline(0.0, 0.0))
        kept = old.weight * 0.5 ** (len(new) / half_life)
        weight = kept + len(new)
        result[stratum] = Baseline((kept * old.value + sum(new)) / weight, weight)
    return result


def is_degenerate(rewards: Floats, advantage: Floats) -> str:
    """Why this batch teaches nothing, or "": no reward differs, or all advantages are equal (e.g. zero)."""
    if np.ptp(rewards) <= 1e-12 * max(1.0, float(np.abs(rewards).max())):
        return f"all {len(rewards)} rewards are {rewards[0]:g}"
    if np.ptp(advantage) <= 1e-12 * max(1.0, float(np.abs(advantage).max())):
        return f"all {len(advantage)} advantages are {advantage[0]:g}"
    return ""
