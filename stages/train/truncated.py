"""Correction "truncated": a token's importance weight is its ratio, up to a cap.

    r_t = pi_now(y_t) / pi_logged(y_t),   w_t = min(r_t, cap)

The bias is what the cap cuts off: under the sampler E[w] = sum_y min(pi_now(y), cap pi_logged(y)) <= 1,
and E[w^2] <= cap, so that no rare token can outweigh the rest of the batch.

Sources: Ionides 2008, "Truncated importance sampling"; per token against the sampler's logged
probabilities: Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL training".
Not here: what a correction is, and which one a run takes (`correction.py`).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def truncated_ratio(log_ratio: Tensor, cap: float) -> Tensor:
    """w [n] of log r [n] (nats). A token that is ruled out now (log r = -inf) has weight 0."""
    # exp(min(x, log cap)) = min(exp(x), cap), and never overflows
    return torch.exp(log_ratio.clamp(max=math.log(cap)))
