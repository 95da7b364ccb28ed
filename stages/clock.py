"""The time of day in the unit of all records: milliseconds since the epoch."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Now, by this machine's clock."""
    return time.time_ns() // 1_000_000
