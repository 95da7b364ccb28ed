"""Where commits changed a file: what a change of short lines, which are nowhere rare, can be found by.

Such a change is compared with whole texts (`standing.taken_whole`), which takes long. A commit can have
taken it only where it changed the file at one of the change's lines. Not for: whether it did.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set

from cursorbench.history.branch import Changed
from cursorbench.history.changes import Units, bare
from cursorbench.history.repository import Repository
from cursorbench.sessions.blocks import alike_ends


class Touched:
    """The changes of some files, by the lines that they changed or that stand beside these.

    Args:
        lines: those asked about; no others are kept.
    """

    def __init__(self, repository: Repository, files: Iterable[Changed], lines: Set[str]) -> None:
        self._files: dict[str, set[Changed]] = defaultdict(set)
        for file in files:
            new = bare(repository.text(file.new))
            for blob in (file.old, *file.others):
                old = bare(repository.text(blob))
                for line in {line for side in between(old, new, 1) for line in side} & lines:
                    self._files[line].add(file)

    def at(self, lines: Iterable[str]) -> set[Changed]:
        """Those at any of these lines."""
        return set().union(*(self._files.get(line, ()) for line in lines))


def lines_of(units: Units) -> Iterator[str]:
    """The lines that a change is about, before and after it."""
    for before, after in units.pieces:
        for side in between(before, after):
            yield from side


def between(before: Sequence[str], after: Sequence[str], beside: int = 0) -> Iterator[Sequence[str]]:
    """What differs of two texts, from the first line to the last, and so many lines `beside` it."""
    start, end = alike_ends(before, after)
    for lines in (before, after):
        yield lines[max(0, start - beside) : len(lines) - end + beside]
