"""The commits that the log of one session names, and which of them it names for an edit: the first one after
it that has its file. By file, as a log may name thousands. Not for: whether a repository has them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from heapq import merge
from pathlib import PurePath, PurePosixPath, PureWindowsPath

from cursorbench.sessions import items as said

_CLOCKS = 60_000  # ms by which two clocks of one log may differ


class Named:
    """Commits in the order of the log; by their times where all have one, as a log may list them in any."""

    def __init__(self, commits: Sequence[said.Commit]) -> None:
        self._commits = list(enumerate(commits))
        times = [commit.at for commit in commits if commit.at is not None]
        self._timed, self._untimed = len(times) == len(commits), not times
        if self._timed:
            self._commits.sort(key=lambda one: one[1].at or 0)
        self._times = sorted(times)
        self._of_any: list[int] = []  # places of those that name no files
        self._of_name: dict[str, list[int]] = defaultdict(list)
        for place, (_, commit) in enumerate(self._commits):
            if not commit.paths:
                self._of_any.append(place)
            for name in {parts[-1] for path in commit.paths if (parts := pure(path).parts)}:
                self._of_name[name].append(place)

    def after(self, path: str, at: int | None, before: int) -> said.Commit | None:
        """The first one after an edit of this file.

        Args:
            at: when it was made, ms; None where the log does not tell.
            before: how many commits the log had named by then.
        """
        parts, start = pure(path).parts, 0
        if at is not None and self._timed:
            start = bisect_left(self._times, at - _CLOCKS)
        elif self._untimed:
            start = before
        of_name = self._of_name.get(parts[-1], []) if parts else []
        both = (self._of_any, of_name)
        places = (map(some.__getitem__, range(bisect_left(some, start), len(some))) for some in both)
        for order, commit in (self._commits[place] for place in merge(*places)):
            told = commit.at is not None and at is not None
            later = (commit.at or 0) + _CLOCKS >= (at or 0) if told else order >= before
            if later and (not commit.paths or any(_same(pure(one).parts, parts) for one in commit.paths)):
                return commit
        return None


def _same(one: Sequence[str], other: Sequence[str]) -> bool:
    n = min(len(one), len(other))
    return n > 0 and one[-n:] == other[-n:]


def pure(path: str) -> PurePath:
    """A log's path, of whatever machine."""
    return PureWindowsPath(path) if "\\" in path or path[1:2] == ":" else PurePosixPath(path)
