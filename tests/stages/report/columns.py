"""Episodes by hand, for the tests of the report: one dict each, what is left away is not known."""

from __future__ import annotations

from typing import Any

import numpy as np

from stages.report.episodes import CALLS, LABELS, LATER, SIGNALS, TOLD_CALLS, Episodes, Labels

ALWAYS = {"edit_rejected": 0.0, "edited": 0.0, "clarified": 0.0, "invalid_tool_calls": 0.0, CALLS: 0.0}


def episodes(*rows: dict[str, Any], own: tuple[str, ...] = ()) -> Episodes:
    """Each row may tell user, session, at, labels and signals; by default each is a user of its own."""

    def coded(name: str, default: Any) -> Labels:
        names = [str(row.get(name, default(n))) for n, row in enumerate(rows)]
        found = tuple(dict.fromkeys(names))
        return Labels(np.array([found.index(one) for one in names], dtype=np.int64), found)

    values = {
        name: np.array([row.get(name, ALWAYS.get(name, np.nan)) for row in rows], dtype=np.float64)
        for name in (*SIGNALS, *LATER, "reward", CALLS, *own)
    }
    told = [row.get(TOLD_CALLS, row.get(CALLS, 0.0)) for row in rows]  # all of them unless it says so
    values[TOLD_CALLS] = np.array(told, dtype=np.float64)
    return Episodes(
        user=coded("user", lambda n: n).codes,
        session=coded("session", lambda n: n).codes,
        at=np.array([row.get("at", 0) for row in rows], dtype=np.int64),
        values=values,
        labels={name: coded(name, lambda n: "") for name in LABELS},
        own=own,
    )
