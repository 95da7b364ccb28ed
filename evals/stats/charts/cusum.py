"""How often the one-sided cumulative sum of standard scores (Page 1954) calls for nothing.

    S_0 = 0,   S_t = max(0, S_{t-1} + z_t - k),   alarm when S_t > h

k is half the shift, in standard deviations, that is to be found soonest. The average run length (ARL), cycles
to an alarm, is that of the Markov chain of Brook & Evans (1972): [0, h] in `STATES` parts, a part's mass at
its middle. Equal to the tables of Montgomery ("Introduction to Statistical Quality Control", 9.1) and
Hawkins (1993) (tested). Not for: where the scores come from (`level.py`), the sum
itself (`stages/monitor/charts.py`).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import scipy

STATES = 200


def average_run_length(k: float, h: float, shift: float = 0.0) -> float:
    """Mean number of scores, N(shift, 1), to an alarm from S_0 = 0."""
    width = 2 * h / (2 * STATES - 1)
    middles = np.arange(STATES, dtype=np.float64) * width
    step = middles[None, :] - middles[:, None] + k - shift
    moves = scipy.special.ndtr(step + width / 2) - scipy.special.ndtr(step - width / 2)
    moves[:, 0] = scipy.special.ndtr(width / 2 - middles + k - shift)  # all that ends at 0 or below
    return float(np.linalg.solve(np.eye(STATES) - moves, np.ones(STATES))[0])


@lru_cache(maxsize=64)
def limit(k: float, rate: float) -> float:
    """The h at which clean scores alarm once in 1 / `rate` cycles on average."""
    high = 0.5
    while average_run_length(k, high) * rate < 1:
        high += 0.5
    return float(scipy.optimize.brentq(lambda h: average_run_length(k, h) * rate - 1, 0.01, high, xtol=1e-4))
