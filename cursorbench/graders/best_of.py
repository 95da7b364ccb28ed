"""What k attempts would give, estimated without bias from n >= k of them.

pass@k of c successes in n (Chen et al. 2021, "Evaluating Large Language Models Trained on Code", eq. 1):

    1 - C(n - c, k) / C(n, k)

best-of-k of scores x_(1) <= ... <= x_(n), the mean of the largest of k drawn without replacement (an
L-statistic; for scores of 0 and 1 it is pass@k):

    sum_i x_(i) C(i - 1, k - 1) / C(n, k)
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb


def pass_at(k: int, successes: int, attempts: int) -> float:
    """The chance that one of k attempts succeeds.

    Raises:
        ValueError: k is not in 1..attempts, or successes not in 0..attempts.
    """
    if not 1 <= k <= attempts or not 0 <= successes <= attempts:
        raise ValueError(f"{successes} successes of {attempts} attempts say nothing of the best of {k}")
    return 1.0 - comb(attempts - successes, k) / comb(attempts, k)


def best_of(k: int, scores: Sequence[float]) -> float:
    """The mean of the best score of k attempts. Raises ValueError: k is not in 1..len(scores)."""
    n = len(scores)
    if not 1 <= k <= n:
        raise ValueError(f"{n} scores say nothing of the best of {k}")
    ranked = sorted(scores)
    return sum(x * comb(i, k - 1) for i, x in enumerate(ranked)) / comb(n, k)
