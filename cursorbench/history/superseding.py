"""Lines that a later change of the same session replaced: they count in neither, rewritten is not lost.

A later change supersedes only when a commit of the branch took it, or none took the earlier one either: the
rewrite that was itself undone has not replaced anything.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from cursorbench.history.changes import Units, place_of


def supersede(changes: Sequence[Units], taken: Sequence[bool]) -> None:
    """Take superseded lines out of `added` and `deleted`, within each session and file, in order of time."""
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for n, units in enumerate(changes):
        if units.change.session and units.pieces:
            groups[units.change.session, units.change.path].append(n)
    for members in groups.values():
        if len(members) > 1:
            _group(
                [changes[n] for n in _in_time(changes, members)],
                [taken[n] for n in _in_time(changes, members)],
            )


def _in_time(changes: Sequence[Units], members: list[int]) -> list[int]:
    """By time where every one has a time, else in the order given."""
    if any(changes[n].change.at is None for n in members):
        return members
    return sorted(members, key=lambda n: changes[n].change.at or 0)


def _group(changes: Sequence[Units], taken: Sequence[bool]) -> None:
    added: dict[str, list[int]] = defaultdict(list)  # by which changes, not superseded so far
    deleted: dict[str, list[int]] = defaultdict(list)
    for n, units in enumerate(changes):
        drop_added: Counter[str] = Counter()
        drop_deleted: Counter[str] = Counter()
        sides = (
            (units.deleted, added, drop_deleted, "added"),
            (units.added, deleted, drop_added, "deleted"),
        )
        for lines, earlier, own, side in sides:
            for line in lines.elements():
                if earlier[line] and (taken[n] or not taken[earlier[line][-1]]):
                    other = changes[earlier[line].pop()]
                    setattr(other, side, getattr(other, side) - Counter([line]))
                    other.superseded += 1
                    own[line] += 1
        units.deleted = units.deleted - drop_deleted
        units.added = units.added - drop_added
        units.superseded += drop_deleted.total() + drop_added.total()
        for line in units.added.elements():
            added[line].append(n)
        for line in units.deleted.elements():
            deleted[line].append(n)
        for m, other in enumerate(changes[:n]):
            if other.short and other.pieces and (taken[n] or not taken[m]) and _rewrites(units, other):
                other.superseded += len(other.pieces)
                other.pieces = ()


def _rewrites(later: Units, earlier: Units) -> bool:
    """Whether a later change took away what an earlier one of short lines had put there."""
    return any(
        place_of(new, before) >= 0 and place_of(new, after) < 0
        for _, new in earlier.pieces
        for before, after in later.pieces
    )
