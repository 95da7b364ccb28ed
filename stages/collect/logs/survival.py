"""What a git repository tells of the edits in session logs: `edit_survival` events at fixed horizons, and
`edit_reverted` where the commit that took an edit was taken back by another (`git revert`).

The logs are read once for their edits before they are read to be sealed, so that what stands later comes
right behind the edit it is about. Matching and following: `cursorbench/history`.
Not for: what counts for a reward.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from cursorbench.history.beside import behind
from cursorbench.history.changes import HEAD, HORIZONS, Change, Survival
from cursorbench.history.follow import AMISS, follow_all
from cursorbench.history.repository import Repository
from cursorbench.history.reverts import reverted
from cursorbench.sessions.lines import Kept
from stages.collect.logs.clock import NONE, Clock, clock_of
from stages.collect.logs.edits import KeptEdits, place_of
from stages.collect.logs.state import Happened, Record
from stages.collect.sealing import Later
from stages.records import Event
from stages.stage import Progress
from stages.wording import count

_BRANCH = re.compile(r"(?<=its commit is on ).+(?=, which is not merged)", re.DOTALL)  # there are any number
_WHOLE = {"notes": "", "shallow": "", "partial": ""}  # of a whole clone without git-ai's notes


@dataclass
class Survivals:
    """What became of the edits, and the figures of it.

    Attributes:
        figures: edits by how their commit was recognised, kept lines by horizon, why others are not known.
        warnings: what the repository's user should know.
        reverted: when the commit that took an edit was taken back by another, by the edit's event.
        clock: what the history told of the zone of times without one; None where it was not asked.
    """

    events: Mapping[str, list[Counts]] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    reverted: Mapping[str, int] = field(default_factory=dict)
    clock: Clock | None = None

    def after(self, record: Record) -> Iterator[Record]:
        """The record, and behind an edit what became of it."""
        yield record
        if not isinstance(record, Happened) or record.event.type != "edit_applied":
            return
        told = record.event
        file = {"path": told.data.get("path", "")}  # as the log has it: what it is followed by may be longer
        for later in self.later(told.id):
            event = Event(
                id=f"{told.id}@{later.mark}", key_id=told.key_id, generation_id=told.generation_id,
                type=later.type, at=later.at, wall=later.at, data={**file, **later.data},
            )  # fmt: skip
            yield Happened(event, record.episode, record.user, derived=True)

    def later(self, edit: str) -> Iterator[Later]:
        """What came of an edit, by its event."""
        if (at := self.reverted.get(edit)) is not None:
            yield Later("reverted", "edit_reverted", at, {})
        for counts in self.events.get(edit, ()):
            yield Later(str(counts.horizon_s), "edit_survival", counts.at, counts.data())


@dataclass(frozen=True)
class Counts:
    """Lines of a file's changes in one episode, and those that stand at a horizon."""

    horizon_s: int
    at: int
    kept: Kept

    def data(self) -> dict[str, Any]:
        """As the event's data. Hunks of short lines count as lines."""
        kept = self.kept
        return {
            "horizon_s": self.horizon_s,
            "added": kept.added + kept.hunks,
            "added_kept": kept.added_kept + kept.hunks_kept,
            "deleted": kept.deleted,
            "deleted_kept": kept.deleted_kept,
        }


def repository_facts(path: Path) -> dict[str, str]:
    """The repository, the commit its history ends with, and what else an answer hangs on, "" for none.

    That there was none is told too: a run from before it was recorded has no word of it.
    Raises InputMissingError (5), UsageError (2).
    """
    path = place_of(path)
    with Repository(path) as repository:
        return {"path": str(path), "head": repository.commit("HEAD"), **_WHOLE, **repository.cut()}


def survivals(
    path: Path, head: str, edits: KeptEdits, progress: Progress, zone: ZoneInfo | None = None
) -> Survivals:
    """Follow all edits that were kept through the history that ends with `head`.

    Args:
        progress: told of each edit that was followed; its step is begun here.
        zone: of the times that a log tells without one; None asks the history.
    """
    events: dict[str, list[Counts]] = {}
    figures = Figures()
    reverts: dict[str, int] = {}
    progress.start(f"collect: following edits through {path.name}", len(edits))
    with Repository(path) as repository:
        told = edits.wall_clocks()
        clock = Clock(zone) if zone is not None or not told else clock_of(repository, head, told)
        edits.clock = clock if told else None
        taken_back = reverted(repository, head)
        seen = itertools.count(1)
        batches = follow_all(
            repository,
            edits.batches(),
            head,
            named=edits.named(),
            asked=lambda: progress.advance(0, f"{next(seen)} looked for"),
            followed=progress.advance,
        )
        for changes, found in batches:
            events |= _events(changes, found)
            figures.add(found)
            reverts |= {one.key: taken_back[one.commit] for one in found if one.commit in taken_back}
        warnings = [*repository.warnings, *_behind(repository), *figures.amiss(path), *_unzoned(clock)]
    counts = figures.told() | {
        "made_elsewhere": edits.elsewhere,
        "reverted": len(reverts),
        "zones": dict(clock.used.most_common()),
    }
    return Survivals(events, counts, tuple(warnings), reverts, clock if told else None)


def _behind(repository: Repository) -> list[str]:
    """Who has a clone fetched into, and nothing of it merged, has a HEAD that stays where it was."""
    if not (n := behind(repository)):
        return []
    return [
        f"{repository.path} is {count(n, 'commit')} behind the branch that it follows: of what they took "
        "nothing is known (merge them, or follow a `git clone --mirror`)"
    ]


def _unzoned(clock: Clock) -> list[str]:
    n = clock.used[NONE]
    if not n:
        return []
    return [f"{n} edits have a wall clock's time of an unknown zone, read as UTC: name it with --timezone"]


def _events(changes: Sequence[Change], found: Sequence[Survival]) -> dict[str, list[Counts]]:
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
                events[key].append(Counts(later // 1000, since + later, kept))
    return events


def merged(figures: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The figures of several repositories as if they were one."""
    counts = {name: sum(int(one[name]) for one in figures) for name in ("edits", "reverted")}
    named: dict[str, Any] = {
        name: dict(sum((Counter(one[name]) for one in figures), Counter[str]()).most_common())
        for name in ("recognised_by", "reasons")
    }
    lines: dict[str, Counter[str]] = defaultdict(Counter)
    for name, stands in ((name, stands) for one in figures for name, stands in one["kept"].items()):
        lines[name].update({"lines": stands["lines"], "kept": stands["kept"]})
    kept = {
        name: {
            **lines[name],
            "rate": lines[name]["kept"] / lines[name]["lines"] if lines[name]["lines"] else None,
        }
        for name in (*HORIZONS, HEAD)
        if name in lines
    }
    return counts | named | {"kept": kept}


class Figures:
    """What became of edits, counted."""

    def __init__(self) -> None:
        self._kept: dict[str, Kept] = {}
        self._how: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._standing = 0  # how many are in a commit

    def add(self, found: Sequence[Survival]) -> None:
        """More edits."""
        self._how.update(one.how or "nothing" for one in found)
        self._reasons.update(_BRANCH.sub("a branch", one.reason) for one in found if one.reason)
        self._standing += sum(not one.reason for one in found)
        for survival in found:
            for horizon, stands in survival.kept.items():
                self._kept[horizon] = self._kept.get(horizon, Kept()) + stands

    def amiss(self, repository: Path) -> list[str]:
        """A warning where it has none of the edits, and of most not because they are new or were undone."""
        why = Counter({reason: n for reason, n in self._reasons.items() if reason in AMISS})
        if self._standing or 2 * why.total() <= self._how.total():
            return []
        told = ", ".join(f"{reason} ({n})" for reason, n in why.most_common())
        edits = count(why.total(), "edit")
        return [f"{repository} has none of {edits}: {told}. Is it the repository that took them?"]

    def told(self) -> dict[str, Any]:
        """Edits by how their commit was recognised, why nothing is known, kept lines by horizon."""
        return {
            "edits": self._how.total(),
            "recognised_by": dict(self._how.most_common()),
            "reasons": dict(self._reasons.most_common()),
            "kept": {
                name: {"lines": kept.units, "kept": kept.kept, "rate": kept.rate}
                for name in (*HORIZONS, HEAD)
                if (kept := self._kept.get(name)) is not None
            },
        }
