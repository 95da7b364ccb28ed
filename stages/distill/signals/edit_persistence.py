"""Signal `edit_persistence`: of the change the user's code received, the part still there at the horizon.

Per file the change is the one from before the episode's first edit to after its last: a rewrite inside
the episode supersedes. What stands later is a client's `edit_survival` event. An explicit revert or refusal
(`edit_reverted`, `edit_rejected`) loses that file's change, measured or not; an edit that was refused and
never applied counts as one line lost. A rewrite after a complaint belongs to another episode and is a loss
here, because the lines are gone. How lines are matched: `cursorbench/sessions/lines.py`.

Only what happens up to the horizon counts: a revert the day after is for reports.

Unknown (None) until some file of the episode was measured at the horizon, reverted or refused, and when
nothing was changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from cursorbench.sessions.lines import Kept, changed, persistence, sides_of_diff
from stages.records import Event

UNDONE = ("edit_rejected", "edit_reverted")
LATEST = 2.0  # a measurement later than this many horizons is for reports, not for training


@dataclass
class Change:
    """What an episode did to one file. `before` and `after` are whole texts, or a diff's two sides."""

    path: str
    before: str
    after: str
    at: int


def changes(events: Sequence[Event]) -> dict[str, Change]:
    """The net change of each file, by path; edits in order of event time. Empty changes are left out."""
    found: dict[str, Change] = {}
    for event in sorted((e for e in events if e.type == "edit_applied"), key=lambda e: (e.at, e.wall, e.id)):
        sides = _sides(event)
        if sides is None:
            continue
        path = _path(event)
        if path in found:
            found[path].after, found[path].at = sides[1], event.at
        else:
            found[path] = Change(path, *sides, event.at)
    return {path: change for path, change in found.items() if changed(change.before, change.after)}


def edit_persistence(
    events: Sequence[Event], answered_at: int, horizon_ms: int, done: Mapping[str, Change] | None = None
) -> float | None:
    """Kept lines over changed lines, all measured files together, in [0, 1].

    Args:
        events: the episode's events with their data opened, in any order.
        answered_at: event time of the last answer (ms): when an edit was proposed that was never applied.
        horizon_ms: how long after the edit the training horizon lies.
        done: `changes(events)`, when the caller has it.
    """
    total = Kept()
    done = changes(events) if done is None else done
    measured = _measurements(events, horizon_ms)
    undone = _undone(undoing(events, answered_at, horizon_ms), events, done, measured.keys(), horizon_ms)
    for path in sorted(done.keys() | measured.keys() | undone):
        kept = _kept(done.get(path), measured.get(path))
        if path in undone:
            kept = (kept or _whole(done.get(path))).lost()
        if kept is not None:
            total += kept
    return total.rate


def undoing(events: Sequence[Event], answered_at: int, horizon_ms: int) -> list[Event]:
    """Reverts and refusals within the horizon of an edit of their file, or of any edit when they name none.

    Where no such edit was applied before, within the horizon of the answer that proposed it.
    """
    applied = [e for e in events if e.type == "edit_applied"]
    found = []
    for event in events:
        path = _path(event)
        at = [e.at for e in applied if e.at <= event.at and path in ("", _path(e))]
        if event.type in UNDONE and event.at <= max(at, default=answered_at) + horizon_ms:
            found.append(event)
    return found


def _undone(
    by: Sequence[Event],
    events: Sequence[Event],
    done: Mapping[str, Change],
    measured: Set[str],
    horizon_ms: int,
) -> set[str]:
    """Files undone after their last edit, and files with a refused edit that was never applied.

    Who names no file means all that were edited; "" stands for one that nothing is known of.
    """
    applied = {_path(e) for e in events if e.type == "edit_applied"}
    found: set[str] = set()
    for event in by:
        path = _path(event)
        for name in {path} if path else (applied | measured or {""}):
            change = done.get(name)
            in_time = change is not None and change.at <= event.at <= change.at + horizon_ms
            if in_time or name not in applied:
                found.add(name)
    return found


def _path(event: Event) -> str:
    return str(event.data.get("path") or "")


def _whole(change: Change | None) -> Kept:
    """All of a change; one line where it was proposed and never seen."""
    return Kept(added=1) if change is None else persistence(change.before, change.after, change.after)


def _kept(change: Change | None, survival: Event | None) -> Kept | None:
    """What of a file's change is left by a measurement; None when it does not tell."""
    if survival is None:
        return None
    data = survival.data
    counts = [data.get(name) for name in ("added", "added_kept", "deleted", "deleted_kept")]
    if all(isinstance(n, int) and not isinstance(n, bool) for n in counts):
        added, added_kept, deleted, deleted_kept = (max(0, int(n)) for n in counts if n is not None)
        return Kept(added, min(added, added_kept), deleted, min(deleted, deleted_kept))
    now = data.get("now")
    if not isinstance(now, str):
        return None
    if change is None:
        before, after = data.get("before"), data.get("after")
        if not isinstance(before, str) or not isinstance(after, str):
            return None
        return persistence(before, after, now)
    return persistence(change.before, change.after, now)


def _measurements(events: Sequence[Event], horizon_ms: int) -> dict[str, Event]:
    """The first measurement at or after the horizon, by path."""
    found: dict[str, Event] = {}
    for event in events:
        delay = event.data.get("horizon_s")
        if event.type != "edit_survival" or not isinstance(delay, int | float):
            continue
        path = _path(event)
        if horizon_ms <= 1000 * delay <= LATEST * horizon_ms and (
            path not in found or _order(event) < _order(found[path])
        ):
            found[path] = event
    return found


def _order(event: Event) -> tuple[float, int, int, str]:
    return (float(event.data["horizon_s"]), event.at, event.wall, event.id)


def _sides(event: Event) -> tuple[str, str] | None:
    before, after = event.data.get("before"), event.data.get("after")
    if isinstance(before, str) and isinstance(after, str):
        return before, after
    diff = event.data.get("diff")
    return sides_of_diff(diff) if isinstance(diff, str) else None
