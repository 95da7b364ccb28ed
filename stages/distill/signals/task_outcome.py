"""Signal `task_outcome`: how a whole task ended, as whoever judged it says (tests, a review, a merge).

For long loops: feedback that comes hours later, is sparser and crisper. It is told once, about any generation
of the task, and is the reward of every generation of its chain. Not for: verdicts of the person in the loop
(`thumbs`, the next message), which are read by `dissatisfied_followup.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from stages.distill.order import in_order
from stages.records import Event


def task_outcome(events: Sequence[Event], answered_at: int, horizon_ms: int) -> float | None:
    """The last outcome told up to the horizon, in [-1, 1]; None without one.

    Args:
        events: the episode's events with their data opened, as they were received.
        answered_at: event time of the last answer (ms).
        horizon_ms: what comes later is for reports.
    """
    told = [
        float(value)
        for event in in_order(events)
        if event.type == "outcome"
        and event.at <= answered_at + horizon_ms
        and isinstance(value := event.data.get("value"), int | float)
    ]
    return min(1.0, max(-1.0, told[-1])) if told else None
