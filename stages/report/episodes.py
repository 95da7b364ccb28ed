"""Episodes as columns, as the figures of a report want them.

Not for: reading them (`load.py`), what is read off them (`figures.py`), texts (`examples.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    pass

SIGNALS = (
    "edit_persistence",
    "edit_rejected",
    "dissatisfied_followup",
    "invalid_tool_calls",
    "clarified",
    "edited",
    "latency",
)
LATER = {"edit_persistence_24h": "a day", "edit_persistence_7d": "a week"}  # metric horizons
LABELS = ("agent", "model", "repository", "work", "stratum", "arm", "checkpoint")
# columns of the report alone; no signal of a team can have such a name
CALLS = "report.calls"  # how many tool calls an episode made, from its interactions
TOLD_CALLS = "report.told_calls"  # those of them of which the source says whether they were valid
_YEAR_3000 = 32_503_680_000_000  # ms; a plot needs room behind its last point, within the calendar

Floats = np.ndarray[Any, np.dtype[np.float64]]
Ints = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, eq=False)
class Labels:
    """One column of names: `names[codes[i]]` is that of episode i. codes [N]."""

    codes: Ints
    names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Episodes:
    """Episodes as columns, each [N]. nan is not known; times are ms since the epoch, 0 where not told.

    Attributes:
        own: signals beside the usual ones: a team's own, or of another setting.
    """

    user: Ints
    session: Ints
    at: Ints
    values: Mapping[str, Floats]
    labels: Mapping[str, Labels]
    own: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.at)

    def take(self, rows: Ints) -> Episodes:
        """Only these episodes."""
        return replace(
            self,
            user=self.user[rows],
            session=self.session[rows],
            at=self.at[rows],
            values={name: column[rows] for name, column in self.values.items()},
            labels={name: Labels(one.codes[rows], one.names) for name, one in self.labels.items()},
        )


def told_times(at: Any) -> Ints:
    """ms since the epoch [N], 0 where nobody can have been then: sources tell what they like."""
    times = np.asarray(at, dtype=np.int64)
    return np.where((times > 0) & (times < _YEAR_3000), times, 0)
