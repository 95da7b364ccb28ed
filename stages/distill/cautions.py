"""What `distill` warns of before a window is trained on: signals that nobody told, or one side of alone.

Not for: what left the window (`exits.py`), feedback that the settings do not explain (`run.py`).
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa

from stages.distill.score import Scored


def cautions(signals: Collection[str], scored: Scored, measured: pa.Table) -> list[str]:
    """Warnings, in words; `signals` are the reward spec's, `measured` has the columns of `measure.MEASURED`.

    Of session logs, which no checkpoint sampled, it is no news that some signals are told by none, and that
    nothing can be trained on.
    """
    of_logs = not any(measured["checkpoint"].to_pylist())
    found = []
    if not of_logs:
        found += [
            f"no episode has a known {name}: does the client send the events it is read from?"
            for name in signals
            if np.isnan(scored.values[name]).all()
        ]
        found += ["no episode can be trained on; the audit says why"] if all(scored.why_not) else []
    return found + (_only_lost(measured, of_logs) if "edit_persistence" in signals else [])


def _only_lost(measured: pa.Table, of_logs: bool) -> list[str]:
    """Where persistence is known of undone edits alone, which it is 0 of by rule: an edit can only lose."""
    kept, rejected, edited = (
        measured[name].to_numpy() for name in ("edit_persistence", "edit_rejected", "edited")
    )
    known = ~np.isnan(kept)
    others = int(((edited > 0) & ~known).sum())
    if not known.any() or not others or not ((kept[known] == 0) & (rejected[known] > 0)).all():
        return []
    who = (
        "name the repository that took them (`rtrl collect --repo`)"
        if of_logs
        else "does the client send `edit_survival`?"
    )
    return [
        f"edit_persistence is known of {int(known.sum())} edits that were undone or refused, and of none of "
        f"the {others} others, so that an edit can only lose: {who}"
    ]
