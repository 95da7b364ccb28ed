"""What a collect leaves behind, counted: episodes and events by reason, and events that no weight moves by.

Pure, on columns. Not for: deciding it (`plan.py`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from stages.collect.plan import REASONS, Plan
from stages.collect.scan import EVENT_CODE, Scan

EVENT_REASONS = {
    "no_generation": "its generation is not in the window: settled before it, of another line, or deleted",
    "foreign_key": "sent by another API key than the one that made the generation",
}
_EARLY_MS = 60_000
_LASTING = (
    "no_train",
    "consumed",
    "arm",
    "unrelated",
    *EVENT_REASONS,
)  # met again, it is for the same reason


def left_behind(decided: Plan) -> dict[str, int]:
    """Episodes that are not taken, by reason."""
    counts = np.bincount(decided.left[decided.left >= 0], minlength=len(REASONS))
    return {name: int(n) for name, n in zip(REASONS, counts, strict=True) if n}


def events_left_behind(scan: Scan, decided: Plan) -> dict[str, int]:
    """Events that are not taken, by reason: their episode's, or one of `EVENT_REASONS`."""
    names = (*REASONS, *EVENT_REASONS)
    code = np.full(len(scan.v_seq), names.index("no_generation"))
    known = scan.v_generation >= 0
    code[known] = decided.left[scan.g_episode[scan.v_generation[known]]]
    code[known & ~scan.v_own_key] = names.index("foreign_key")
    counts = np.bincount(code[~decided.take_event], minlength=len(names))
    return {name: int(n) for name, n in zip(names, counts, strict=True) if n}


def events_after_horizon(scan: Scan, decided: Plan, horizon_ms: int) -> int:
    """Events of taken episodes that happened when their training horizon had passed: no weight moves by them.

    Measurements of what stands of an edit are left out, which are made at a horizon and have their own.
    """
    found = decided.take_event & (scan.v_type != EVENT_CODE["edit_survival"])
    ripe = decided.ripe_at(horizon_ms)[scan.g_episode[scan.v_generation[found]]]
    return int((scan.v_at[found] > ripe).sum())


def events_early(scan: Scan, decided: Plan) -> int:
    """Taken events that are dated more than a minute before the request that they are about.

    No clock of today is so far off; a local time without its offset is.
    """
    found = decided.take_event
    return int((scan.v_at[found] + _EARLY_MS < scan.g_at[scan.v_generation[found]]).sum())


def events_too_late(scan: Scan, decided: Plan, read_to: int) -> int:
    """Events that no collect has waited for: of episodes that were trained on, or settled, before they came.

    Args:
        read_to: the last seq that the collect before this one had, 0 without one. What came up to then about
            such an episode was taken with it, or counted there.
    """
    late = (scan.v_generation < 0) & ~scan.v_elsewhere
    known = np.flatnonzero(scan.v_own_key)
    left = decided.left[scan.g_episode[scan.v_generation[known]]]
    late[known] = left == list(REASONS).index("consumed")
    return int((late & (scan.v_seq > read_to)).sum()) if read_to else 0


def left_again(scan: Scan, decided: Plan, read_to: int) -> dict[str, dict[str, int]]:
    """What of `left_behind` and `events_left_behind` the collect before, which had read so far, told too."""
    before = np.where(scan.g_seq[decided.last_row] <= read_to, decided.left, -1)
    since = decided.take_event | (scan.v_seq > read_to)
    found = {
        "left_behind": left_behind(replace(decided, left=before)),
        "events_left_behind": events_left_behind(scan, replace(decided, take_event=since)),
    }
    return {name: {why: n for why, n in of.items() if why in _LASTING} for name, of in found.items()}


def samplers(scan: Scan, decided: Plan) -> dict[str, int]:
    """Generations taken, by the checkpoint that sampled them."""
    total: dict[str, int] = {}
    codes, counts = np.unique(scan.g_samplers[decided.take_generation], return_counts=True)
    for code, n in zip(codes, counts, strict=True):
        for digest in scan.samplers[code]:
            total[digest] = total.get(digest, 0) + int(n)
    return dict(sorted(total.items()))
