"""Signal `edit_rejected`: the user refused or undid an edit explicitly. 1 or 0, always known.

A client that tells of no rejections yields 0: whether clients tell is a matter for the spec's weights.
"""

from __future__ import annotations

from collections.abc import Sequence

from stages.records import Event


def edit_rejected(events: Sequence[Event]) -> float:
    """1.0 when any edit of the episode was rejected or reverted."""
    return float(any(event.type in ("edit_rejected", "edit_reverted") for event in events))
