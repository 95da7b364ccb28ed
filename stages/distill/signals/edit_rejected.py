"""Signal `edit_rejected`: the user refused or undid an edit explicitly. 1 or 0, always known.

Within the training horizon of the edit; what comes later is for reports. A client that tells of no
rejections yields 0: whether clients tell is a matter for the spec's weights.
"""

from __future__ import annotations

from collections.abc import Sequence

from stages.distill.signals.edit_persistence import undoing
from stages.records import Event


def edit_rejected(events: Sequence[Event], answered_at: int, horizon_ms: int) -> float:
    """1.0 when any edit of the episode was rejected or reverted in time. Arguments as `edit_persistence`."""
    return float(bool(undoing(events, answered_at, horizon_ms)))
