"""The exclusion audit of distill: who leaves between the artifact and the gradient, and how they differ.

An exit that takes away bad episodes rewards whoever finds the way to it. So every exit is listed with the
share it took and with the reward and the behaviour of what it took, beside those of what stayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

KEPT = "trainable"


def audit(
    measured: pa.Table, reward: np.ndarray[Any, np.dtype[np.float64]], why_not: Sequence[str]
) -> list[dict[str, Any]]:
    """One row per reason, the trainable last. Means are null where nothing is known."""
    reasons = np.array([reason or KEPT for reason in why_not], dtype=object)
    total = max(1, len(reasons))
    names = [*sorted({str(reason) for reason in reasons} - {KEPT}), KEPT]
    rows = []
    for name in names:
        of = reasons == name
        rows.append(
            {
                "exit": name,
                "episodes": int(of.sum()),
                "share": round(float(of.sum()) / total, 6),
                "reward": _mean(reward[of]),
                "invalid_calls": _mean(measured["invalid_tool_calls"].to_numpy()[of]),
                "edited": _mean(measured["edited"].to_numpy()[of]),
                "clarified": _mean(measured["clarified"].to_numpy()[of]),
                "output_tokens": _mean(measured["output_tokens"].to_numpy()[of].astype(np.float64)),
            }
        )
    return rows


def _mean(values: np.ndarray[Any, np.dtype[np.float64]]) -> float | None:
    known = values[~np.isnan(values)]
    return round(float(known.mean()), 6) if len(known) else None
