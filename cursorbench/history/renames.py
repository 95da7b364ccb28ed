"""Which of the files that a commit took away became which of its new ones.

The same blob, else the file with most lines in common, at least half of both (git's own default); of equal
ones that whose path agrees best. What two files share is found by way of their lines, so that a commit which
moves thousands of files is no matter of every pair. Not for: names over several commits (`Branch.path_at`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain, islice
from typing import TYPE_CHECKING

from cursorbench.history.changes import bare, nearness

if TYPE_CHECKING:
    from cursorbench.history.branch import Changed

RENAMED = 0.5  # so much of a file must be found again under its new name (git's own default)
_MOST = 1_000  # files of one commit that are compared by their lines with every one (git's own default)
_PARTS = 8  # of a path that may agree
_FEW = 10  # files whose paths agree best, that are compared whatever else the commit has


class Renames:
    """The renames of one commit.

    Args:
        files: what the commit changed.
        text: the text of a blob.
    """

    def __init__(self, files: Sequence[Changed], text: Callable[[str], str]) -> None:
        self._text = text
        self._gone = {one.path: one for one in files if not one.new}
        self._new = {one.path: one for one in files if not one.old}
        self._to: dict[str, str] = {}
        self._read: dict[str, Counter[str]] = {}

    def to(self, path: str) -> str:
        """What a file that the commit took away is called from then on; "" when it is gone."""
        if path not in self._to:
            gone = self._gone.get(path)
            self._to[path] = self._most_like(gone) if gone and self._new else ""
        return self._to[path]

    def blob(self, path: str) -> str:
        """A new file's."""
        return self._new[path].new

    def of(self, path: str) -> Changed | None:
        """What a new file was before: the one that became it; None for a file that is new."""
        if path not in self._new or not self._gone:
            return None
        same = self._same[0].get(self._new[path].new, ())
        names = chain(_nearest(path, self._tails[0]), islice(same, _MOST))
        found = next((name for name in names if self.to(name) == path), self._became.get(path))
        return None if found is None else self._gone[found]

    def _most_like(self, gone: Changed) -> str:
        near = _nearest(gone.path, self._tails[1])
        if same := self._same[1].get(gone.old):
            first = [path for path in near if self._new[path].new == gone.old] or same[:_MOST]
            return min(first, key=lambda path: (-nearness(gone.path, path), path))
        old = Counter(bare(self._text(gone.old)))
        size, places = old.total(), self._places
        shared: Counter[str] = Counter()
        for line, n in old.items():
            for path, m in places.get(line, ()):
                shared[path] += min(n, m)
        for path in near:
            shared[path] = (old & self._lines_of(path)).total()
        likeness = {path: 2 * n / (size + self._lines_of(path).total()) for path, n in shared.items() if n}
        best = max(likeness.values(), default=0.0)
        alike = [path for path, score in likeness.items() if score == best]
        return max(alike, key=lambda path: (nearness(gone.path, path), path)) if best >= RENAMED else ""

    @cached_property
    def _became(self) -> dict[str, str]:
        """What became a new file, of the first files that are gone: the first of them."""
        names = list(islice(self._gone, _MOST))
        return {to: name for name in reversed(names) if (to := self.to(name))}

    @cached_property
    def _tails(self) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
        """The files that are gone, and the new ones, by each end of their paths."""
        return _by_tails(self._gone), _by_tails(self._new)

    @cached_property
    def _same(self) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
        """By their blobs: the files that are gone, and the new ones."""
        gone, new = defaultdict(list), defaultdict(list)
        for path, one in self._gone.items():
            gone[one.old].append(path)
        for path, one in self._new.items():
            new[one.new].append(path)
        return gone, new

    @cached_property
    def _places(self) -> dict[str, list[tuple[str, int]]]:
        """Where each line of the first new files stands, and how often there."""
        places = defaultdict(list)
        for path in islice(self._new, _MOST):
            for line, n in self._lines_of(path).items():
                places[line].append((path, n))
        return places

    def _lines_of(self, path: str) -> Counter[str]:
        """A new file's."""
        if path not in self._read:
            self._read[path] = Counter(bare(self._text(self._new[path].new)))
        return self._read[path]


def _nearest(path: str, tails: Mapping[str, Sequence[str]]) -> Sequence[str]:
    """Of files by each end of their paths those that agree best with a path: a folder that was moved."""
    return next((tails[tail][:_FEW] for tail in _tails_of(path) if tail in tails), ())


def _by_tails(paths: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        for tail in _tails_of(path):
            found[tail].append(path)
    return found


def _tails_of(path: str) -> list[str]:
    """The ends of a path, longest first: of so many parts at most, as there may be thousands."""
    parts = path.split("/")[-_PARTS:]
    return ["/".join(parts[n:]) for n in range(len(parts))]
