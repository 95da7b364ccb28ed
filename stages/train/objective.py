"""From rewards to the coefficient of every token.

    a_t = f_user (A_e - c K_e')        kl_credit "episode":  K_e' = K_e minus the other episodes' mean
    a_t = f_user (A_e - c w_t k1_t)    kl_credit "token"

A_e: `advantage.py`; K and k1: `kl.py`; f_user: `user_cap.py`, from contributions sum_t w_t |a_t|.
w_t is the truncated weight of the parent against the log, c the KL coefficient. Every sampled token
of every generation of an episode's chain has its episode's A.

The terms are kept apart, so that each can be shown for one episode.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from stages.linestate import Baseline
from stages.train.advantage import advantages
from stages.train.batch import Batch
from stages.train.config import TrainConfig
from stages.train.importance import truncated_weights
from stages.train.kl import episode_penalty, k1
from stages.train.user_cap import effective_cap, user_factors

Array = NDArray[np.float32]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Objective:
    """The terms of the batch's loss. E episodes, M tokens; rewards and advantages in reward units.

    Attributes:
        baseline, advantage: [E].
        penalty: [M] price of KL in reward, already times c; zeros without an anchor.
        user_factor: [E] in (0, 1].
        coefficient: [M] float32, what multiplies w_t log pi in the loss.
        cap: the user cap in force, a share.
        capped: user -> factor, only those below 1.
    """

    baseline: Floats
    advantage: Floats
    penalty: Floats
    user_factor: Floats
    coefficient: Array
    cap: float
    capped: dict[str, float]


def build_objective(
    batch: Batch, parent: Array, anchor: Array | None, table: Mapping[str, Baseline], config: TrainConfig
) -> Objective:
    """`parent` and `anchor` are the logprobs [M] of the batch's tokens, nats; `table` the baselines."""
    strata = [episode.stratum for episode in batch.episodes]
    groups = [episode.group for episode in batch.episodes]
    advantage, baseline = advantages(
        batch.rewards,
        strata,
        groups,
        table,
        shrinkage=config.baseline_shrinkage,
        scale=config.scale_advantages,
    )
    weights = _parent_weights(batch, parent, config.importance_cap)
    penalty = _penalty(batch, parent, anchor, weights, config)
    raw = advantage[batch.episode_of] - penalty
    users = [episode.user for episode in batch.episodes]
    contributions: defaultdict[str, float] = defaultdict(float)
    sizes = np.bincount(batch.episode_of, weights=weights * np.abs(raw), minlength=len(batch.episodes))
    for user, size in zip(users, sizes, strict=True):
        contributions[user] += float(size)
    cap = effective_cap(config.user_cap, contributions)
    factors = user_factors(contributions, cap)
    factor = np.array([factors[user] for user in users])
    return Objective(
        baseline=baseline,
        advantage=advantage,
        penalty=penalty,
        user_factor=factor,
        coefficient=(factor[batch.episode_of] * raw).astype(np.float32),
        cap=cap,
        capped={user: value for user, value in sorted(factors.items()) if value < 1},
    )


def _parent_weights(batch: Batch, parent: Array, cap: float) -> Floats:
    weights = truncated_weights(torch.from_numpy(parent), torch.from_numpy(batch.logged), cap)
    return np.asarray(weights.numpy(), dtype=np.float64)


def _penalty(
    batch: Batch, parent: Array, anchor: Array | None, weights: Floats, config: TrainConfig
) -> Floats:
    if anchor is None or config.kl_coefficient == 0:
        return np.zeros(batch.tokens)
    values = k1(torch.from_numpy(parent), torch.from_numpy(anchor)).numpy().astype(np.float64)
    # a token that parent or anchor rules out has no finite ratio; it is rare and says nothing
    weighted = np.where(np.isfinite(values), weights * values, 0.0)
    if config.kl_credit == "token":
        return np.asarray(config.kl_coefficient * weighted)
    per_episode = episode_penalty(weighted, batch.episode_of, len(batch.episodes))
    return np.asarray(config.kl_coefficient * per_episode[batch.episode_of])
