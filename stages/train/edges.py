"""Tokens whose distribution was cut within rounding of another token: the log says where.

Top-p and min-p keep the ids on one side of a threshold. When an id lies within float rounding of it,
engine and trainer may cut on different sides of it, and every logprob of that distribution is off by the
id's share: about 6 in 100,000 tokens with min-p 0.05 on a vocabulary of 300, each by up to some
hundredths of a nat (`docs/train.md`). That is no sign of another checkpoint, but in a small batch it is
enough to look like one. So tokens that are off are scored again with the threshold moved by more than
rounding can and by less than anybody would set: those that are right then were cut on the edge.

Not here: what counts as off (`proof.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from stages.records import Sampling
from stages.train.forward import Budget, score
from stages.train.hypotheses import resampled

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from stages.train.batch import Row

Array = NDArray[np.float32]

MOVED = 3e-5  # of the threshold; of 129,374 tokens the furthest that rounding decided was 8e-6 away
FEW = 0.05  # where more of the tokens are off, the reason is another


def cut_on_edge(
    model: PreTrainedModel,
    rows: Sequence[Row],
    logp: Array,
    mine: NDArray[np.bool_],
    bound: float,
    budget: Budget,
) -> tuple[Array, int]:
    """(logp [M] as the engine cut, how many tokens it changed).

    Args:
        rows: that hold the tokens `mine`.
        logp: [M] nats, of tokens in flat order under `model`; -inf for ids that were cut off.
        mine: [M] which of them `model` sampled.
        bound: a token is off when it is further than this from its log, nats.
    """

    def off(row: Row, values: Array) -> NDArray[np.bool_]:
        near = np.abs(values[row.flat].astype(np.float64) - row.logged) <= bound
        return mine[row.flat] & ~near

    suspects = [row for row in rows if off(row, logp).any()]
    count = sum(int(off(row, logp).sum()) for row in suspects)
    if not count or count > max(1, FEW * int(mine.sum())):
        return logp, 0
    found, changed = logp.copy(), 0
    for factor in (1 - MOVED, 1 + MOVED):
        moved = resampled(suspects, _moved(factor))
        if moved is None:  # nothing here is cut by a threshold
            break
        values, _ = score(model, moved, len(logp), budget)
        for row in suspects:
            right = off(row, found) & ~off(row, values)
            found[row.flat[right]] = values[row.flat[right]]
            changed += int(right.sum())
    return found, changed


def _moved(factor: float) -> Callable[[Sampling], Sampling]:
    """The thresholds of top-p (what it cuts off, 1 - p) and of min-p, times `factor`."""

    def change(sampling: Sampling) -> Sampling:
        # 1 - p in float32 is no finer than 1e-7
        shift = (factor - 1) * max(1 - sampling.top_p, 0.1) if sampling.top_p < 1 else 0.0
        top_p = min(max(sampling.top_p - shift, 0.0), 1.0)
        return msgspec.structs.replace(sampling, top_p=top_p, min_p=sampling.min_p * factor)

    return change
