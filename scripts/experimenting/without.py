"""Parts of the objective taken out, for the ablation. There is no setting for these: nobody should want one.

Inside of `without(part)` the trainer's own code runs with one function replaced.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

    from stages.train.advantage import Floats
    from stages.train.correction import Correction, Weights

USUAL_LENGTH = 24.0  # tokens of a sequence; only the scale, which Adam divides out


@contextmanager
def without(part: str) -> Iterator[None]:
    """Train without `part` ("" for with everything)."""
    if not part:
        yield
        return
    from stages.train import objective, update

    patches: Mapping[str, Any] = {
        "baseline": mock.patch.object(objective, "advantages", _no_baseline),
        "constant_normalisation": mock.patch.object(update, "policy_loss", _mean_per_sequence),
    }
    with patches[part]:
        yield


def _no_baseline(rewards: Floats, strata: Sequence[str], *_: object, **__: object) -> tuple[Floats, Floats]:
    """A = r."""
    return rewards.astype(np.float64), np.zeros(len(rewards))


def _mean_per_sequence(
    logp: Tensor,
    logged: Tensor,
    coefficient: Tensor,
    sequence: Tensor,
    *,
    correction: Correction,
    constant: float,
) -> tuple[Tensor, Weights]:
    """Every sequence's tokens averaged: the way of GRPO's first paper."""
    import torch

    from stages.train.loss import policy_loss

    lengths = torch.bincount(sequence).clamp(min=1)[sequence].to(coefficient.dtype)
    return policy_loss(
        logp,
        logged,
        coefficient * USUAL_LENGTH / lengths,
        sequence,
        correction=correction,
        constant=constant,
    )
