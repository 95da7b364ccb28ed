"""Correction "sequence_ratio": one ratio for all sampled tokens of a sequence, clipped as a whole.

    s = exp(mean over the sequence's n trained tokens of log pi_now(y_t) - log pi_logged(y_t))

Every token of the sequence has s as its ratio; where s is outside [1 - low, 1 + high] on the side a
token's coefficient pushes to, the token's weight is 0, as in `ppo_clip.py`. s moves far less than the
ratio of a token, so its range is narrow; noise of the serving dtype counts into it.

A sequence is a chain of generations that extend one another's prefix. Tokens that are ruled out now
(log r = -inf) have weight 0 and do not count into the mean.

Sources: GSPO (Zheng et al. 2025, arXiv 2507.18071), eqs. 5, 7 and 14. GSPO also divides each sequence
by its length; here one constant divides the whole batch (`loss.py`), whatever the correction.
Not here: what a correction is, and which one a run takes (`correction.py`).
"""

from __future__ import annotations

import torch
from torch import Tensor


def sequence_ratio(log_ratio: Tensor, sequence: Tensor) -> Tensor:
    """s [n] of each token's sequence; log_ratio [n] (nats), `sequence` [n] int64 numbers them from 0."""
    count = int(sequence.max()) + 1 if len(sequence) else 0
    there = ~log_ratio.isneginf()
    zeros = log_ratio.new_zeros(count)
    total = zeros.index_add(0, sequence, torch.where(there, log_ratio, torch.zeros_like(log_ratio)))
    number = zeros.index_add(0, sequence, there.to(log_ratio.dtype)).clamp(min=1)
    ratio = torch.exp(total / number)[sequence]
    return torch.where(there, ratio, torch.zeros_like(ratio))
