"""What a git repository tells of the edits in session logs: `edit_survival` events at fixed horizons.

The logs are read once for their edits before they are read to be sealed, so that what stands later comes
right behind the edit it is about. Matching and following: `cursorbench/history`.
Not for: what counts for a reward.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cursorbench.history.changes import HEAD, HORIZONS, Change, Survival
from cursorbench.history.follow import follow
from cursorbench.history.repository import Repository
from cursorbench.sessions.lines import Kept
from stages.collect.logs.state import Happened, Record
from stages.collect.logs.turns import Turns
from stages.records import Event


@dataclass
class Survivals:
    """What became of the edits, and the figures of it.

    Attributes:
        figures: edits by how their commit was recognised, kept lines by horizon, why others are not known.
        warnings: what the repository's user should know.
    """

    events: Mapping[str, list[Counts]] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def after(self, record: Record) -> Iterator[Record]:
        """The record, and behind an edit what became of it."""
        yield record
        if not isinstance(record, Happened) or record.event.type != "edit_applied":
            return
        told = record.event
        for counts in self.events.get(told.id, ()):
            event = Event(
                id=f"{told.id}@{counts.horizon_s}", key_id=told.key_id, generation_id=told.generation_id,
                type="edit_survival", at=counts.at, wall=counts.at, data=counts.data(),
            )  # fmt: skip
            yield Happened(event, record.episode, record.user, derived=True)


@dataclass(frozen=True)
class Counts:
    """Lines of a file's changes in one episode, and those that stand at a horizon."""

    path: str
    horizon_s: int
    at: int
    kept: Kept

    def data(self) -> dict[str, Any]:
        """As the event's data. Hunks of short lines count as lines."""
        kept = self.kept
        return {
            "path": self.path,
            "horizon_s": self.horizon_s,
            "added": kept.added + kept.hunks,
            "added_kept": kept.added_kept + kept.hunks_kept,
            "deleted": kept.deleted,
            "deleted_kept": kept.deleted_kept,
        }


def repository_facts(path: Path) -> dict[str, str]:
    """The repository and the commit its history ends with. Raises InputMissingError (5), UsageError (2)."""
    with Repository(path) as repository:
        return {"path": str(path), "head": repository.commit("HEAD")}


def survivals(path: Path, head: str, turns: Turns) -> Survivals:
    """Follow all edits that `turns` has kept through the history that ends with `head`."""
    changes = turns.changes()
    with Repository(path) as repository:
        found = list(follow(repository, changes, head))
        warnings = repository.warnings
    figures = _figures(found) | {"made_elsewhere": turns.edits_elsewhere}
    return Survivals(_events(changes, found), figures, warnings)


def _events(changes: list[Change], found: list[Survival]) -> dict[str, list[Counts]]:
    """By the last edit of each file in an episode: what of all its edits there stands."""
    total: dict[tuple[str, str], dict[str, Kept]] = defaultdict(dict)
    last: dict[tuple[str, str], tuple[str, int]] = {}
    for change, survival in zip(changes, found, strict=True):
        place = change.session, change.path
        last[place] = change.key, survival.since or change.at or 0
        for horizon in HORIZONS:
            if horizon in survival.kept:
                total[place][horizon] = total[place].get(horizon, Kept()) + survival.kept[horizon]
    events: dict[str, list[Counts]] = defaultdict(list)
    for place, by_horizon in total.items():
        key, since = last[place]
        for horizon, kept in by_horizon.items():
            if kept.units:
                later = HORIZONS[horizon]
                events[key].append(Counts(place[1], later // 1000, since + later, kept))
    return events


def _figures(found: list[Survival]) -> dict[str, Any]:
    kept: dict[str, Kept] = {}
    for survival in found:
        for horizon, stands in survival.kept.items():
            kept[horizon] = kept.get(horizon, Kept()) + stands
    return {
        "edits": len(found),
        "recognised_by": dict(Counter(one.how or "nothing" for one in found).most_common()),
        "reasons": dict(Counter(one.reason for one in found if one.reason).most_common()),
        "kept": {
            name: {"lines": kept[name].units, "kept": kept[name].kept, "rate": kept[name].rate}
            for name in (*HORIZONS, HEAD)
            if name in kept
        },
    }
