"""Which of the files that a commit took away became which of its new ones.

The same blob, else the file with most lines in common, at least half of both (git's own default). What two
files share is found by way of their lines, so that a commit which moves thousands of files is no matter of
every pair. Not for: names over several commits (`Branch.path_at`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import chain, islice
from typing import TYPE_CHECKING

from cursorbench.history.changes import bare

if TYPE_CHECKING:
    from cursorbench.history.branch import Changed

RENAMED = 0.5  # so much of a file must be found again under its new name (git's own default)
_MOST = 1_000  # files of one commit that are compared by their lines (git's own default)


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
        names = chain(self._same[0].get(self._new[path].new, ()), islice(self._gone, _MOST))
        return next((self._gone[name] for name in names if self.to(name) == path), None)

    def _most_like(self, gone: Changed) -> str:
        if same := self._same[1].get(gone.old):
            name = gone.path.rpartition("/")[2]
            return min(same, key=lambda path: (path.rpartition("/")[2] != name, path))
        old = Counter(bare(self._text(gone.old)))
        size, (places, sizes) = old.total(), self._lines
        shared: Counter[str] = Counter()
        for line, n in old.items():
            for path, m in places.get(line, ()):
                shared[path] += min(n, m)
        scored = [(2 * n / (size + sizes[path]), path) for path, n in shared.items()]
        best = max(scored, default=(0.0, ""))
        return best[1] if best[0] >= RENAMED else ""

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
    def _lines(self) -> tuple[dict[str, list[tuple[str, int]]], dict[str, int]]:
        """Where each line of the new files stands, and how often there; how many lines each file has."""
        places, sizes = defaultdict(list), {}
        for path, one in islice(self._new.items(), _MOST):
            lines = Counter(bare(self._text(one.new)))
            sizes[path] = lines.total()
            for line, n in lines.items():
                places[line].append((path, n))
        return places, sizes
