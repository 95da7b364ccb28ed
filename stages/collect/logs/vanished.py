"""What the last collect of the same logs took and this one does not find: agents delete their logs in time.

Nothing is lost by that: artifacts stay, and `rtrl report --all` joins them. It is only said, with a count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from stages import schemas, tables
from stages.forget.since import Since

if TYPE_CHECKING:
    from stages.registry.store import Store


@dataclass(frozen=True)
class Vanished:
    """So many sessions with so many episodes are in the artifact `ref` and not in the logs any more."""

    ref: str
    sessions: int
    episodes: int


def vanished(
    store: Store, line: str, facts: Mapping[str, Any], folder: Path, keys_dir: Path
) -> Vanished | None:
    """Compare with the newest interactions of the same paths and flags; None without one, or without loss.

    Of users who were forgotten since nothing is missed: no report has it.

    Args:
        facts: of this collect's source. `folder`: the interactions it has just written.
        keys_dir: of the vault that knows who was forgotten.
    """
    for one in store.all_of("interactions", line):
        if one.meta["checkpoint"] or logs_of(one.meta.get("source") or {}) != logs_of(facts):
            continue
        before, now = _episodes(one.path), _episodes(folder)["session"].unique()
        missing = before.filter(pc.invert(pc.is_in(before["session"], value_set=now)))
        away = Since(store, keys_dir).lost(missing["user"].unique().to_pylist(), [one.digest])
        sealed = pc.is_in(missing["user"], value_set=pa.array(sorted(away), pa.string()))
        missed = missing.filter(pc.invert(sealed))["session"]
        return Vanished(one.ref, len(missed.unique()), len(missed)) if len(missed) else None
    return None


def logs_of(source: Mapping[str, Any]) -> tuple[object, ...]:
    """Which logs a collect read, by the facts of its source: of two that are equal one read them again."""
    paths = tuple(source.get("paths") or ())
    return paths, *(source.get(name) for name in ("kind", "user", "repository")), "received" in source


def _episodes(interactions: Path) -> pa.Table:
    """User and session of each episode."""
    columns = ["user", "session"]
    parts = tables.parts(interactions)
    read = [tables.read(part / schemas.EPISODES_FILE, schemas.EPISODES, columns) for part in parts]
    return pa.concat_tables(read).select(columns)
