"""The price of asking: keeps questions from taking the place of risky edits, without forbidding them.

If code that was never written cannot be punished, the edit rate falls without end. So a question without
an edit costs a price that rises as the line's edit rate falls below its band and falls as it rises above:

    price <- clip(price + step * (max(0, low - rate) - max(0, rate - high)), minimum, maximum)

a bounded dual variable of the constraint low <= edit rate <= high. It moves before its window is scored,
so that the incentive answers to what the window shows. A question that helps still earns: its follow-up
and the edit after it are not taxed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stages.distill.spec import Stabiliser


def price_of(state: Mapping[str, Any], spec: Stabiliser) -> float:
    """The line's price, or the initial one; within today's bounds."""
    return min(max(float(state.get("price", spec.initial)), spec.minimum), spec.maximum)


def moved(price: float, edit_rate: float, spec: Stabiliser) -> float:
    """The price after a window with this edit rate (edits over episodes, 0 to 1)."""
    push = max(0.0, spec.low - edit_rate) - max(0.0, edit_rate - spec.high)
    return min(max(price + spec.step * push, spec.minimum), spec.maximum)
