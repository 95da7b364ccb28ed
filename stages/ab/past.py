"""Each user's figures from before a canary opened: what CUPED takes away of the difference.

Two sources, both settled before the first user was given to the canary, so that the arms cannot have
touched them: episodes of the look's own window that were mature by then, and the experience of earlier
cycles. An episode counts once. A user who came later has no past; CUPED takes the mean for one
(`evals/ab/arms.py`), which is the same in both arms because arms are drawn without looking at it.
Not for: what users did since (`observe.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from evals.ab.arms import Users
from stages.ab.counted import Columns

Past = Mapping[str, Mapping[str, float]]  # metric -> user (`counted.py`) -> mean over the user's episodes


def values_of(metric: str, column: Iterable[object]) -> list[float]:
    """A signal's values as the metric counts them; NaN where it is not known."""
    raw = [math.nan if value is None else float(str(value)) for value in column]
    if metric == "invalid_calls":
        return [value if math.isnan(value) else float(value > 0) for value in raw]
    return raw


def past_of(parts: Iterable[Columns], signals: Mapping[str, str]) -> Past:
    """Means per metric and user over all episodes of `parts`, each once.

    Args:
        signals: name of the column by metric.
    """
    sums: dict[str, dict[str, list[float]]] = {metric: {} for metric in signals}
    seen: set[object] = set()
    for columns in parts:
        new = [row for row, episode in enumerate(columns["episode_id"]) if episode not in seen]
        seen.update(columns["episode_id"])
        for metric, signal in signals.items():
            values = values_of(metric, (columns[signal][row] for row in new))
            for row, value in zip(new, values, strict=True):
                if not math.isnan(value):
                    sums[metric].setdefault(str(columns["unit"][row]), []).append(value)
    return {
        metric: {user: sum(values) / len(values) for user, values in users.items()}
        for metric, users in sums.items()
    }


def known_before(arm: Users) -> int:
    """How many of an arm's users have a past."""
    return 0 if arm.before is None else int((~np.isnan(arm.before)).sum())


def enough(control: Users, treated: Users, users: int) -> tuple[Users, Users]:
    """Both arms with their past, where that is known of `users` in all at least; else without."""
    if known_before(control) + known_before(treated) >= users:
        return control, treated
    return Users(control.sums, control.counts), Users(treated.sums, treated.counts)
