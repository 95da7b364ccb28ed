"""The chance that one of k attempts succeeds, estimated without bias from n >= k of them.

pass@k of c successes in n (Chen et al. 2021, "Evaluating Large Language Models Trained on Code", eq. 1):

    1 - C(n - c, k) / C(n, k)
"""

from __future__ import annotations

from math import comb


def pass_at(k: int, successes: int, attempts: int) -> float:
    """The chance that one of k attempts succeeds.

    Raises:
        ValueError: k is not in 1..attempts, or successes not in 0..attempts.
    """
    if not 1 <= k <= attempts or not 0 <= successes <= attempts:
        raise ValueError(f"{successes} successes of {attempts} attempts say nothing of the best of {k}")
    return 1.0 - comb(attempts - successes, k) / comb(attempts, k)
