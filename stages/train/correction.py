"""The off-policy correction: one of four, chosen by `train.correction`, never two on top of one another.

Tokens were sampled by the policy whose probabilities the engine *logged*. The ratio to those,
r = pi_now / pi_logged, accounts both for the steps and checkpoints between sampling and now and for
numerical differences between engine and trainer; so one correction is enough, and a second would
count the same difference twice. Each gives a token its weight w in the gradient

    - sg(w_t) a_t grad log pi_now(y_t)

and each is a file with its formula: `truncated.py`, `ppo_clip.py`, `sequence_ratio.py`,
`plausibility_mask.py`. Not here: a_t (`objective.py`), the sum over tokens (`loss.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from stages.train.config import TrainConfig
from stages.train.plausibility_mask import plausible_ratio
from stages.train.ppo_clip import ppo_clipped, ppo_weights
from stages.train.sequence_ratio import sequence_ratio
from stages.train.truncated import truncated_ratio


class Weights(NamedTuple):
    """The weights of n tokens.

    Attributes:
        value: [n] what the gradient is weighed with.
        limited: [n] where that is not the ratio itself.
        pushed: [n] False where a clip leaves a token alone: it has gone as far as it may, and is no lost one.
    """

    value: Tensor
    limited: Tensor
    pushed: Tensor


@dataclass(frozen=True)
class Correction:
    """A correction with its bounds.

    Attributes:
        weights: (log_ratio [n] nats, coefficient [n], sequence [n] int64) -> the gradient's weights.
        bounded: (log_ratio, sequence) -> [n] the ratio within the correction's bounds, whatever the
            coefficient: what an average over the policy is taken with (the KL in the reward).
        of_sequence: whether the tokens of a sequence share one ratio, not each its own.
    """

    name: str
    weights: Callable[[Tensor, Tensor, Tensor], Weights]
    bounded: Callable[[Tensor, Tensor], Tensor]
    of_sequence: bool = False


def correction_of(config: TrainConfig) -> Correction:
    """The correction that `train.correction` names."""
    made: Callable[[TrainConfig], Correction] = {
        "truncated": _truncated,
        "ppo_clip": _ppo_clip,
        "sequence_ratio": _sequence_ratio,
        "plausibility_mask": _plausibility_mask,
    }[config.correction]
    return made(config)


def _truncated(config: TrainConfig) -> Correction:
    def bounded(log_ratio: Tensor, sequence: Tensor) -> Tensor:
        return truncated_ratio(log_ratio, config.importance_cap)

    def weights(log_ratio: Tensor, coefficient: Tensor, sequence: Tensor) -> Weights:
        return _same(bounded(log_ratio, sequence), torch.exp(log_ratio) > config.importance_cap)

    return Correction("truncated", weights, bounded)


def _ppo_clip(config: TrainConfig) -> Correction:
    low, high = config.ppo_clip_low, config.ppo_clip_high

    def weights(log_ratio: Tensor, coefficient: Tensor, sequence: Tensor) -> Weights:
        return _clipped(torch.exp(log_ratio), coefficient, low, high)

    return Correction("ppo_clip", weights, lambda log_ratio, _: _within(torch.exp(log_ratio), low, high))


def _sequence_ratio(config: TrainConfig) -> Correction:
    low, high = config.sequence_clip_low, config.sequence_clip_high

    def weights(log_ratio: Tensor, coefficient: Tensor, sequence: Tensor) -> Weights:
        return _clipped(sequence_ratio(log_ratio, sequence), coefficient, low, high)

    return Correction(
        "sequence_ratio",
        weights,
        lambda log_ratio, sequence: _within(sequence_ratio(log_ratio, sequence), low, high),
        of_sequence=True,
    )


def _plausibility_mask(config: TrainConfig) -> Correction:
    masked = partial(plausible_ratio, low=config.plausible_low, high=config.plausible_high)

    def weights(log_ratio: Tensor, coefficient: Tensor, sequence: Tensor) -> Weights:
        ratio = torch.exp(log_ratio)
        value = masked(ratio)
        return _same(value, value != ratio)

    return Correction("plausibility_mask", weights, lambda log_ratio, _: masked(torch.exp(log_ratio)))


def _same(value: Tensor, limited: Tensor) -> Weights:
    """Of a correction that weighs alike whatever the coefficient is."""
    return Weights(value, limited, torch.ones_like(limited))


def _clipped(ratio: Tensor, coefficient: Tensor, low: float, high: float) -> Weights:
    value, clipped = ppo_weights(ratio, coefficient, low, high), ppo_clipped(ratio, coefficient, low, high)
    return Weights(value, clipped, ~clipped | (ratio == 0))  # what is ruled out now is lost


def _within(ratio: Tensor, low: float, high: float) -> Tensor:
    # a token that is ruled out now stays so
    return torch.where(ratio == 0, ratio, ratio.clamp(1 - low, 1 + high))
