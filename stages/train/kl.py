"""KL divergence to a reference, estimated on sampled tokens and paid for in the reward.

With r = pi_ref(y) / pi(y) of a sampled token:

    k1 = -log r               unbiased, and its policy gradient in the reward is the gradient of the KL
    k3 = (r - 1) - log r      never negative, but its variance explodes where r is large

The reference is the line's pinned anchor. k1 is computed once, with the parent that the update starts
from, on tokens sampled by their logged policies; the weight w of the parent against the log, within
the correction's bounds, corrects for the difference: min(r, cap), r or 0 (plausibility mask), or r (with
`sequence_ratio` the sequence's s) clamped to [1 - low, 1 + high], as a clip is of the pushing alone, and what
it leaves alone has a KL. The loss weighs token t once more, so what t is charged for itself has no weight of
its own, or it would count as its square:

    K_e  = sum over the episode's tokens of w_s k1_s
    K_et = K_e, with k1_s in place of w_s k1_s for t and whatever shares t's weight
    A_t' = A_e - c (K_et - mean of the other episodes' K)

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


def episode_penalty(
    kl: Floats,
    weights: Floats,
    episode_of: NDArray[np.int64],
    weighed_with: NDArray[np.int64],
    episodes: int,
) -> Floats:
    """K_et minus the mean of the other episodes' K: what a token answers for of its episode's KL.

    Subtracting the others' mean is a baseline: it changes the variance of the gradient, not its mean.

    Shapes: kl (k1) [N] nats, weights (w) [N], episode_of [N] in [0, episodes), weighed_with [N] numbers
    the tokens that share one weight, result [N] nats.
    """
    totals = np.bincount(episode_of, weights=weights * kl, minlength=episodes)
    others = (totals.sum() - totals) / max(1, episodes - 1)
    own = np.bincount(weighed_with, weights=(1 - weights) * kl)
    return np.asarray((totals - others)[episode_of] + own[weighed_with], dtype=np.float64)
