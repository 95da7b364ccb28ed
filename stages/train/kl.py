"""KL divergence to a reference, estimated on sampled tokens and paid for in the reward.

With r = pi_ref(y) / pi(y) of a sampled token:

    k1 = -log r               unbiased, and its policy gradient in the reward is the gradient of the KL
    k3 = (r - 1) - log r      never negative, but its variance explodes where r is large

The reference is the line's pinned anchor. k1 is computed once, with the parent that the update starts
from, on tokens sampled by their logged policies; the weight w of the parent against the log, within
the correction's bounds, corrects for the difference:

    K_e = sum over the episode's tokens of w_t k1_t
    A_e' = A_e - c (K_e - mean of the other episodes' K)

Sources: Schulman 2020, "Approximating KL divergence" (k1, k3); k1 in the reward: Composer 2 report
(arXiv 2603.24477); why in the reward and not in the loss: Tang and Munos 2025 (arXiv 2506.09477).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float64]


def k1(logp: Tensor, logp_ref: Tensor) -> Tensor:
    """-log r = logp - logp_ref per token, nats. Any shape."""
    return logp - logp_ref


def k3(logp: Tensor, logp_ref: Tensor) -> Tensor:
    """(r - 1) - log r per token, nats. Any shape."""
    log_r = logp_ref - logp
    return log_r.exp() - 1 - log_r


def episode_penalty(weighted_k1: Floats, episode_of: NDArray[np.int64], episodes: int) -> Floats:
    """K_e minus the mean of the other episodes' K: what the episode's KL costs relative to its peers.

    Subtracting the others' mean is a baseline: it changes the variance of the gradient, not its mean.

    Shapes: weighted_k1 [N] nats (w_t k1_t), episode_of [N] in [0, episodes), result [episodes] nats.
    """
    totals = np.bincount(episode_of, weights=weighted_k1, minlength=episodes)
    if episodes < 2:
        return np.zeros(episodes)
    others = (totals.sum() - totals) / (episodes - 1)
    return np.asarray(totals - others, dtype=np.float64)
