"""The price of asking: keeps questions from taking the place of risky edits, without forbidding them.

If code that was never written cannot be punished, the edit rate falls without end. So a question without
an edit costs a price that rises as the line's edit rate falls below its band and falls as it rises above:

    price <- clip(price + step * (max(0, low - rate) - max(0, rate - high)), minimum, maximum)

a bounded dual variable of the constraint low <= edit rate <= high. It moves before its window is scored,
so that the incentive answers to what the window shows. A question that helps still earns: its follow-up
and the edit after it are not taxed.

Inside the band nothing presses, and the price eases off by the part `ease` a window (0: it stays): a
multiplier whose constraint is slack should be zero, so that questions that help are not paid for for ever.

No user and no API key has more than a capped share of the edit rate, or one bot would set everybody's price
(`stages/contributor_cap.py`; a key that is marked as shared is its users).

The band is of fixed numbers, or of the line's own history: the edit rate of its first windows, give or take
`width`. An episode counts alike in each of them, and windows are gathered until their episodes are enough, as
the band is for ever: the standard error of a share of n episodes is 0.5 / sqrt(n) at most, and has to be a
sixth of `width` or less,

    n >= (6 * 0.5 / width)^2        400 for the default spec's 0.15

so that also where users differ so much that the variance is doubled, two standard errors are less than half
of the width. Episodes that the caps leave out do not count in n. Until then the price stays where it begins.
A band that was gathered before there were caps is gathered anew where the first window with them is capped.
Kept in `line_state.stabiliser`, so a rollback restores price and band.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from stages.contributor_cap import BARELY, cap_contributions
from stages.distill.spec import Stabiliser
from stages.wording import count

USER_CAP, KEY_CAP = 0.1, 0.25  # of the edit rate, as of the gradient by default
# of the episodes counts: caps that cannot hold, both together or at all, give way, and so they do where one
# has a hundred times what the others have; less of them would take minutes with 200,000 names
LEAST = 0.01
_SURE = 6.0  # standard errors of the band's middle in its width


class Caps(NamedTuple):
    """How many users and keys a window's caps held back, and how far they gave way (0 to 1; 0 as a rule)."""

    users: int = 0
    keys: int = 0
    relaxed: float = 0.0


_NONE_CAPPED = Caps()


@dataclass(frozen=True)
class Dual:
    """The dual variable after a window.

    Attributes:
        price: of a question without an edit, in units of reward.
        band: (low, high) edit rate; None while history is being gathered.
        rates, episodes: of the line's first windows, as far as the band is of history. Of windows gathered
            before episodes were counted there are rates alone, and each of them is enough by itself.
        rate: the edit rate of this window.
        caps: what they did to it.
    """

    price: float
    band: tuple[float, float] | None
    rates: tuple[float, ...]
    episodes: tuple[int, ...]
    rate: float
    caps: Caps = _NONE_CAPPED

    def to_state(self) -> dict[str, Any]:
        """For `line_state.stabiliser`."""
        gathered = {"rates": list(self.rates), "episodes": list(self.episodes)}
        known: dict[str, Any] = {name: values for name, values in gathered.items() if values}
        return {"price": self.price, **known, **({"capped": True} if known else {})}

    def told(self) -> dict[str, Any]:
        """For metrics and the experience's meta."""
        low, high = self.band or (None, None)
        caps = {"capped_users": self.caps.users, "capped_keys": self.caps.keys, "relaxed": self.caps.relaxed}
        return {"price": self.price, "edit_rate": self.rate, "low": low, "high": high, **caps}

    def in_words(self) -> dict[str, str | float]:
        """What moved the price, for people; the numbers are in `told`."""
        band = "not known yet" if self.band is None else f"{self.band[0]:.3f} to {self.band[1]:.3f}"
        found: dict[str, str | float] = {"edit_rate": self.rate, "edit_band": band}
        if any(self.caps):
            gave_way = "; they gave way, as nearly all use came from few" * (self.caps.relaxed > BARELY)
            held = f"{count(self.caps.users, 'user')} and {count(self.caps.keys, 'API key')} held back"
            found["edit_rate_caps"] = held + gave_way
        return found


def edit_rate(measured: pa.Table, shared: Collection[str]) -> tuple[float, int, Caps]:
    """The edit rate of a window within the caps, how many episodes that counts, and what the caps did.

    Args:
        measured: `user`, `key_id` and `edited` of each episode.
        shared: ids of API keys that are not capped as a whole.
    """
    edited = measured["edited"].to_numpy()
    whose = measured.group_by(["user", "key_id"], use_threads=False)
    found = whose.aggregate([("edited", "sum"), ("edited", "count")])
    episodes = found["edited_count"].to_numpy().astype(float)
    users, keys = found["user"].to_pylist(), found["key_id"].to_pylist()
    caps: dict[str, Any] = {"user_cap": USER_CAP, "key_cap": KEY_CAP, "least": LEAST, "shared": shared}
    capped = cap_contributions(users, keys, episodes, **caps)
    did = Caps(len(capped.users), len(capped.keys), capped.relaxed)
    if not (did.users or did.keys):
        return float(edited.mean()), len(edited), did
    counted = capped.factor * episodes
    rate = float((capped.factor * found["edited_sum"].to_numpy()).sum() / counted.sum())
    return rate, round(float(counted.sum())), did


def moved(
    state: Mapping[str, Any], edit_rate: float, episodes: int, spec: Stabiliser, caps: Caps = _NONE_CAPPED
) -> Dual:
    """The dual after a window of so many episodes with this edit rate (edits over episodes, 0 to 1)."""
    if not state.get("capped") and (caps.users or caps.keys):
        state = without_band(state)  # gathered uncapped: another measure than this window's rate
    rates = tuple(float(rate) for rate in state.get("rates", ()))
    counts = tuple(int(count) for count in state.get("episodes", ()))
    band = _of_history(rates, counts, spec) if spec.band == "history" else (spec.low, spec.high)
    before = price_of(state, spec)
    if band is None:
        rates, counts = (*rates, edit_rate), (*counts, episodes)
        return Dual(before, _of_history(rates, counts, spec), rates, counts, edit_rate, caps)
    push = max(0.0, band[0] - edit_rate) - max(0.0, edit_rate - band[1])
    price = before + spec.step * push if push else (1 - spec.ease) * before
    price = min(max(price, spec.minimum), spec.maximum)
    return Dual(price, band, rates, counts, edit_rate, caps)


def price_of(state: Mapping[str, Any], spec: Stabiliser) -> float:
    """The line's price, or the initial one; within today's bounds."""
    return min(max(float(state.get("price", spec.initial)), spec.minimum), spec.maximum)


def without_band(state: Mapping[str, Any]) -> dict[str, Any]:
    """The state that another line begins with: the price goes with the policy, the band with the people."""
    return {name: value for name, value in state.items() if name == "price"}


def _of_history(
    rates: tuple[float, ...], episodes: tuple[int, ...], spec: Stabiliser
) -> tuple[float, float] | None:
    """The band of the first windows that are enough; None where all of them are not."""
    enough = (_SURE * 0.5 / spec.width) ** 2
    weights = [enough] * (len(rates) - len(episodes)) + [float(count) for count in episodes]
    edits = gathered = 0.0
    for windows, (rate, weight) in enumerate(zip(rates, weights, strict=True), start=1):
        edits, gathered = edits + rate * weight, gathered + weight
        if windows >= spec.windows and gathered >= enough:
            middle = edits / gathered
            return max(0.0, middle - spec.width), min(1.0, middle + spec.width)
    return None
