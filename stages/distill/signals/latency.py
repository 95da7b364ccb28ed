"""Signals `latency` and `latency_first_token`: log ratio to the running median for requests of like size.

    value = ln(milliseconds / median of the size class)

Size is the size of the request (log2 of its prompt tokens), never of the answer, or long answers would
excuse themselves. `latency` is the time the model took over the whole episode, `latency_first_token` that
to the first token of its first answer; time spent by tools and by the user is not the model's.

An answer that somebody cut (its user, a lost engine, a time-out) would have taken longer, nobody knows how
long: it counts where it had taken more than the median by then, else it is not known, or to be stopped early
would pay. In the medians it is not.

The medians are line state: read before the window is scored, then moved towards the window's own by
m <- m + n / (n + w) (m_window - m), w the (bounded) number of episodes m stands on. A size class the line
has not met is compared with its own window. In a window's median no user and no API key has more than a
capped share, or who floods it with short answers would make everybody's look slow; n is then less.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np
import numpy.typing as npt

from stages.contributor_cap import Weigh, equally

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_FLOOR_MS = 1e-3
_ROUNDING = 1e-9  # of sums of weights


class Median(msgspec.Struct, frozen=True):
    """A running median of ln(ms) and the bounded number of episodes it stands on."""

    value: float
    weight: float


def size_class(prompt_tokens: Ints) -> Ints:
    """floor(log2) of the request's prompt tokens; 0 for an empty prompt."""
    return np.asarray(np.floor(np.log2(np.maximum(prompt_tokens, 1))), dtype=np.int64)


def log_ratio(
    milliseconds: Floats, sizes: Ints, known: Mapping[str, Median], cut: Bools, weigh: Weigh = equally
) -> Floats:
    """ln(ms / median of the size class) [E]; nan where the time is not known (nan or negative).

    Of what was `cut` [E] the time is the least that it would have been: nan where that is under the median.
    """
    logs = _logs(milliseconds)
    medians = {int(size): median.value for size, median in known.items()}
    for size, (window, _) in _of_window(logs, sizes, cut, weigh).items():
        medians.setdefault(size, window)
    classes, of = np.unique(sizes, return_inverse=True)
    usual = np.array([medians.get(int(size), np.nan) for size in classes], dtype=np.float64)
    result = logs - usual[of]
    return np.where(cut & ~(result > 0), np.nan, result)


def updated(
    milliseconds: Floats,
    sizes: Ints,
    known: Mapping[str, Median],
    limit: float,
    cut: Bools,
    weigh: Weigh = equally,
) -> dict[str, Median]:
    """The medians after this window; `limit` bounds their weight, so that old speed is forgotten."""
    result = dict(known)
    for size, (window, n) in _of_window(_logs(milliseconds), sizes, cut, weigh).items():
        old = known.get(str(size))
        value = window if old is None else old.value + n / (n + old.weight) * (window - old.value)
        result[str(size)] = Median(value, min(limit, n + (old.weight if old else 0.0)))
    return result


def _of_window(logs: Floats, sizes: Ints, cut: Bools, weigh: Weigh) -> dict[int, tuple[float, float]]:
    """(median, weight of its episodes) of each size class that has times, without those that were cut."""
    whole = ~np.isnan(logs) & ~cut
    found = {}
    for size in np.unique(sizes[whole]):
        rows = np.flatnonzero(whole & (sizes == size))
        weights = weigh(rows)
        found[int(size)] = _median(logs[rows], weights), float(weights.sum())
    return found


def _median(values: Floats, weights: Floats) -> float:
    """Where half of the weight lies below; the mean of two values where it ends between them."""
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weights[order])
    half = below[-1] / 2
    low, high = np.searchsorted(below, [half * (1 - _ROUNDING), half * (1 + _ROUNDING)])
    return float(values[order[[low, min(high, len(order) - 1)]]].mean())


def _logs(milliseconds: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        known = milliseconds >= 0
        return np.where(known, np.log(np.maximum(milliseconds, _FLOOR_MS)), np.nan)
