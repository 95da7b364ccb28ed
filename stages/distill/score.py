"""A window as a whole: running medians, the price of asking, rewards, and which episodes give no gradient.

Not for: what one episode tells by itself (`measure.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from stages.distill import memory
from stages.distill.reward import Rewards, combine, dropped
from stages.distill.spec import RewardSpec
from stages.distill.stabiliser import Dual
from stages.linestate import LineState

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Scored:
    """A window's signals (nan: not known), rewards, and why an episode gives no gradient ("": it does).

    `medians` are those of latency after it.
    """

    dual: Dual | None
    medians: Mapping[str, memory.Medians]
    values: Mapping[str, Floats]
    rewards: Rewards
    why_not: list[str]
    strata: list[str]


def score(
    measured: pa.Table, state: LineState, spec: RewardSpec, shared_keys: Collection[str] = ()
) -> Scored:
    """Score the episodes of a window, with what the line remembers from before it.

    `shared_keys` are ids of API keys that many people come through.
    """
    dual = memory.dual(measured, state, spec, shared_keys)
    price = None if dual is None else dual.price
    told = {name: measured[name].to_numpy() for name in spec.names if name in measured.column_names}
    weigh = memory.weigh_by(measured, shared_keys)
    values = {**told, **memory.latencies(measured, state, weigh)}
    strata = measured["stratum"].combine_chunks().dictionary_encode()
    rewards = combine(values, np.asarray(strata.indices, dtype=np.int64), spec, price, weigh)
    why_not = [
        reason or filtered or (f"unknown:{signal}" if signal else "")
        for reason, filtered, signal in zip(
            measured["why_not"].to_pylist(), dropped(values, spec), rewards.excluded_by, strict=True
        )
    ]
    medians = memory.moved_medians(measured, state, spec, weigh)
    return Scored(dual, medians, values, rewards, why_not, sorted(strata.dictionary.to_pylist()))
