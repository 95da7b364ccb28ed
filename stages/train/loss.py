"""The policy-gradient loss of sampled tokens.

    L = - (1 / C) sum_t  sg(w_t) a_t log pi_now(y_t),   w_t = min(pi_now / pi_logged, cap)

a_t is the token's coefficient (its episode's advantage with KL in the reward, times its user's
factor). C is one constant for the whole batch, the same in every micro-batch and rank: no
sequence's length is divided out, or long wrong answers would be cheaper per token than short ones.

Sources: REINFORCE (Williams 1992); truncated importance weights: `importance.py`; one constant instead
of per-sequence means: Dr. GRPO (Liu et al. 2025, section 3.1).
"""

from __future__ import annotations

import torch
from torch import Tensor

from stages.train.importance import truncated_weights


def policy_loss(
    logp: Tensor, logged: Tensor, coefficient: Tensor, *, cap: float, constant: float
) -> tuple[Tensor, Tensor]:
    """(L scalar, w [n]): logp carries the gradient, `logged` and `coefficient` are data. Shapes [n], nats.

    A token that its sampling parameters rule out now (logp = -inf) has weight 0 and no gradient.
    """
    weights = truncated_weights(logp, logged, cap)
    finite = torch.where(logp.isneginf(), torch.zeros_like(logp), logp)
    return -(weights * coefficient * finite).sum() / constant, weights
