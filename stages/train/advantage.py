"""Advantages of episodes: reward minus a baseline that knows nothing of the episode itself.

    A_e = r_e - b_e

Production gives one answer per request, so b_e is a running mean per stratum, read before the batch
and updated after it. In these means no user and no API key counts for more than a capped share
(`contributors.py`). Where an experience holds groups (several rollouts of one task), b_e is the mean
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

from stages.contributor_cap import Weigh, equally
from stages.linestate import Baseline

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

LINE = "*"  # the key of the whole line in a table of baselines


def ema_baselines(
    rewards: Floats,
    strata: Sequence[str],
    table: Mapping[str, Baseline],
    shrinkage: float,
    weigh: Weigh = equally,
) -> Floats:
    """b_e from the running means of earlier batches.

        b_s = (w_s v_s + k m) / (w_s + k)

    v_s and w_s are value and weight of the stratum, m is the line's mean, k the shrinkage in episodes:
    a cold stratum (w_s = 0) has the line's mean. On a line that has no mean yet, v_s and m are the
    means of the *other* episodes of this batch, each with its weight, and w_s is the sum of these, which
    keeps b_e independent of r_e.

    Shapes: rewards [E], strata of length E, result [E]. Unit: reward.
    """
    line = table.get(LINE)
    if line is None or line.weight <= 0:
        return _leave_one_out_baselines(rewards, strata, shrinkage, weigh)
    means = {}
    for stratum in set(strata):
        known = table.get(stratum, Baseline(0.0, 0.0))
        weight = known.weight + shrinkage
        total = known.weight * known.value + shrinkage * line.value
        means[stratum] = total / weight if weight > 0 else line.value
    return np.array([means[stratum] for stratum in strata], dtype=np.float64)


def _leave_one_out_baselines(
    rewards: Floats, strata: Sequence[str], shrinkage: float, weigh: Weigh
) -> Floats:
    count = len(rewards)
    if count < 2:
        return np.zeros(count)
    weights, sums = _others(rewards, np.arange(count), weigh)
    line = sums / weights
    result = line.copy()
    for rows in _by_stratum(strata).values():
        if len(rows) > 1:  # one alone has the line's, whatever the shrinkage
            weights, sums = _others(rewards, rows, weigh)
            result[rows] = (sums + shrinkage * line[rows]) / (weights + shrinkage)
    return result


def _others(rewards: Floats, rows: Indices, weigh: Weigh) -> tuple[Floats, Floats]:
    """For each of these episodes the weights of the others, and their weighted rewards, summed up."""
    weights = weigh(rows)
    weighted = weights * rewards[rows]
    return weights.sum() - weights, weighted.sum() - weighted


def _by_stratum(strata: Sequence[str]) -> dict[str, Indices]:
    found: defaultdict[str, list[int]] = defaultdict(list)
    for index, stratum in enumerate(strata):
        found[stratum].append(index)
    return {stratum: np.array(rows, dtype=np.int64) for stratum, rows in sorted(found.items())}


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
    weigh: Weigh = equally,
) -> tuple[Floats, Floats]:
    """(A, b), both [E]: the group's baseline where there is a group, else the stratum's.

    With `scale` every A is divided by the batch's root mean square of A (off by default: it makes the
    step's size independent of how much there is to learn).
    """
    by_group = group_baselines(rewards, groups)
    of_stratum = ema_baselines(rewards, strata, table, shrinkage, weigh)
    baseline = np.where(np.isnan(by_group), of_stratum, by_group)
    result = rewards - baseline
    if scale:
        size = float(np.sqrt(np.mean(result**2)))
        result = result / size if size > 0 else result
    return result, baseline


def updated_baselines(
    rewards: Floats,
    strata: Sequence[str],
    table: Mapping[str, Baseline],
    half_life: float,
    weigh: Weigh = equally,
) -> dict[str, Baseline]:
    """The table after this batch: old evidence decays by the number of new episodes of its stratum.

        d = 2^(-n / half_life);  w' = d w + n;  v' = (d w v + sum f r) / w'

    for each stratum seen and for the whole line ("*"); strata not seen stay as they are. f are the episodes'
    weights, and n is their sum.
    """
    result = dict(table)
    whole = {LINE: np.arange(len(rewards))} if len(rewards) else {}
    for stratum, rows in {**whole, **_by_stratum(strata)}.items():
        weights = weigh(rows)
        old, new = table.get(stratum, Baseline(0.0, 0.0)), float(weights.sum())
        kept = old.weight * 0.5 ** (new / half_life)
        total = kept * old.value + float((weights * rewards[rows]).sum())
        result[stratum] = Baseline(total / (kept + new), kept + new)
    return result


def is_degenerate(rewards: Floats, advantage: Floats) -> str:
    """Why this batch teaches nothing, or "": no reward differs, or all advantages are equal (e.g. zero)."""
    if np.ptp(rewards) <= 1e-12 * max(1.0, float(np.abs(rewards).max())):
        return f"all {len(rewards)} rewards are {rewards[0]:g}"
    if np.ptp(advantage) <= 1e-12 * max(1.0, float(np.abs(advantage).max())):
        return f"all {len(advantage)} advantages are {advantage[0]:g}"
    return ""
