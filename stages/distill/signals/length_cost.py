"""Signal `length_cost`: what the length of an episode costs the user. Concave: the first tokens weigh most.

    C(x) = ((1 + k x)^(1 - q) - 1) / (k (1 - q));   q = 1: log(1 + k x) / k;   k = 0: x

Form after the Composer 2 report (arXiv 2603.24477); k, q and the weights of the mix are ours:

    x = w_final final + w_call call + w_thinking thinking + w_tool tool + w_calls calls + w_turns turns
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Lengths:
    """What an episode took, each [E]: tokens by kind, calls, turns (generations)."""

    final: Floats  # output tokens of answers without tool calls
    call: Floats  # output tokens of answers with tool calls
    thinking: Floats  # the part of both that is thinking, not counted in them
    tool: Floats  # tool outputs the model had to read: growth of the prompt between generations
    calls: Floats
    turns: Floats


def length_cost(x: Floats, k: float, q: float) -> Floats:
    """C(x) for x >= 0; increasing, C(0) = 0, C'(0) = 1, concave for k, q > 0."""
    if k == 0.0 or q == 0.0:
        return np.asarray(x, dtype=np.float64)
    if q == 1.0:
        return np.asarray(np.log1p(k * x) / k)
    return np.asarray(np.expm1((1.0 - q) * np.log1p(k * x)) / (k * (1.0 - q)))


def mix(lengths: Lengths, weights: dict[str, float]) -> Floats:
    """The weighted length x [E]; `weights` by the names of `Lengths`, absent is 0."""
    total = np.zeros_like(lengths.final)
    for name, weight in weights.items():
        total = total + weight * getattr(lengths, name)
    return total
