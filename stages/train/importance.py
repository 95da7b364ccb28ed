"""Truncated importance weights: how much more likely a token is now than when it was sampled.

    w_t = min(pi_now(y_t) / pi_logged(y_t), cap),   the gradient stops at w

The denominator is the probability the engine *logged*, so that the one weight corrects both for the
steps and checkpoints between sampling and now, and for numerical differences between engine and
trainer. It is never stacked with a second correction.

Sources: Ionides 2008, "Truncated importance sampling"; per token against the sampler's logged
probabilities: Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL training".
Not here: PPO clip, sequence-level ratios, plausibility masks; each gets a file of its own.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def truncated_weights(logp_now: Tensor, logp_logged: Tensor, cap: float) -> Tensor:
    """w, same shape as the inputs [N] (nats), without gradient.

    A token that the present sampling parameters rule out (logp_now = -inf) has weight 0.
    """
    log_ratio = (logp_now - logp_logged).detach()
    # exp(min(x, log cap)) = min(exp(x), cap), and never overflows
    return torch.exp(log_ratio.clamp(max=math.log(cap)))


def effective_sample_share(weights: Tensor) -> float:
    """(sum w)^2 / (N sum w^2), in (0, 1]: 1 when all weights are equal. 0 for no or only zero weights.

    Source: Kong 1992; Liu 2001, "Monte Carlo Strategies", eq. 2.6.
    """
    values = weights.detach().double()
    total, squares = float(values.sum()), float((values * values).sum())
    return total * total / (values.numel() * squares) if squares > 0 else 0.0
