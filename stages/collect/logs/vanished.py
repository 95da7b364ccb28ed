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

if TYPE_CHECKING:
    from stages.registry.store import Store

_SAME = ("paths", "kind", "user", "repository")


@dataclass(frozen=True)
class Vanished:
    """So many sessions with so many episodes are in the artifact `ref` and not in the logs any more."""

    ref: str
    sessions: int
    episodes: int


def vanished(store: Store, line: str, facts: Mapping[str, Any], folder: Path) -> Vanished | None:
    """Compare with the newest interactions of the same paths and flags; None without one, or without loss.

    Args:
        facts: of this collect's source. `folder`: the interactions it has just written.
    """
    for one in store.all_of("interactions", line):
        told = one.meta.get("source") or {}
        if one.meta["checkpoint"] or any(told.get(name) != facts.get(name) for name in _SAME):
            continue
        before, now = _sessions(one.path), _sessions(folder)
        missing = before.filter(pc.invert(pc.is_in(before, value_set=now.unique())))
        if not len(missing):
            return None
        return Vanished(one.ref, len(missing.unique()), len(missing))
    return None


def _sessions(interactions: Path) -> pa.Array:
    """The session of each episode."""
    read = [
        tables.read(part / schemas.EPISODES_FILE, schemas.EPISODES, ["session"])["session"]
        for part in tables.parts(interactions)
    ]
    return pa.chunked_array([chunk for one in read for chunk in one.chunks], pa.string()).combine_chunks()
