"""From rewards to the coefficient of every token.

    a_t = f_e (A_e - c K_et')       kl_credit "episode":  K_et' = K_et minus the other episodes' mean
    a_t = f_e (A_e - c k1_t)        kl_credit "token": the loss has the token's weight already

A_e: `advantage.py`; K_et and k1: `kl.py`; f_e = f_user f_key: `stages/contributor_cap.py`, from contributions
sum_t w_t |a_t|.
w_t is the correction's weight of the parent against the log (`correction.py`), c the KL coefficient.
Every sampled token of every generation of an episode's chain has its episode's A.

The terms are kept apart, so that each can be shown for one episode.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from stages.contributor_cap import Capped, cap_contributions
from stages.linestate import Baseline
from stages.train.advantage import advantages
from stages.train.batch import Batch
from stages.train.config import TrainConfig
from stages.train.contributors import weigh_by
from stages.train.correction import correction_of
from stages.train.kl import episode_penalty, k1

Array = NDArray[np.float32]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Objective:
    """The terms of the batch's loss. E episodes, M tokens; rewards and advantages in reward units.

    Attributes:
        baseline, advantage: [E].
        kl: [M] k1 of parent and anchor, nats.
        penalty: [M] price of KL in reward, already times c.
        coefficient: [M] float32, what multiplies w_t log pi in the loss.
        capped: the factors f_e, and whose caps made them.
    """

    baseline: Floats
    advantage: Floats
    kl: Floats
    penalty: Floats
    coefficient: Array
    capped: Capped


def build_objective(
    batch: Batch,
    parent: Array,
    anchor: Array,
    table: Mapping[str, Baseline],
    config: TrainConfig,
    shared_keys: Collection[str] = (),
) -> Objective:
    """`parent` and `anchor` are the logprobs [M] of the batch's tokens, nats; `table` the baselines.

    `shared_keys` are ids of API keys that are not capped as a whole.
    """
    strata = [episode.stratum for episode in batch.episodes]
    groups = [episode.group for episode in batch.episodes]
    advantage, baseline = advantages(
        batch.rewards,
        strata,
        groups,
        table,
        shrinkage=config.baseline_shrinkage,
        scale=config.scale_advantages,
        weigh=weigh_by(batch.episodes, config, shared_keys),
    )
    kl = _kl(parent, anchor)
    correction, sequence = correction_of(config), torch.from_numpy(batch.row_of)
    log_ratio = torch.from_numpy(parent) - torch.from_numpy(batch.logged)
    bounded = _floats(correction.bounded(log_ratio, sequence))
    penalty = _penalty(batch, kl, bounded, correction.of_sequence, config)
    raw = advantage[batch.episode_of] - penalty
    weights = _floats(correction.weights(log_ratio, torch.from_numpy(raw), sequence).value)
    sizes = np.bincount(batch.episode_of, weights=weights * np.abs(raw), minlength=len(batch.episodes))
    capped = cap_contributions(
        [one.user for one in batch.episodes],
        [one.key_id for one in batch.episodes],
        sizes.astype(np.float64),
        user_cap=config.user_cap,
        key_cap=config.key_cap,
        shared=shared_keys,
        least=config.min_kept,
    )
    return Objective(
        baseline=baseline,
        advantage=advantage,
        kl=kl,
        penalty=penalty,
        coefficient=(capped.factor[batch.episode_of] * raw).astype(np.float32),
        capped=capped,
    )


def _floats(values: torch.Tensor) -> Floats:
    return np.asarray(values.numpy(), dtype=np.float64)


def _kl(parent: Array, anchor: Array) -> Floats:
    """[M] k1."""
    values = _floats(k1(torch.from_numpy(parent), torch.from_numpy(anchor)))
    # a token that parent or anchor rules out has no finite ratio; it is rare and says nothing
    return np.where(np.isfinite(values), values, 0.0)


def _penalty(batch: Batch, kl: Floats, weights: Floats, of_sequence: bool, config: TrainConfig) -> Floats:
    if config.kl_credit == "token":
        return np.asarray(config.kl_coefficient * kl)
    weighed_with = batch.row_of if of_sequence else np.arange(len(kl))
    charged = episode_penalty(kl, weights, batch.episode_of, weighed_with, len(batch.episodes))
    return np.asarray(config.kl_coefficient * charged)
