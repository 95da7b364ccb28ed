"""From signals to one reward per episode: the terms of the spec, on columns.

    reward = clip(sum over signals of term)
    term   = weight * (clip(value, low, high) - offset)          when the value is known
           = a number, or the mean term of the stratum           when it is not, as the spec says

Unknown is never silently zero: the spec has to say what it contributes, or that the episode then has no
reward. In a mean term no user and no API key has more than a capped share, or who floods a stratum would say
what everybody's unknown is worth. The price of asking is one term more. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stages.contributor_cap import Weigh, equally
from stages.distill.spec import PRICE, RewardSpec, SignalSpec
from stages.errors import UsageError

LARGEST = 1e30  # of a term and of a reward: the trainer's floats hold it, and squares of it are summed up

Floats = np.ndarray[Any, np.dtype[np.float64]]
Strata = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Rewards:
    """Terms by signal [E], the reward [E] (nan: none), and by which signal an episode was excluded ("").

    `unpriced` is the reward without the price of asking [E]: what two windows are compared by.
    """

    terms: Mapping[str, Floats]
    reward: Floats
    unpriced: Floats
    excluded_by: list[str]


def combine(
    values: Mapping[str, Floats],
    strata: Strata,
    spec: RewardSpec,
    price: float | None,
    weigh: Weigh = equally,
) -> Rewards:
    """The rewards of a window.

    Args:
        values: signals [E], nan where not known; `clarified` must be there when a price is.
        strata: stratum code of each episode [E].
        price: of a question without an edit, in units of reward; None without a stabiliser.
        weigh: what episodes count for in a mean term.

    Raises UsageError (2) when a term, or their sum, is beyond `LARGEST`.
    """
    terms: dict[str, Floats] = {}
    for name, signal in spec.signals.items():
        terms[name] = term(values[name], strata, signal, weigh)
        _refuse_infinite(terms[name], f"the term of {name}")
    if price is not None:
        terms[PRICE] = 0.0 - price * values["clarified"]
    n = len(strata)
    total = _sum(list(terms.values()), n, spec)
    unpriced = _sum([column for name, column in terms.items() if name != PRICE], n, spec)
    excluded = [""] * n
    for signal_name, column in terms.items():
        for row in np.flatnonzero(np.isnan(column)):
            excluded[row] = excluded[row] or signal_name
    return Rewards(terms, total, unpriced, excluded)


def _sum(terms: Sequence[Floats], n: int, spec: RewardSpec) -> Floats:
    with np.errstate(over="ignore"):
        total = np.sum(terms, axis=0) if terms else np.zeros(n)
    _refuse_infinite(total, "the reward")
    return total if spec.clip is None else np.clip(total, *spec.clip)


def _refuse_infinite(column: Floats, what: str) -> None:
    """An infinite term would be clipped to a bound, or cancel another to nan, which means not known; the
    error of the mean of rewards beyond `LARGEST` is no float, and no line state is read with that."""
    if count := int(np.isinf(column).sum()):
        raise UsageError(f"{what} is not finite in {count} episodes", hint="make the spec's weights smaller")
    if count := int((np.abs(column) > LARGEST).sum()):
        raise UsageError(
            f"{what} is beyond {LARGEST:g} in {count} episodes", hint="make the spec's weights smaller"
        )


def dropped(values: Mapping[str, Floats], spec: RewardSpec) -> list[str]:
    """The exit that each episode leaves by for a filter of the spec, "" for none: the first that holds."""
    found = [""] * len(next(iter(values.values())))
    for name, bounds in spec.drop.items():
        above = values[name] > (np.inf if bounds.above is None else bounds.above)  # nan is neither
        below = values[name] < (-np.inf if bounds.below is None else bounds.below)
        for row in np.flatnonzero(above | below):
            found[row] = found[row] or f"drop:{name}"
    return found


def term(values: Floats, strata: Strata, signal: SignalSpec, weigh: Weigh = equally) -> Floats:
    """One signal's contribution [E]; nan where the spec excludes the episode."""
    known = ~np.isnan(values)
    low = -np.inf if signal.low is None else signal.low
    high = np.inf if signal.high is None else signal.high
    with np.errstate(over="ignore"):
        result = signal.weight * (np.clip(values, low, high) - signal.offset) + 0.0  # no negative zeros
    if signal.unknown == "exclude":
        return result
    if signal.unknown == "mean":
        return np.where(known, result, _stratum_means(result, known, strata, weigh))
    return np.where(known, result, signal.unknown)


def _stratum_means(
    terms: Floats, known: np.ndarray[Any, np.dtype[np.bool_]], strata: Strata, weigh: Weigh
) -> Floats:
    """Mean known term of each episode's stratum; of the window where the stratum has none; else 0."""
    rows = np.flatnonzero(known)
    window = float(np.average(terms[rows], weights=weigh(rows))) if len(rows) else 0.0
    means = np.full(int(strata.max(initial=-1)) + 1, window)
    by_stratum = rows[np.argsort(strata[rows], kind="stable")]
    ends = np.flatnonzero(np.diff(strata[by_stratum])) + 1
    for mine in np.split(by_stratum, ends) if len(rows) else ():
        means[strata[mine[0]]] = np.average(terms[mine], weights=weigh(mine))
    return np.asarray(means[strata])
