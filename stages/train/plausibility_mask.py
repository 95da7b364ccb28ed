"""Correction "plausibility_mask": tokens whose ratio is not plausible are left out, the others keep theirs.

    r_t = pi_now(y_t) / pi_logged(y_t)
    w_t = r_t   where low <= r_t <= high
    w_t = 0     elsewhere

A ratio far from 1 is more likely a fault between engine and trainer (a routing decision that went the
other way, a token at the edge of what the dtype can tell) than something that the policy has learned.

Source: IcePop (Ling team 2025, "Small leak can sink a great ship"), M(k; alpha, beta) with 0.5 and 5.
There the mask acts on the ratio of trainer and engine at equal weights, beside PPO's clip; here on the
one ratio there is, and nothing is put on top of it.
Not here: what a correction is, and which one a run takes (`correction.py`).
"""

from __future__ import annotations

import torch
from torch import Tensor


def plausible_ratio(ratio: Tensor, low: float, high: float) -> Tensor:
    """w [n] of ratios [n]."""
    return torch.where((ratio >= low) & (ratio <= high), ratio, torch.zeros_like(ratio))
