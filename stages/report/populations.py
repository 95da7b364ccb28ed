"""The figures by population: agent, model, repository, kind of work, and by window of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stages.report.episodes import Episodes, Ints
from stages.report.figures import Figure, Reading
from stages.report.text import fit

UNTOLD = "(not told)"
MOST_GROUPS = 20  # of a population; the smaller ones are counted together
MOST_WINDOWS = 60
ENOUGH = 10
_LABEL = 60  # characters
_DAY = 86_400_000  # ms


@dataclass(frozen=True)
class Group:
    """The figures of some episodes. `at`: their median time, ms, 0 where no time is told."""

    label: str
    at: int
    episodes: int
    users: int
    readings: dict[str, Reading]


@dataclass(frozen=True)
class Population:
    """One way to part the episodes. `rest`: groups that are not shown, and `rest_episodes` in them."""

    name: str
    groups: tuple[Group, ...]
    rest: int
    rest_episodes: int


def group(label: str, episodes: Episodes, figures: Sequence[Figure]) -> Group:
    """The figures of these episodes."""
    timed = episodes.at[episodes.at > 0]
    return Group(
        label=label,
        at=int(np.median(timed)) if len(timed) else 0,
        episodes=len(episodes),
        users=len(np.unique(episodes.user)),
        readings={one.name: one.read(episodes) for one in figures},
    )


def population(name: str, episodes: Episodes, figures: Sequence[Figure]) -> Population:
    """By one of `episodes.LABELS`, the largest group first. A name goes through redaction as any text."""
    labels = episodes.labels[name]
    sizes = np.bincount(labels.codes, minlength=len(labels.names))
    order = [int(code) for code in np.argsort(-sizes, kind="stable") if sizes[code]]
    shown, rest = order[:MOST_GROUPS], order[MOST_GROUPS:]
    groups = tuple(
        group(_label(name, labels.names[code]), episodes.take(np.flatnonzero(labels.codes == code)), figures)
        for code in shown
    )
    return Population(name, groups, len(rest), int(sizes[rest].sum()) if rest else 0)


def _label(name: str, value: str) -> str:
    return value[:19] if name == "checkpoint" else shown_name(value)  # a digest is nobody's text


def shown_name(name: str) -> str:
    """A name that sources gave, for people: redacted, on one line, cut."""
    return fit(" ".join(name.split()), _LABEL) or UNTOLD


def by_calendar(episodes: Episodes, figures: Sequence[Figure]) -> tuple[str, list[Group], int]:
    """(unit, groups in order of time, episodes not shown): by day, week or month as the span asks.

    Days up to a month of them, weeks up to a year, else months; a coarser one where the median window would
    hold under ENOUGH episodes. In UTC; a week is named by its Monday. Episodes of which no time is told, and
    windows before the last MOST_WINDOWS, are not shown.
    """
    timed = np.flatnonzero(episodes.at > 0)
    if not len(timed):
        return "day", [], len(episodes)
    days = episodes.at[timed] // _DAY
    span = int(days.max() - days.min()) + 1
    unit, starts = _starts(days, span)
    found, codes = np.unique(starts, return_inverse=True)
    first = max(0, len(found) - MOST_WINDOWS)
    groups = [
        group(str(found[code]), episodes.take(timed[codes == code]), figures)
        for code in range(first, len(found))
    ]
    return unit, groups, len(episodes) - sum(one.episodes for one in groups)


def _starts(days: Ints, span: int) -> tuple[str, np.ndarray[Any, Any]]:
    dates = days.astype("datetime64[D]")
    mondays = dates - ((days + 3) % 7).astype("timedelta64[D]")  # day 0 was a Thursday
    for unit, starts, longest in (("day", dates, 31), ("week", mondays, 366)):
        if span <= longest and np.median(np.unique(starts, return_counts=True)[1]) >= ENOUGH:
            return unit, starts
    return "month", dates.astype("datetime64[M]")
