"""Correction "ppo_clip": a token that has gone far enough the way its coefficient points is left alone.

    r_t = pi_now(y_t) / pi_logged(y_t)
    L_t = -min(r_t a_t, clip(r_t, 1 - low, 1 + high) a_t)

The gradient of L_t is that of -sg(w_t) a_t log pi_now(y_t) with

    w_t = 0     where a_t > 0 and r_t > 1 + high, or a_t < 0 and r_t < 1 - low
    w_t = r_t   elsewhere

A ratio above the range with a negative a_t is not bounded: that is PPO's objective as published.

Sources: Schulman et al. 2017 (arXiv 1707.06347), eq. 7; bounds apart: DAPO (arXiv 2503.14476), eq. 10.
Not here: what a correction is, and which one a run takes (`correction.py`).
"""

from __future__ import annotations

import torch
from torch import Tensor


def ppo_clipped(ratio: Tensor, coefficient: Tensor, low: float, high: float) -> Tensor:
    """[n] True where w is 0: the ratio [n] is beyond the range, on the side the coefficient [n] pushes to."""
    return ((coefficient > 0) & (ratio > 1 + high)) | ((coefficient < 0) & (ratio < 1 - low))


def ppo_weights(ratio: Tensor, coefficient: Tensor, low: float, high: float) -> Tensor:
    """w [n] of ratios and coefficients [n]."""
    return torch.where(ppo_clipped(ratio, coefficient, low, high), torch.zeros_like(ratio), ratio)
