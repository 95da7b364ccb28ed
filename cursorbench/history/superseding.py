"""Lines that a later change of the same session replaced: they count in neither, rewritten is not lost.

A later change supersedes only when a commit of the branch took it, or none took the earlier one either: the
rewrite that was itself undone has not replaced anything. Or when the commit that took the earlier one has the
line as the later one left it: no commit shows by itself what an agent takes back of its own before it.

Who writes a file whole replaces what its text leaves out. What it repeats is its own unless it stood there
before: of a commit between the two, or somebody else's.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from cursorbench.history.changes import Piece, Units
from cursorbench.sessions.blocks import alike_ends, joined, occurrences

_Having = dict[str, set[tuple[int, Piece]]]  # by line: hunks, and whose they are


class Taken(NamedTuple):
    """The file of the commit that took a change: commit and path, recognisable lines added and taken out, and
    those that stood there before.
    """

    place: tuple[str, str]
    lines: tuple[Counter[str], Counter[str]]
    stood: Counter[str]


def supersede(changes: Sequence[Units], taken: Sequence[Taken | None]) -> None:
    """Take superseded lines out of `added` and `deleted`, within each session and file, in order of time.

    Args:
        taken: by what each change was taken; None where no commit did.
    """
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for n, units in enumerate(changes):
        if units.change.session and units.pieces:
            groups[units.change.session, units.change.path].append(n)
    for members in groups.values():
        if len(members) > 1:
            _group([(changes[n], taken[n]) for n in _in_time(changes, members)])


def _in_time(changes: Sequence[Units], members: list[int]) -> list[int]:
    """By time where every one has a time, else in the order given."""
    if any(changes[n].change.at is None for n in members):
        return members
    return sorted(members, key=lambda n: changes[n].change.at or 0)


_Group = Sequence[tuple[Units, Taken | None]]


def _group(group: _Group) -> None:
    added, deleted, short = _Lines(group, 0), _Lines(group, 1), _Short()
    for n, (units, _) in enumerate(group):
        whole = units.whole and bool(units.change.path)  # of a file that the log does not name, any other
        if whole:
            added.drop_all(n)
        gone = Counter(line for line in units.deleted.elements() if added.drop(n, line))
        back = Counter(line for line in units.added.elements() if deleted.drop(n, line))
        units.deleted, units.added = units.deleted - gone, units.added - back
        units.superseded += gone.total() + back.total()
        added.add(n)
        deleted.add(n)
        for m, hunk in short.left_out(units.pieces) if whole else short.rewritten(units.pieces):
            if _replaces(group, n, m):
                other, left = group[m][0], tuple(one for one in group[m][0].hunks if one != hunk)
                other.superseded += len(other.hunks) - len(left)
                other.hunks = other.pieces = left
                short.drop(m, hunk)
        for hunk in units.hunks:
            short.add(n, hunk)
    for units, _ in group:
        units.added, units.deleted = +units.added, +units.deleted


def _replaces(group: _Group, n: int, m: int) -> bool:
    """Whether all that a change rewrote of an earlier one is replaced, whatever that one's commit has."""
    (later, by), (earlier, commit) = group[n], group[m]
    if later.change.undone:
        return earlier.change.undone
    return by is not None or commit is None


class _Lines:
    """The lines that changes added (side 0) or deleted (1) and that are not superseded so far."""

    def __init__(self, group: _Group, side: int) -> None:
        self._group, self._side = group, side
        self._whose: dict[str, list[int]] = defaultdict(list)
        self._taken: Counter[tuple[tuple[str, str], str]] = Counter()  # that one file of a commit should have

    def _of(self, n: int) -> Counter[str]:
        units = self._group[n][0]
        return units.deleted if self._side else units.added

    def add(self, n: int) -> None:
        """A change's."""
        units, commit = self._group[n]
        own = self._of(n) if self._side or not commit else units.minus(commit.stood)
        for line in own.elements():
            self._whose[line].append(n)
            if commit:
                self._taken[commit.place, line] += 1

    def drop(self, n: int, line: str) -> bool:
        """Whether a change with the line on its other side supersedes the last one."""
        whose = self._whose.get(line)
        if not whose or not self._dropped(n, whose[-1], line):
            return False
        whose.pop()
        return True

    def _dropped(self, n: int, m: int, line: str) -> bool:
        commit = self._group[m][1]
        replaced = _replaces(self._group, n, m)
        if commit and not replaced and not self._group[n][0].change.undone:
            replaced = self._taken[commit.place, line] > commit.lines[self._side][line]
        if replaced:
            self._of(m)[line] -= 1  # not a difference of all its lines: a file may have a million
            self._group[m][0].superseded += 1
            if commit:
                self._taken[commit.place, line] -= 1
        return replaced

    def drop_all(self, n: int) -> None:
        """Those that a change which wrote the whole file supersedes: not what stood there and still does."""
        units, commit = self._group[n]
        for line, whose in self._whose.items():
            left = commit.stood[line] - units.added[line] if commit else 0  # out, of a commit before
            kept = []
            for m in reversed(whose):
                earlier = self._group[m][1]
                before = commit is not None and earlier is not None and earlier.place != commit.place
                if (before and left <= 0) or not self._dropped(n, m, line):
                    kept.append(m)
                elif before:
                    left -= 1
            self._whose[line] = kept[::-1]


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

    def left_out(self, pieces: tuple[Piece, ...]) -> list[tuple[int, Piece]]:
        """The hunks that a file which is written whole has not, or has again, in order."""
        text = joined([line for _, after in pieces for line in after])
        every = set[tuple[int, Piece]]().union(*self._put.values(), *self._gone.values())
        return sorted(one for one in every if (joined(one[1][1] or one[1][0]) in text) != bool(one[1][1]))

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
