"""Signal `completion_accepted`: whether a completion that was shown was taken.

The setting of Tab-like completions (Cursor, "Tab RL", 2025-09-12): with weight 1 and offset 0.25 a taken
completion is worth +0.75, a dismissed one -0.25, one that was not shown 0 (the spec's `unknown`), so that
showing one pays from one acceptance in four on. Not for: whether the code stays (`edit_persistence.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from stages.distill.order import in_order
from stages.records import Event

_ENDS = {"completion_accepted": 1.0, "completion_rejected": 0.0}


def completion_accepted(events: Sequence[Event], answered_at: int, horizon_ms: int) -> float | None:
    """1 when it was taken, 0 when it was dismissed or passed over, None when it was not shown.

    Args:
        events: the episode's events, as they were received; the last verdict up to the horizon counts.
        answered_at: event time of the completion (ms).
        horizon_ms: a completion that was shown and not taken by then was passed over.
    """
    in_time = in_order(e for e in events if e.at <= answered_at + horizon_ms)
    ends = [e for e in in_time if e.type in _ENDS]
    if ends:
        return _ENDS[ends[-1].type]
    return 0.0 if any(e.type == "completion_shown" for e in in_time) else None
