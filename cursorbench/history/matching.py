"""Which commit took a change: by what the log or the repository names, else by content.

In this order, see docs/persistence.md:

1. `sha`: a commit that the log names and the branch has, if it has a line of the change in its file, or half
   of it in another one; if it only touched the file, or has any of it, where 2 to 4 find nothing.
2. `trailer`: a commit whose message names the change's session or checkpoint in a trailer, and has half of
   it; any of it, where 3 and 4 find nothing.
3. `note`: the same of a note in refs/notes/ai (git-ai).
4. `content`: the earliest commit, not older than the change, that has nearly as much of it as the best one
   and at least half: within 30 days, in lines that say something or whole. Where none has, half of it but for
   the deleted lines that the file never had in git: a change of a draft, which no commit shows.

A line of a commit is one change's only: what a named commit took is not there for another change's content,
so that an undone change is not found in the next attempt's commit.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from cursorbench.history.branch import Branch, Changed
from cursorbench.history.changes import How, Units, composed, nearness
from cursorbench.history.saying import by_note, by_trailer
from cursorbench.history.standing import MOVED, taken_by_hunks, taken_whole, weight
from cursorbench.history.touched import Touched, lines_of
from cursorbench.history.tracked import Tracked

ENOUGH = 0.5  # share of a change's lines that a commit must have, to be the one by content
CLOSE = 0.1  # a commit with so much less than the best one is as good, when it is earlier
BY_HUNKS = 0.75  # of a change of short lines that a commit has, but not with all that was told around them
TOLERANCE = 300_000  # ms that a commit may be older than the change it took: two clocks
WINDOW = 30 * 86_400_000  # ms after a change in which a commit can have taken it, by content

_NONE: Counter[str] = Counter()
_ANY = 1e-9  # a share above nothing


class Match(NamedTuple):
    """The commit's file that took a change."""

    file: Changed
    how: How


_Place = tuple[str, str]  # commit and path: of a renamed file the change within, and the whole, are one
Claims = dict[_Place, tuple[Counter[str], Counter[str]]]  # lines added and deleted that changes took


class Matcher:
    """Finds the commits of one set of changes; every change is asked once.

    Args:
        claims: what earlier sets took; what this one takes is added.
    """

    def __init__(self, branch: Branch, tracked: Tracked, changes: Sequence[Units], claims: Claims) -> None:
        self.branch = branch
        self._claims = claims
        self.tracked = tracked
        self._gained: dict[_Place, dict[Changed, tuple[Counter[str], Counter[str]]]] = {}
        self._index: dict[str, dict[str, set[Changed]]] = {}
        self._files: dict[str, dict[str, set[Changed]]] = {}  # of a commit, by base name and by line
        self._touched: dict[str, Touched] = {}
        self._short_lines: dict[str, set[str]] = defaultdict(set)
        self._nears: dict[str, int] = {}
        self._windows: dict[str, tuple[float, float]] = {}  # of all changes of files of one name
        for units in changes:
            name, (first, last) = _base(units.change.path), _window(units)
            begin, end = self._windows.get(name, (first, last))
            self._windows[name] = min(first, begin), max(last, end)
            if units.short:
                self._short_lines[name].update(lines_of(units))
        names = {name for units in changes for name in _names(units)}
        self._trailers = by_trailer(branch, names)
        self._notes = by_note(branch, names) if names else {}

    def match(self, changes: Sequence[Units], asked: Callable[[], None]) -> list[Match | None]:
        """The commit of each change, or None. `asked` is called as each has been looked for."""
        found = [self._named(units, sure=True) for units in changes]
        for units, match in zip(changes, found, strict=True):
            if match:
                self._claim(units, match.file)
        self._search(changes, found, range(len(changes)), asked)
        return found

    def again(self, changes: Sequence[Units], found: list[Match | None]) -> None:
        """Look once more where only what was superseded is in no commit, then for drafts; fills `found`."""
        left = [n for n, one in enumerate(changes) if one.superseded and (one.lines or one.hunks)]
        self._search(changes, found, left)
        self._search(changes, found, range(len(changes)), drafts=True)

    def _search(
        self,
        changes: Sequence[Units],
        found: list[Match | None],
        among: Iterable[int],
        asked: Callable[[], None] = lambda: None,
        drafts: bool = False,
    ) -> None:
        # the last first: of two equal attempts the later one is what stayed
        times = [units.change.at for units in changes]
        for n in sorted(among, key=lambda n: (times[n] is None, -(times[n] or 0), -n)):
            if found[n] is None and not changes[n].change.undone:
                file = self._by_content(changes[n], drafts=drafts)
                found[n] = match = Match(file, "content") if file else self._named(changes[n], sure=False)
                if match:
                    self._claim(changes[n], match.file)
            asked()

    def unknown(self, units: Units) -> list[str]:
        """What the log names as taking the change, where the branch has none of these: a commit may be named
        by its SHA and by the call that made it."""
        names = [name for name in units.change.commits if name]
        known = any(n in self._trailers or n in self._notes or self.branch.named(n) for n in names)
        return [] if known else names

    def unread(self, units: Units) -> bool:
        """Whether a commit that may have taken the change did so to a file that has no text here."""
        told, textless = units.change.path, self.branch.repository.textless
        files = self.branch.changes_of(_base(told)) if textless else []
        first, last = _window(units)
        return any(
            first <= self.branch.times[file.commit] <= last and not textless.isdisjoint(file.blobs)
            for file in files
            if self._nearest(told, file.path)
        )

    def _nearest(self, told: str, path: str) -> bool:
        """Whether no file of this name is nearer to what the log calls one."""
        if told not in self._nears:
            paths = {file.path for file in self.branch.changes_of(_base(told))}
            self._nears[told] = max((nearness(told, one) for one in paths), default=0)
        return nearness(told, path) == self._nears[told]

    def _named(self, units: Units, *, sure: bool) -> Match | None:
        """The named commit that has most of a change.

        A log may name its session's next commit, which took other files or other changes of the file, and a
        line that is alike stands in many files. So `sure` asks for a line in the file, or half of the change
        in another; of one that only a session names, for half of it.
        """
        change = units.change
        if change.undone:
            return None
        named = [commit for name in change.commits if (commit := self.branch.named(name))]
        least = ENOUGH if sure else _ANY
        if file := self._best(units, named, _ANY if sure else 0.0, least):
            return Match(file, "sha")
        by: dict[How, dict[str, list[str]]] = {"trailer": self._trailers, "note": self._notes}
        for how, index in by.items():
            commits = [commit for name in _names(units) for commit in index.get(name, ())]
            if file := self._best(units, commits, least, least):
                return Match(file, how)
        return None

    def _best(
        self, units: Units, commits: Iterable[str], of_name: float, of_another: float
    ) -> Changed | None:
        """The file of these commits that has most of a change: of its name, or another with its lines; at
        least such a share."""
        scored = []
        for commit in dict.fromkeys(commits):
            for told in self._of_commit(units, commit):
                near = nearness(units.change.path, told.path)
                least = of_name if near else of_another
                for file in self.branch.within(told) if near else (told,):
                    score = self._score(units, file)
                    if score >= least:
                        scored.append((score, near, self.branch.order[commit], bool(file.old), file))
        return max(scored, key=lambda one: one[:4])[4] if scored else None

    def _of_commit(self, units: Units, commit: str) -> Iterable[Changed]:
        """The files of a commit that have the change's name, or one of its lines: it may have thousands."""
        if units.short:
            return self.branch.changed(commit)
        if commit not in self._files:
            found: dict[str, set[Changed]] = defaultdict(set)
            for file in self.branch.changed(commit):
                for line in (_base(file.path), *self.tracked.gained(file), *self.tracked.lost(file)):
                    found[line].add(file)
            self._files[commit] = found
        wanted = (_base(units.change.path), *units.added, *units.deleted)
        files = set[Changed]().union(*(self._files[commit].get(line, ()) for line in wanted))
        return sorted(files, key=lambda file: file.path)  # as git has them: of equal ones the first

    def _by_content(self, units: Units, *, drafts: bool) -> Changed | None:
        change, name = units.change, _base(units.change.path)
        if not units.pieces or not name or (drafts and not units.deleted):
            return None
        first, last = _window(units)
        scored = [
            (score, nearness(change.path, file.path), self.branch.order[file.commit], file)
            for file in self._candidates(units, name)
            if first <= self.branch.times[file.commit] <= last
            and (score := self._score(units, file, drafts=drafts)) >= ENOUGH
            and ((score >= 1 and not drafts) or self._telling(units, file))
            and self.branch.repository.textless.isdisjoint(file.blobs)
        ]
        if not scored:
            return None
        best = max(score for score, *_ in scored)
        good = [one for one in scored if one[0] >= best - CLOSE]
        return max(good, key=_rank)[3]

    def _candidates(self, units: Units, name: str) -> Iterable[Changed]:
        """The changes of files of this name that have one of the lines, or are at one of the short lines."""
        if units.short:
            if name not in self._touched:
                files, short = self._in_window(name), self._short_lines[name]
                self._touched[name] = Touched(self.branch.repository, files, short)
            return self._touched[name].at(lines_of(units))
        if name not in self._index:
            index: dict[str, set[Changed]] = defaultdict(set)
            for file in self._in_window(name):
                for side in self._lines(file):
                    for line in side:
                        index[line].add(file)
            self._index[name] = index
        lines = [*units.added, *units.deleted]
        return set().union(*(self._index[name].get(line, ()) for line in lines)) if lines else ()

    def _in_window(self, name: str) -> Iterator[Changed]:
        """Without those that can be nobody's: reading every version of a file takes long."""
        first, last = self._windows[name]
        for file in self.branch.changes_of(name):
            if first <= self.branch.times[file.commit] <= last:
                yield file

    def _score(self, units: Units, file: Changed, *, drafts: bool = False) -> float:
        """The share of a change that a commit did to a file, what other changes claimed left out.

        Args:
            drafts: without the deleted lines that the file did not have before the commit.
        """
        repository = self.branch.repository
        if units.short:
            new, olds = repository.text(file.new), [repository.text(old) for old in (file.old, *file.others)]
            if all(taken_whole(units, old, new) for old in olds):
                return 1.0
            return BY_HUNKS if all(taken_by_hunks(units, old, new) for old in olds) else 0.0
        added, deleted = self._lines(file)
        before = self.tracked.before(file)
        wanted = units.minus(before)
        total = wanted.total() + (units.deleted & before if drafts else units.deleted).total()
        return ((wanted & added).total() + (units.deleted & deleted).total()) / total if total else 0.0

    def _telling(self, units: Units, file: Changed) -> bool:
        """Whether what a change and a commit share is enough not to be the same by chance: so many letters.
        Of short lines without what was told around them: whether the log means no other file rather."""
        if units.short:
            return self._nearest(units.change.path, file.path)
        added, deleted = self._lines(file)
        shared = (units.added & added) + (units.deleted & deleted)
        return weight(shared.elements()) >= MOVED

    def _lines(self, file: Changed) -> tuple[Counter[str], Counter[str]]:
        """The tracked lines that a commit added to and deleted from a file, without claimed ones."""
        place = file.commit, file.path
        of_place = self._gained.setdefault(place, {})
        if file not in of_place:
            added, deleted = self._claims.get(place, (_NONE, _NONE))
            of_place[file] = self.tracked.gained(file) - added, self.tracked.lost(file) - deleted
        return of_place[file]

    def _claim(self, units: Units, file: Changed) -> None:
        added, deleted = self._lines(file)
        wanted = units.minus(self.tracked.before(file))
        place = file.commit, file.path
        before = self._claims.get(place, (_NONE, _NONE))
        self._claims[place] = before[0] + (added & wanted), before[1] + (deleted & units.deleted)
        del self._gained[place]


def _rank(one: tuple[float, int, int, Changed]) -> tuple[object, ...]:
    """The nearest path, then the earliest commit, then the most lines; of equal ones always the same file."""
    score, near, order, file = one
    return near, order, score, bool(file.old), -file.path.count("/"), file


def _window(units: Units) -> tuple[float, float]:
    """From when to when a commit can have taken a change, by content."""
    at = units.change.at
    return (0, math.inf) if at is None else (at - TOLERANCE, at + WINDOW)


def _names(units: Units) -> list[str]:
    """What a trailer or a note may name a change by."""
    change = units.change
    return [name for name in (*change.commits, change.session, change.log_session) if len(name) >= 6]


def _base(path: str) -> str:
    return composed(path.replace("\\", "/").rstrip("/").rpartition("/")[2])
