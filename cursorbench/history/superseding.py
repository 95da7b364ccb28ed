"""Lines that a later change of the same session replaced: they count in neither, rewritten is not lost.

A later change supersedes only when a commit of the branch took it, or none took the earlier one either: the
rewrite that was itself undone has not replaced anything.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from cursorbench.history.changes import Piece, Units
from cursorbench.sessions.blocks import alike_ends, joined, occurrences

_Having = dict[str, set[tuple[int, Piece]]]  # by line: hunks, and whose they are


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
        for m, hunk in short.rewritten(units.pieces):
            if taken[n] or not taken[m]:
                other, left = changes[m], tuple(one for one in changes[m].hunks if one != hunk)
                other.superseded += len(other.hunks) - len(left)
                other.hunks = other.pieces = left
                short.drop(m, hunk)
        for hunk in units.hunks:
            short.add(n, hunk)
    for units in changes:
        units.added, units.deleted = +units.added, +units.deleted


class _Short:
    """Hunks of short lines that nothing has rewritten yet, found by the lines that they put there, or took
    away and put nothing.
    """

    def __init__(self) -> None:
        self._put: _Having = defaultdict(set)
        self._gone: _Having = defaultdict(set)

    def add(self, n: int, hunk: Piece) -> None:
        """One of a change."""
        for line in hunk[1] or hunk[0]:
            (self._put if hunk[1] else self._gone)[line].add((n, hunk))

    def drop(self, n: int, hunk: Piece) -> None:
        """It is rewritten."""
        for line in hunk[1] or hunk[0]:
            (self._put if hunk[1] else self._gone)[line].discard((n, hunk))

    def rewritten(self, pieces: tuple[Piece, ...]) -> list[tuple[int, Piece]]:
        """The hunks that stand less often after a piece than before it, or are back more often, in order."""
        found = set()
        for before, after in pieces if self._put or self._gone else ():
            texts = joined(before), joined(after)
            for one in _near(before, after, self._put):
                if occurrences(one[1][1], texts[0]) > occurrences(one[1][1], texts[1]):
                    found.add(one)
            for one in _near(after, before, self._gone):
                if occurrences(one[1][0], texts[1]) > occurrences(one[1][0], texts[0]):
                    found.add(one)
        return sorted(found)


def _near(text: Sequence[str], other: Sequence[str], having: _Having) -> set[tuple[int, Piece]]:
    """Those with a line that only `text` has, or with both that lines of the other stand between."""
    start, end = alike_ends(text, other)
    own = text[start : len(text) - end]
    if own:
        return set().union(*(having[line] for line in set(own) & having.keys()))
    around = text[start - 1 : start + 1] if 0 < start < len(text) else ()
    return set.intersection(*(having.get(line, set()) for line in around)) if around else set()
