"""What users met in one cycle, read off its interactions and experience, with intervals by user.

These are figures of use: requests that were answered before anything was trained on them. The
comparison of checkpoints on the same held-out users is `final.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stages.schemas import EPISODES_FILE, GENERATIONS_FILE
from stages.stage import Artifact

# name in tables and documents -> what it is
NAMES = {
    "edit_persistence": "of edits, the part still there after the horizon",
    "dissatisfied_followup": "next message expresses dissatisfaction",
    "latency_s": "seconds from request to the end of the last answer",
    "invalid_calls": "requests with a call that is broken",
    "ask_rate": "requests answered by a question and no edit",
}
_SIGNALS = {
    "edit_persistence": "edit_persistence",
    "dissatisfied_followup": "dissatisfied_followup",
    "ask_rate": "clarified",
}

Figures = dict[str, dict[str, float | int | None]]


def of_use(interactions: Artifact, experience: Artifact) -> Figures:
    """The five figures of one cycle's use, each with value, low, high, cases, clusters."""
    episodes = _rows(experience.path / EPISODES_FILE)
    busy: dict[str, float] = defaultdict(float)
    broken: dict[str, int] = defaultdict(int)
    for path in sorted(interactions.path.glob(f"*/{GENERATIONS_FILE}")):
        for row in _rows(path, ["episode", "duration_ms", "invalid_tool_calls"]):
            busy[row["episode"]] += row["duration_ms"] / 1000
            broken[row["episode"]] += row["invalid_tool_calls"]
    return estimate(
        [
            {
                "user": row["user"],
                **{name: row.get(signal) for name, signal in _SIGNALS.items()},
                "latency_s": busy[row["episode_id"]],
                "invalid_calls": float(broken[row["episode_id"]] > 0),
            }
            for row in episodes
        ]
    )


def estimate(rows: Sequence[Mapping[str, Any]]) -> Figures:
    """Means with 95 % intervals clustered by `user`; a value that is None is not known and left out."""
    from evals.stats.intervals import clustered

    users = [row["user"] for row in rows]
    figures: Figures = {}
    for name in NAMES:
        known = [0.0 if row[name] is None else 1.0 for row in rows]
        values = [0.0 if row[name] is None else float(row[name]) for row in rows]
        bounds = None if name == "latency_s" else (0.0, 1.0)
        figures[name] = clustered(values, known, users, bounds=bounds).to_json()
    return figures


def _rows(path: Path, columns: list[str] | None = None) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    rows: list[dict[str, Any]] = pq.read_table(path, columns=columns).to_pylist()
    return rows
