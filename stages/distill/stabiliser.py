"""The price of asking: keeps questions from taking the place of risky edits, without forbidding them.

If code that was never written cannot be punished, the edit rate falls without end. So a question without
an edit costs a price that rises as the line's edit rate falls below its band and falls as it rises above:

    price <- clip(price + step * (max(0, low - rate) - max(0, rate - high)), minimum, maximum)

a bounded dual variable of the constraint low <= edit rate <= high. It moves before its window is scored,
so that the incentive answers to what the window shows. A question that helps still earns: its follow-up
and the edit after it are not taxed.

Inside the band nothing presses, and the price eases off by the part `ease` a window (0: it stays): a
multiplier whose constraint is slack should be zero, so that questions that help are not paid for for ever.

The band is of fixed numbers, or of the line's own history: the mean edit rate of its first windows, give or
take `width`. Until those have passed the price stays where it begins. Kept in `line_state.stabiliser`, so a
rollback restores price and band.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stages.distill.spec import Stabiliser


@dataclass(frozen=True)
class Dual:
    """The dual variable after a window.

    Attributes:
        price: of a question without an edit, in units of reward.
        band: (low, high) edit rate; None while history is being gathered.
        rates: edit rates of the line's first windows, as far as the band is of history.
        rate: the edit rate of this window.
    """

    price: float
    band: tuple[float, float] | None
    rates: tuple[float, ...]
    rate: float

    def to_state(self) -> dict[str, Any]:
        """For `line_state.stabiliser`."""
        found: dict[str, Any] = {"price": self.price}
        return found | ({"rates": list(self.rates)} if self.rates else {})

    def told(self) -> dict[str, Any]:
        """For metrics and the experience's meta."""
        low, high = self.band or (None, None)
        return {"price": self.price, "edit_rate": self.rate, "low": low, "high": high}


def moved(state: Mapping[str, Any], edit_rate: float, spec: Stabiliser) -> Dual:
    """The dual after a window with this edit rate (edits over episodes, 0 to 1)."""
    rates = tuple(float(rate) for rate in state.get("rates", ()))
    if spec.band == "history" and len(rates) < spec.windows:
        rates = (*rates, edit_rate)
        return Dual(price_of(state, spec), _of_history(rates, spec), rates, edit_rate)
    band = _of_history(rates, spec) if spec.band == "history" else (spec.low, spec.high)
    assert band is not None
    push = max(0.0, band[0] - edit_rate) - max(0.0, edit_rate - band[1])
    before = price_of(state, spec)
    price = before + spec.step * push if push else (1 - spec.ease) * before
    price = min(max(price, spec.minimum), spec.maximum)
    return Dual(price, band, rates, edit_rate)


def price_of(state: Mapping[str, Any], spec: Stabiliser) -> float:
    """The line's price, or the initial one; within today's bounds."""
    return min(max(float(state.get("price", spec.initial)), spec.minimum), spec.maximum)


def without_band(state: Mapping[str, Any]) -> dict[str, Any]:
    """The state that another line begins with: the price goes with the policy, the band with the people."""
    return {name: value for name, value in state.items() if name == "price"}


def _of_history(rates: tuple[float, ...], spec: Stabiliser) -> tuple[float, float] | None:
    if len(rates) < spec.windows:
        return None
    middle = sum(rates[: spec.windows]) / spec.windows
    return max(0.0, middle - spec.width), min(1.0, middle + spec.width)
