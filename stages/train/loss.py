"""The policy-gradient loss of sampled tokens.

    L = - (1 / C) sum_t  sg(w_t) a_t log pi_now(y_t)

w_t is the off-policy correction's weight of pi_now / pi_logged (`correction.py`), a_t the token's
coefficient (its episode's advantage with KL in the reward, times its user's factor). C is one constant
for the whole batch, the same in every micro-batch and rank: no sequence's length is divided out, or
long wrong answers would be cheaper per token than short ones.

Sources: REINFORCE (Williams 1992); one constant instead of per-sequence means: Dr. GRPO (Liu et al.
2025, section 3.1).
"""

from __future__ import annotations

import torch
from torch import Tensor

from stages.train.correction import Correction, Weights


def policy_loss(
    logp: Tensor,
    logged: Tensor,
    coefficient: Tensor,
    sequence: Tensor,
    *,
    correction: Correction,
    constant: float,
) -> tuple[Tensor, Weights]:
    """(L scalar, w): logp carries the gradient, the others are data. Shapes [n], nats.

    `sequence` numbers the tokens' sequences from 0. A token that its sampling parameters rule out now
    (logp = -inf) has weight 0 and no gradient.
    """
    weights = correction.weights((logp - logged).detach(), coefficient, sequence)
    return token_losses(logp, weights.value, coefficient, constant=constant).sum(), weights


def token_losses(logp: Tensor, weights: Tensor, coefficient: Tensor, *, constant: float) -> Tensor:
    """[n] what each token adds to L."""
    finite = torch.where(logp.isneginf(), torch.zeros_like(logp), logp)
    return -(weights * coefficient * finite) / constant
