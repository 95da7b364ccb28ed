"""Which behaviours are watched, in which direction they do harm, and how each is read off episodes.

A behaviour is a ratio over episodes, sum of `over` by sum of `under`, so that "calls per turn" is one as
well as "share of episodes that edit". Which direction does harm is stated where it is known: there an
alarm comes only from that side, for an improving policy changes a great deal. Where it is not known, both
sides are watched, against how far the line is used to moving. Not for: when to call (`charts.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Harm = Literal["up", "down", "both"]
Scale = Literal["share", "part", "amount"]


@dataclass(frozen=True)
class Behaviour:
    """One behaviour: columns of the episodes, and what is known of it.

    Attributes:
        over, under: column names; "1" counts every episode. Unknown (nan) in either leaves the episode out.
        harm: which direction does harm, as far as is known.
        scale: "share" of cases that do it or not; "part" of an amount, in [0, 1]; "amount", at least 0.
        what: for tables.
        above: where given, what is counted is whether `over` is above this.
    """

    over: str
    under: str
    harm: Harm
    scale: Scale
    what: str
    above: float | None = None


BEHAVIOURS: Mapping[str, Behaviour] = {
    "edit_rate": Behaviour("edited", "1", "both", "share", "episodes that change code"),
    "ask_rate": Behaviour("clarified", "1", "up", "share", "episodes that end in a question and no edit"),
    "invalid_calls": Behaviour(
        "invalid_tool_calls", "1", "up", "share", "episodes with a call that is broken", above=0.0
    ),
    "output_tokens": Behaviour("output_tokens", "1", "both", "amount", "tokens an episode"),
    "turns": Behaviour("n_generations", "1", "both", "amount", "model calls an episode"),
    "calls_per_turn": Behaviour("n_calls", "n_generations", "both", "amount", "tool calls a model call"),
    "parallel_calls": Behaviour(
        "parallel_turns", "calling_turns", "both", "share", "calling turns with several calls at once"
    ),
    "comment_share": Behaviour(
        "comment_chars", "written_chars", "both", "part", "of written code, characters in comments"
    ),
    "function_length": Behaviour(
        "function_lines", "functions", "both", "amount", "lines a function in written code"
    ),
    "lines_added": Behaviour("lines_added", "edited", "both", "amount", "lines added an episode that edits"),
    "lines_deleted": Behaviour(
        "lines_deleted", "edited", "both", "amount", "lines deleted an episode that edits"
    ),
    "terminal_only": Behaviour(
        "terminal_only", "1", "up", "share", "episodes whose only tool is the terminal"
    ),
    "silent": Behaviour("silent", "1", "up", "share", "episodes without any signal"),
    "left_out": Behaviour(
        "left_out", "1", "up", "share", "of episodes, what gives no gradient, by neither user nor clock"
    ),
    "edit_persistence": Behaviour("edit_persistence", "1", "down", "part", "of edits, what is still there"),
    "edit_rejected": Behaviour(
        "edit_rejected", "1", "up", "share", "episodes with an edit refused or undone"
    ),
    "dissatisfied_followup": Behaviour(
        "dissatisfied_followup", "1", "up", "part", "next messages that express dissatisfaction"
    ),
    "completion_accepted": Behaviour(
        "completion_accepted", "1", "down", "share", "of completions that were shown, those that were taken"
    ),
}

# What users tell, and in which direction it is good: the evidence that training reward is held against.
USER_SIGNALS: Mapping[str, Literal[1, -1]] = {
    "edit_persistence": 1,
    "edit_persistence_24h": 1,
    "edit_persistence_7d": 1,
    "completion_accepted": 1,
    "task_outcome": 1,
    "edit_rejected": -1,
    "dissatisfied_followup": -1,
}


def ratios(columns: Mapping[str, Floats]) -> dict[str, tuple[Floats, Floats]]:
    """Numerator and denominator of each behaviour whose columns are there, [E] each; unknown is 0 and 0.

    Args:
        columns: episode columns [E] by name, nan where not known.
    """
    found = {}
    for name, behaviour in BEHAVIOURS.items():
        if behaviour.over in columns and (behaviour.under == "1" or behaviour.under in columns):
            over = columns[behaviour.over]
            under = np.ones(len(over)) if behaviour.under == "1" else columns[behaviour.under]
            if behaviour.above is not None:
                over = np.where(np.isnan(over), np.nan, over > behaviour.above)
            known = ~np.isnan(over) & ~np.isnan(under)
            found[name] = np.where(known, over, 0.0), np.where(known, under, 0.0)
    return found


def possible(name: str, value: float) -> float:
    """A reweighted figure as people read it: a share stays in [0, 1], an amount is at least 0.

    What the requests explain is taken off the measured value, so few cases can end beyond. Charts and JSON
    keep the number as it is.
    """
    return max(value, 0.0) if BEHAVIOURS[name].scale == "amount" else min(max(value, 0.0), 1.0)


def contentment(columns: Mapping[str, Floats], names: Mapping[str, Literal[1, -1]]) -> Floats:
    """Mean of each episode's known user signals, turned so that up is good, [E]; nan: none is known."""
    told = np.stack([sign * columns[name] for name, sign in names.items()])
    known = ~np.isnan(told)
    counts = known.sum(axis=0)
    total = np.where(known, told, 0.0).sum(axis=0)
    return np.asarray(np.where(counts > 0, total / np.maximum(counts, 1), np.nan))
