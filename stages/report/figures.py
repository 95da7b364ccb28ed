"""The figures of a report: what each counts, of what, and when it cannot be told.

A signal that is known only of what went wrong is no rate. Where that is all there is, a figure has no
value and says so:

- `edit_persistence` is 0 by rule for what was undone or refused, known without any measurement; the rest
  needs a client's or a repository's measurement. Without one it is "not measured", and the share undone
  stands beside it. Where only a part was measured, the measured stand for the whole of the rest:

      value = (U * 0 + (E - U) * mean of the measured) / E

  E: episodes with a change, U: those known to be 0 by rule.
- `edit_rejected` needs changes that were told and stayed; refusals alone are no rate.
- `dissatisfied_followup` needs messages or thumbs; where behaviour said no each time (interruptions,
  refusals, thumbs down, the same request again) there is no rate. A message that a model judged is one,
  whatever it says.
- `invalid_tool_calls` is of the tool calls whose source says whether they were valid. Broken calls alone,
  from a source that does not tell of the others, are no rate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from stages.distill.signals.dissatisfied_followup import EXPLICIT_NO
from stages.report.episodes import CALLS, LATER, TOLD_CALLS, Episodes, Floats
from stages.report.estimates import MIN_USERS, interval

NONE_TOLD = "none is told"
UNKNOWN = "not known"


@dataclass(frozen=True)
class Reading:
    """A figure of some episodes. `value` None: it cannot be told, and `note` says why.

    Attributes:
        n: episodes it stands on.
        of: episodes it could stand on: those with a change, or with a tool call, or all.
        users: how many people the n episodes are of.
    """

    value: float | None
    low: float | None
    high: float | None
    n: int
    of: int
    users: int
    note: str = ""


@dataclass(frozen=True)
class Figure:
    """A figure of the report. `unit`: "share", "ratio" (1 is as usual) or "number"."""

    name: str
    title: str
    about: str
    unit: str
    better: str  # "higher", "lower" or ""
    read: Callable[[Episodes], Reading]


def _reading(
    y: Floats, n: Floats, episodes: Episodes, of: int, note: str = "", *, share: bool = True
) -> Reading:
    """The ratio over the episodes where `n` is over 0."""
    used = n > 0
    value, low, high, users = interval(y[used], n[used], episodes.user[used], share=share)
    if low is None and high is None:
        why = f"{users} user{'s' if users > 1 else ''}: too few for an interval"
        if not share and users >= MIN_USERS:
            why = "no two users differ: no interval"
        note = f"{note}; {why}" if note else why
    return Reading(value, low, high, int(used.sum()), of, users, note)


def _untold(note: str, of: int = 0) -> Reading:
    return Reading(None, None, None, 0, of, 0, note)


def _persistence(episodes: Episodes) -> Reading:
    return _kept(episodes, episodes.values["edit_persistence"])


def _later(name: str) -> Callable[[Episodes], Reading]:
    """The same at a metric horizon; what was undone within the training horizon is 0 there too."""

    def read(episodes: Episodes) -> Reading:
        value, early = episodes.values[name], episodes.values["edit_persistence"]
        lost = np.isnan(value) & (episodes.values["edit_rejected"] > 0) & (early == 0)
        return _kept(episodes, np.where(lost, 0.0, value))

    return read


def _kept(episodes: Episodes, value: Floats) -> Reading:
    undone, known = episodes.values["edit_rejected"] > 0, ~np.isnan(value)
    changed = known | undone | (episodes.values["edited"] > 0)
    by_rule = known & undone & (value == 0)
    measured = known & ~by_rule
    of, lost = int(changed.sum()), int(by_rule.sum())
    if not of:
        return _untold("no edit is told")
    rest = of - lost
    if not measured.any():
        return _untold(f"not measured; {lost:,} of {of:,} undone or refused ({lost / of:.1%})", of)
    weight = by_rule + measured * (rest / measured.sum())
    note = "" if measured.sum() == rest else f"measured for {measured.sum():,} of the {rest:,} not undone"
    return _reading(np.nan_to_num(value) * weight * measured, weight, episodes, of, note)


def _rejected(episodes: Episodes) -> Reading:
    undone, edited = episodes.values["edit_rejected"] > 0, episodes.values["edited"] > 0
    changed = undone | edited
    of = int(changed.sum())
    if not of:
        return _untold("no edit is told")
    if not edited.any():
        return _untold(f"only refusals are told ({of:,})", of)
    note = "" if undone.any() else f"{NONE_TOLD}: a source that never tells looks the same"
    return _reading(undone.astype(np.float64), changed.astype(np.float64), episodes, of, note)


def _dissatisfied(episodes: Episodes) -> Reading:
    value = episodes.values["dissatisfied_followup"]
    known = ~np.isnan(value)
    if not known.any():
        return _untold("no follow-up is told", len(episodes))
    if (value[known] == EXPLICIT_NO).all():
        return _untold(f"only complaints are told ({known.sum():,})", len(episodes))
    return _reading(np.nan_to_num(value), known.astype(np.float64), episodes, len(episodes))


def _invalid(episodes: Episodes) -> Reading:
    value, made = episodes.values["invalid_tool_calls"], episodes.values[CALLS]
    if len(episodes) and np.isnan(made).all():
        return _untold("how many calls there were is not known: the interactions were removed")
    broken, here = np.nan_to_num(value), ~np.isnan(made)
    every = np.where(here, np.maximum(made, broken), 0.0)
    of = int((every > 0).sum())
    if not of:
        return _untold("no tool call is told")
    calls = np.where(here, np.maximum(episodes.values[TOLD_CALLS], broken), 0.0)
    if not calls.any():
        return _untold(f"{UNKNOWN}: the logs do not tell whether a call was valid", of)
    broken, left = broken * (calls > 0), int((every - calls).sum())
    if left and broken.sum() == calls.sum():
        return _untold(f"only broken calls are told ({calls.sum():,.0f}, of {every.sum():,.0f} calls)", of)
    note = f"{broken.sum():,.0f} of {calls.sum():,.0f} calls"
    note += f"; of {left:,} more it is {UNKNOWN}" if left else ""
    return _reading(broken, calls, episodes, of, note)


def _share(name: str, none: str) -> Callable[[Episodes], Reading]:
    """Share of the episodes in which a signal that is 0 or 1 is 1."""

    def read(episodes: Episodes) -> Reading:
        value = episodes.values[name]
        known = ~np.isnan(value)
        if not known.any():
            return _untold("not known", len(episodes))
        note = "" if (value[known] > 0).any() else none
        return _reading(np.nan_to_num(value), known.astype(np.float64), episodes, len(episodes), note)

    return read


def _asks(episodes: Episodes) -> Reading:
    """Whether something was changed before the question is not known of a source that tells no edits."""
    found = _share("clarified", "")(episodes)
    if not found.value or (np.nan_to_num(episodes.values["edited"]) > 0).any():
        return found
    note = "no edit is told: a question behind one counts, too"
    return replace(found, note="; ".join(filter(None, [note, found.note])))


def _mean(name: str) -> Callable[[Episodes], Reading]:
    def read(episodes: Episodes) -> Reading:
        value = episodes.values[name]
        known = ~np.isnan(value)
        if not known.any():
            return _untold("not known", len(episodes))
        return _reading(np.nan_to_num(value), known.astype(np.float64), episodes, len(episodes), share=False)

    return read


def _latency(episodes: Episodes) -> Reading:
    logs = _mean("latency")(episodes)
    return replace(logs, value=_exp(logs.value), low=_exp(logs.low), high=_exp(logs.high))


def _exp(end: float | None) -> float | None:
    return None if end is None else float(np.exp(end))


FIGURES = (
    Figure(
        "edit_persistence", "Edit persistence",
        "share of the changed lines still there at the horizon, of episodes with a change", "share", "higher",
        _persistence,
    ),
    Figure(
        "dissatisfied_followup", "Dissatisfied follow-up",
        "mean probability that the next message says the answer was no good, of episodes with a follow-up",
        "share", "lower", _dissatisfied,
    ),
    Figure(
        "edit_rejected", "Edit rejected",
        "share of the episodes with a change in which one was refused or undone", "share", "lower", _rejected,
    ),
    Figure(
        "invalid_tool_calls", "Invalid tool calls",
        "share of the tool calls that do not parse, name no tool or fail its schema, where that is told",
        "share", "lower",
        _invalid,
    ),
    Figure(
        "clarified", "Asks", "share of the episodes that end in a question without a change", "share", "",
        _asks,
    ),
    Figure(
        "edited", "Edits", "share of the episodes that change code", "share", "",
        _share("edited", f"{NONE_TOLD}: a source that tells no edits looks the same"),
    ),
)  # fmt: skip
_FURTHER = (
    Figure(
        "latency", "Latency",
        "time of an episode over the running median for requests of its size, geometric mean; 1 is as usual",
        "ratio", "lower", _latency,
    ),
    Figure(
        "reward", "Reward", "mean reward by the reward spec, its terms for what is not known included",
        "number", "higher", _mean("reward"),
    ),
)  # fmt: skip
_TAKEN = Figure(  # of Tab-like completions
    "completion_accepted", "Completions taken", "share of the completions shown that were taken", "share",
    "higher", _share("completion_accepted", ""),
)  # fmt: skip


def headline(episodes: Episodes) -> tuple[Figure, ...]:
    """The figures of a report on these episodes: the usual ones and those of the team's own signals."""
    own = (
        _TAKEN
        if name == _TAKEN.name
        else Figure(
            name, name, "mean of the signal, of episodes where it is known", "number", "", _mean(name)
        )
        for name in episodes.own
        if not np.isnan(episodes.values[name]).all()
    )
    later = (
        Figure(
            name, f"Edit persistence after {after}", f"the same {after} after the edit", "share", "higher",
            _later(name),
        )
        for name, after in LATER.items()
        if name in episodes.values and not np.isnan(episodes.values[name]).all()
    )  # fmt: skip
    return (*FIGURES, *later, *_FURTHER, *own)
