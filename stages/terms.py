"""The terms of an episode's reward, read off its row of an experience: one list for all who show it.

`rtrl distill --explain` and the report's examples. Not for: computing them (`stages/distill/reward.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stages.distill.spec import PRICE, RewardSpec, SignalSpec

CLIP = "clip"  # what the spec's bounds add to the sum of the terms


@dataclass(frozen=True)
class Term:
    """One line of the reward: weight * (value - offset), or the spec's term for not known.

    `value` None: not known; `contribution` None: the spec does not use it.
    """

    signal: str
    value: float | None
    weight: float | None
    offset: float | None
    contribution: float | None
    note: str


def terms_of(row: Mapping[str, Any], spec: RewardSpec, price: float | None) -> list[Term]:
    """Every line, in the spec's order; their contributions sum up to the reward.

    Args:
        row: of experience/episodes.parquet, with the columns of the spec's signals.
        price: of asking, as the experience's meta has it.
    """
    found = []
    for name in spec.names:
        signal = spec.signals.get(name)
        if signal is None:
            found.append(Term(name, row[name], None, None, None, "not in the reward"))
            continue
        note = _note(row[name], signal)
        found.append(Term(name, row[name], signal.weight, signal.offset, row[f"term_{name}"], note))
    if price is not None:
        found.append(Term(PRICE, row[PRICE], -price, 0.0, row[f"term_{PRICE}"], "stabiliser"))
    total = sum(term.contribution for term in found if term.contribution is not None)
    if spec.clip is not None and row["reward"] is not None and abs(total - row["reward"]) > 1e-9:
        found.append(Term(CLIP, total, None, None, row["reward"] - total, f"bounds {spec.clip}"))
    return found


def _note(value: float | None, signal: SignalSpec) -> str:
    if value is None:
        return f"not known: {signal.unknown}"
    if signal.low is not None and value < signal.low:
        return f"counted as {signal.low:g}"
    if signal.high is not None and value > signal.high:
        return f"counted as {signal.high:g}"
    return ""
