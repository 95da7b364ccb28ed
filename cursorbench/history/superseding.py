"""Lines that a later change of the same session replaced: they count in neither, rewritten is not lost.

A later change supersedes only when a commit of the branch took it, or none took the earlier one either: the
rewrite that was itself undone has not replaced anything.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from cursorbench.history.changes import Piece, Units
from cursorbench.sessions.blocks import alike_ends, joined


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
    short = _Short()
    for n, units in enumerate(changes):
        drop_added: Counter[str] = Counter()
        drop_deleted: Counter[str] = Counter()
        sides = ((units.deleted, added, drop_deleted), (units.added, deleted, drop_added))
        for lines, earlier, own in sides:
            for line in lines.elements():
                if earlier[line] and (taken[n] or not taken[earlier[line][-1]]):
                    other = changes[earlier[line].pop()]
                    of = other.added if earlier is added else other.deleted
                    of[line] -= 1  # not a difference of all its lines: a file may have a million
                    other.superseded += 1
                    own[line] += 1
        units.deleted = units.deleted - drop_deleted
        units.added = units.added - drop_added
        units.superseded += drop_deleted.total() + drop_added.total()
        for line in units.added.elements():
            added[line].append(n)
        for line in units.deleted.elements():
            deleted[line].append(n)
        for m in short.rewritten(units.pieces):
            if taken[n] or not taken[m]:
                changes[m].superseded += len(changes[m].pieces)
                changes[m].pieces = ()
                short.drop(m)
        if units.short:
            short.add(n, units.pieces)
    for units in changes:
        units.added, units.deleted = +units.added, +units.deleted


class _Short:
    """Changes of short lines that nothing has rewritten yet, found by the lines that they put there."""

    def __init__(self) -> None:
        self._pieces: dict[int, tuple[Piece, ...]] = {}
        self._having: dict[str, set[int]] = defaultdict(set)

    def add(self, n: int, pieces: tuple[Piece, ...]) -> None:
        """One more."""
        self._pieces[n] = pieces
        for line in self._lines(n):
            self._having[line].add(n)

    def drop(self, n: int) -> None:
        """It is rewritten."""
        for line in self._lines(n):
            self._having[line].discard(n)
        del self._pieces[n]

    def rewritten(self, pieces: tuple[Piece, ...]) -> list[int]:
        """The changes whose new lines stand in a piece before and no more after it, in order."""
        found: set[int] = set()
        for before, after in pieces if self._pieces else ():
            texts = joined(before), joined(after)
            for n in self._near(before, after) - found:
                blocks = (joined(new) for _, new in self._pieces[n] if new)
                if any(block in texts[0] and block not in texts[1] for block in blocks):
                    found.add(n)
        return sorted(found)

    def _near(self, before: Sequence[str], after: Sequence[str]) -> set[int]:
        """Those that have a line which is taken away, or both between which lines are put."""
        start, end = alike_ends(before, after)
        gone = before[start : len(before) - end]
        if gone:
            return set().union(*(self._having[line] for line in set(gone) & self._having.keys()))
        around = before[start - 1 : start + 1] if 0 < start < len(before) else ()
        return set.intersection(*(self._having.get(line, set()) for line in around)) if around else set()

    def _lines(self, n: int) -> set[str]:
        return {line for _, new in self._pieces[n] for line in new}
