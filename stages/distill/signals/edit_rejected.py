"""Signal `edit_rejected`: the user refused or undid an edit explicitly. 1 or 0, always known.

Within the training horizon of the edit; what comes later is for reports. A client that tells of no
rejections yields 0: whether clients tell is a matter for the spec's weights.
"""

from __future__ import annotations

from stages.distill.signals.edits import Edits


def edit_rejected(edits: Edits) -> float:
    """1.0 when any edit of the episode was rejected or reverted in time, made good or not."""
    return float(edits.ever_undone)
