"""Which sealed segments of the spool nobody needs any more, and their deletion (`rtrl gc`).

A segment goes, whole, when it is old enough; every line that is served, or is to be by the settings, has
settled all its records, also for the checkpoints that a rollback can bring back; and no event in it waits
for its generation.
Not for: forgetting a user, which destroys the user's key and leaves the segments.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from cursorbench.errors import UsageError
from stages.collect.older import problem_of
from stages.collect.position import settled_before
from stages.inbox.reader import old_segments
from stages.registry.gc import LAST_DEPLOYMENTS
from stages.spool import Spool
from stages.spool.index import SegmentRow

if TYPE_CHECKING:
    from stages.registry.store import Store
    from stages.workspace import Workspace

ACTIVE, YOUNG = "being written", "younger than {:g} days"
OLDER = "the spool is older than the registry: `rtrl verify` says what to do"
OPEN, WAITING = "a collect of line {} may still need it", "an event in it waits for its generation"


@dataclass
class Retention:
    """What may be deleted of the spool; how many segments are kept, by the first reason that holds."""

    remove: list[SegmentRow] = field(default_factory=list)
    kept: Counter[str] = field(default_factory=Counter)

    @property
    def bytes(self) -> int:
        """What deleting would free."""
        return sum(row.bytes for row in self.remove)


def plan(
    workspace: Workspace, store: Store, keep_days: float, now: float, retired: Collection[str] = ()
) -> Retention:
    """What may go, for records written before `now` (s since 1970) less `keep_days`. Deletes nothing.

    `retired`: lines on which nobody will collect any more; see `require_retired`.
    """
    if not workspace.spool_dir.is_dir():
        return Retention()
    spool = Spool.open(workspace.spool_dir)
    try:
        if problem_of(store, workspace.spool_dir):
            return Retention(kept=Counter({OLDER: len(spool.segments())}))
        return _plan(spool, *settled(workspace, store, retired), keep_days, now)
    finally:
        spool.close()


def delete(
    workspace: Workspace, store: Store, keep_days: float, now: float, retired: Collection[str] = ()
) -> Retention:
    """Delete what the plan, made anew, says. After a kill half-way, whoever opens the spool finishes it."""
    decided = plan(workspace, store, keep_days, now, retired)
    if decided.remove:
        spool = Spool.open(workspace.spool_dir)
        try:
            spool.delete([row.id for row in decided.remove])
        finally:
            spool.close()
    return decided


def received(workspace: Workspace, store: Store, keep_days: float, now: float) -> list[Path]:
    """Segments of received records that are old and that are in the artifact of a `collect --received`.

    By number and time: what was received after all of it was lost has low numbers again.
    """
    for one in store.all_of("interactions"):
        if told := (one.meta.get("source") or {}).get("received"):
            made = datetime.fromisoformat(one.created_at).timestamp()
            found = old_segments(workspace.inbox_dir, keep_days, now, told["last_seq"])
            return [path for path in found if _written(path) <= made]
    return []


def require_retired(workspace: Workspace, store: Store, retired: Collection[str]) -> None:
    """Refuse, as retired, a line that is worked on, or none at all. Raises UsageError (2)."""
    settings = workspace.settings
    in_use = {settings.workspace.line, settings.workspace.serves, *settings.populations}
    for line in retired:
        if line in in_use:
            raise UsageError(
                f"line {line} is worked on: the settings name it",
                hint="take it out of the settings first; what is not collected by then will be gone",
            )
        if line not in (there := store.lines()):
            raise UsageError(f"nothing was ever deployed on line {line!r}", hint=f"lines: {', '.join(there)}")


def settled(workspace: Workspace, store: Store, retired: Collection[str] = ()) -> tuple[int, str]:
    """Records before this seq will not be collected for any checkpoint that is, or may again be, live.

    And the line whose collects need what comes next. `retired` lines need nothing; a population's line
    that is to begin yet, everything.
    """
    to_begin = [line for line in workspace.settings.populations if store.alias(line, "live") is None]
    found = [(0, line) for line in to_begin]
    for line in sorted({*store.lines()} - {*retired}):
        checkpoints: set[str] = set()
        live = store.alias(line, "live")
        if live is not None:
            checkpoints.add(live.digest)
        last = store.deployments.served(line, LAST_DEPLOYMENTS)
        for deployment in (*store.deployments.unfinished(line), *last):
            checkpoints |= {deployment.checkpoint, deployment.previous or deployment.checkpoint}
        config = workspace.on_line(line).settings.collect
        found += [(settled_before(store, digest, line, config), line) for digest in checkpoints]
    return min(found, default=(0, workspace.settings.workspace.line))


def _plan(spool: Spool, before: int, line: str, keep_days: float, now: float) -> Retention:
    found = Retention()
    waiting = spool.waiting_segments()
    for row in spool.segments():
        if row.state != "sealed":
            found.kept[ACTIVE] += 1
        elif now - _written(spool.path_of(row.id)) < keep_days * 86400:
            found.kept[YOUNG.format(keep_days)] += 1
        elif row.last_seq >= before:
            found.kept[OPEN.format(line)] += 1
        elif row.id in waiting:
            found.kept[WAITING] += 1
        else:
            found.remove.append(row)
    return found


def _written(path: Path) -> float:
    """When the segment got its last record (s since 1970); a file that is gone counts as old."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
