"""Signal `edit_persistence`: of the change the user's code received, the part still there at the horizon.

Which changes those are, and which ended undone: `edits.py`. What stands later is a client's `edit_survival`
event. A change that ended undone is lost, measured or not; a proposal that was refused and never applied is
a lost change too, of the lines it came with (`before` and `after`, or `diff`) or else of one. Everything is
added up line by line. A rewrite after a complaint belongs to another episode and is a loss here, because
the lines are gone. How lines are matched: `cursorbench/sessions/lines.py`; parts of lines: `fragments.py`.

Only what happens up to the horizon counts: a revert the day after is for reports.

Unknown (None) until some change of the episode was measured at the horizon, undone or refused, and when
nothing was changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from cursorbench.sessions.lines import Kept, persistence, persistence_of_all
from stages.distill.order import in_order
from stages.distill.signals.edits import Change, Edits, path_of, sides_of
from stages.distill.signals.fragments import kept_in_lines
from stages.records import Event

LATEST = 2.0  # a measurement later than this many horizons is for reports, not for training
_SEEN_NOWHERE = Kept(added=1)  # what an edit counts of which nothing is known but that it is lost


def edit_persistence(events: Sequence[Event], horizon_ms: int, edits: Edits) -> float | None:
    """Kept lines over changed lines, all measured files together, in [0, 1].

    Args:
        events: the episode's events with their data opened, as they were received.
        horizon_ms: how long after the edit the training horizon lies.
        edits: `edits_of` these events, with the same horizon.
    """
    measured = _of_the_only_file(_measurements(events, horizon_ms), edits)
    total = Kept()
    for path, changes in edits.changes.items():
        total += _kept(changes, measured.get(path))
    kinds = {kind for event in edits.refused for kind in _kinds(event)}
    told: set[tuple[str, str | None]] = set()  # the kinds of refusals that are about what was measured
    applied = (event for event in events if event.type == "edit_applied")
    seen = {path_of(event) for event in applied if sides_of(event) is not None}
    for path in measured.keys() - edits.changes.keys() - seen:
        generation = measured[path].generation_id
        about = kinds & {*product(("", path), (generation, None))}
        told |= about
        kept = _kept_by_itself(measured[path].data)
        total += (kept or _SEEN_NOWHERE).lost() if about else (kept or Kept())
    for event in edits.refused:
        total += _proposed(event).lost() if told.isdisjoint(_kinds(event)) else Kept()
    return total.rate


def _kept(changes: Sequence[Change], survival: Event | None) -> Kept:
    """What of a file's changes is left, as far as a measurement or their undoing tells."""
    data = {} if survival is None else survival.data
    if (counts := _counts(data)) is not None:
        return counts.lost() if all(change.undone for change in changes) else counts
    undone = [_whole(change.before, change.after).lost() for change in changes if change.undone]
    now = data.get("now")
    if not isinstance(now, str):
        return sum(undone, Kept())
    within, standing = kept_in_lines([change for change in changes if not change.undone], now)
    return sum(undone, within + persistence_of_all([(c.before, c.after) for c in standing], now))


def _kept_by_itself(data: Mapping[str, Any]) -> Kept | None:
    """What a measurement tells of an edit that nothing else is known of."""
    before, after, now = (data.get(name) for name in ("before", "after", "now"))
    if isinstance(before, str) and isinstance(after, str) and isinstance(now, str):
        return _counts(data) or persistence(before, after, now)
    return _counts(data)


def _counts(data: Mapping[str, Any]) -> Kept | None:
    """A measurement in counts of lines."""
    counts = [data.get(name) for name in ("added", "added_kept", "deleted", "deleted_kept")]
    if not all(isinstance(n, int) and not isinstance(n, bool) for n in counts):
        return None
    added, added_kept, deleted, deleted_kept = (max(0, int(n)) for n in counts if n is not None)
    return Kept(added, min(added, added_kept), deleted, min(deleted, deleted_kept))


def _kinds(refusal: Event) -> set[tuple[str, str | None]]:
    """(file, generation) of what it is about, when that was measured and never told as applied.

    A file "" is any, a generation None too: what is reverted may be another generation's.
    """
    path = path_of(refusal)
    return {(path, refusal.generation_id)} | ({(path, None)} if refusal.type == "edit_reverted" else set())


def _proposed(refusal: Event) -> Kept:
    """The lines of a proposal that was never applied."""
    sides = sides_of(refusal)
    whole = _whole(*sides) if sides else Kept()
    return whole if whole.units else _SEEN_NOWHERE


def _whole(before: str, after: str) -> Kept:
    """All of a change."""
    return persistence(before, after, after)


def _measurements(events: Sequence[Event], horizon_ms: int) -> dict[str, Event]:
    """The first measurement at or after the horizon, by path.

    Each of several edits may be measured, as long after itself: of texts the first that was due for the last
    edit counts, which saw them all. Counts are of all edits of the file (docs/http.md): the first.
    """
    found: dict[str, Event] = {}
    due: dict[str, int] = {}  # when the last edit of a file is to be measured; "": of any
    for event in events:
        if event.type == "edit_applied":
            for path in ("", path_of(event)):
                due[path] = max(due.get(path, 0), event.at + horizon_ms)
    for event in in_order(events):
        delay = event.data.get("horizon_s")
        if event.type != "edit_survival" or not isinstance(delay, int | float):
            continue
        known = found.get(path := path_of(event))
        sooner = known is None or delay < known.data["horizon_s"]
        if not sooner and known is not None and delay == known.data["horizon_s"]:
            sooner = known.at < min(event.at, due.get(path, 0)) and _counts(event.data) is None
        if horizon_ms <= 1000 * delay <= LATEST * horizon_ms and sooner:
            found[path] = event
    return found


def _of_the_only_file(measured: dict[str, Event], edits: Edits) -> dict[str, Event]:
    """By path, where one file was changed: a measurement that names none is about that one."""
    if len(edits.changes) != 1 or "" not in measured:
        return measured
    (path,) = edits.changes
    return {path: measured[""], **{name: event for name, event in measured.items() if name}}
