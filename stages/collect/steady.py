"""What a clock that was set back took from the times of generations: by how much the later ones are early.

The spool's order is that in which answers were complete, which no clock says. Where that goes on and the time
goes back, the clock was set back: by its times a request came before the one that it follows, and what was
said of one answer would be taken for said of the other. Pure, on columns. Not for: a clock that was set
ahead, which nothing tells from a pause; times that clients tell.

    G  generations, in the order of the spool
"""

from __future__ import annotations

import numpy as np

from stages.collect.scan import Ints, Scan

_LATE_MS = 10_000  # that a complete answer may wait for the disk while others are recorded


def set_back(scan: Scan) -> Ints:
    """By how much (ms) each `wall` is early, as far as the order tells, [G]."""
    wall = np.asarray(scan.generations["wall"], dtype=np.int64)
    complete = wall + np.asarray(scan.generations["duration_ms"], dtype=np.float64).astype(np.int64)
    early = np.zeros(len(wall), dtype=np.int64)
    if not len(wall) or (np.maximum.accumulate(complete) - complete).max() <= _LATE_MS:
        return early  # as nearly always
    latest, by = int(complete[0]), 0
    for row, (came, done) in enumerate(zip(wall.tolist(), complete.tolist(), strict=True)):
        if latest - (done + by) > _LATE_MS:
            by = latest - came  # asked at that instant: of a pause at the step nothing is left
        early[row] = by
        latest = max(latest, done + by)
    return early
