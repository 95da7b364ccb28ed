"""The followed branch: its commits, their order in time, and the way of each commit to the head.

Time runs along the first-parent history: that is what the branch's users had at each moment. A commit that
came by a merge was on its own branch until then, so its way leads along that branch's first parents to the
merge, and from there along the head's. Every commit on a commit's way contains it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache, partial
from itertools import accumulate
from typing import NamedTuple

from cursorbench.history.beside import elsewhere, put_by
from cursorbench.history.changes import composed
from cursorbench.history.renames import Renames
from cursorbench.history.repository import FILES, Repository, milliseconds

_RENAMES = 16  # commits of which the lines are kept that their renames are found by


class Changed(NamedTuple):
    """A file that a commit changed; `old` and `new` are blobs, "" for none.

    `others`: the blobs of a merge's further parents. A merge has only files that differ from all parents'.
    """

    commit: str
    path: str
    old: str
    new: str
    others: tuple[str, ...] = ()

    @property
    def blobs(self) -> tuple[str, ...]:
        """All of them."""
        return self.old, self.new, *self.others


class Branch:
    """All commits of a head, read in two passes of `git log` that look at no file.

    Attributes:
        head: the commit.
        newest: the head's commit time, ms: one of a commit before it may be of a clock that was ahead.
        times: commit times, ms; that of the first parent where a commit tells none (0 for a root).
        order: commits by their place in `git log --topo-order`, newest first.
        elsewhere, put_by: as the functions of `beside`, of a commit that this branch has not.
    """

    def __init__(self, repository: Repository, head: str) -> None:
        self.repository = repository
        self.head = repository.commit(head)
        self.parents: dict[str, tuple[str, ...]] = {}
        self.times: dict[str, int] = {}
        unread = []
        for token in repository.tokens("log", "-z", "--topo-order", "--format=%H,%ct,%P", self.head):
            oid, time, parents = token.split(",")
            self.parents[oid] = tuple(parents.split())
            if (told := milliseconds(time)) is None:
                unread.append(oid)
            self.times[oid] = told or 0
        for oid in reversed(unread):  # parents first
            self.times[oid] = self.times.get(self.parent(oid), 0)
        self.order = {oid: n for n, oid in enumerate(self.times)}
        self._next = self._ways()
        self.newest = self.times[self.head]
        self._line = list(self._first_parents())
        # the oldest time from the head up to each of them, falling: what `at_time` can bisect
        self._oldest = [-time for time in accumulate((self.times[oid] for oid in self._line), min)]
        self._by_name: dict[str, list[Changed]] | None = None
        self._as_changed: dict[str, list[Changed]] = {}
        self._by_commit: dict[str, list[Changed]] = {}
        self._moves: dict[str, list[str]] = {}
        self._renamed: dict[str, list[tuple[str, str]]] = {}
        self._has: dict[tuple[str, str], bool] = {}
        self._renames_in = lru_cache(_RENAMES)(lambda commit: Renames(self.changed(commit), repository.text))
        self._sorted: list[str] = []
        self._submodules: set[str] = set()
        self._links: set[str] = set()
        # with many refs each takes seconds
        self.elsewhere: Callable[[str], str] = cache(partial(elsewhere, repository))
        self.put_by: Callable[[str], bool] = cache(partial(put_by, repository))

    def __contains__(self, commit: object) -> bool:
        return commit in self.times

    def named(self, name: str) -> str:
        """The commit of the branch with this SHA, or this beginning of one; "" when none or several."""
        if name in self.times:
            return name
        if len(name) < 4 or not all(letter in "0123456789abcdef" for letter in name):
            return ""
        self._sorted = self._sorted or sorted(self.times)
        at = bisect_left(self._sorted, name)
        found = [oid for oid in self._sorted[at : at + 2] if oid.startswith(name)]
        return found[0] if len(found) == 1 else ""

    def parent(self, commit: str) -> str:
        """Its first parent; "" for a root."""
        return next(iter(self.parents.get(commit, ())), "")

    def at(self, commit: str, time: int) -> str:
        """The last commit on the way of `commit` to the head that is not younger than `time` (ms).

        The way ends before its first younger commit: one wrong clock must not bring back an older state.
        """
        while (following := self._next.get(commit)) and self.times[following] <= time:
            commit = following
        return commit

    def at_time(self, time: int) -> str:
        """The newest commit of the head's first-parent history that is not younger; "" before the first."""
        at = bisect_left(self._oldest, -time)
        return self._line[at] if at < len(self._line) else ""

    def changed(self, commit: str) -> list[Changed]:
        """The files that a commit changed; of a merge those that are as no parent has them."""
        self._read()
        return self._by_commit.get(commit, [])

    def changes_of(self, name: str) -> list[Changed]:
        """Every change of a file with this base name; of one that was renamed, the change within."""
        self._read()
        name = composed(name)
        if name not in self._as_changed:
            assert self._by_name is not None
            files = self._by_name.get(name, [])
            self._as_changed[name] = [each for one in files for each in self.within(one)]
        return self._as_changed[name]

    def within(self, one: Changed) -> tuple[Changed, ...]:
        """A change of a file; of one that was renamed, under either name, the change within.

        Under the new name the whole file as well: who moves a file may have written it anew.
        """
        if one.new and (one.old or one.others):
            return (one,)
        renames = self._renames_in(one.commit)
        if one.new:
            was = renames.of(one.path)
            return (one, one._replace(old=was.old)) if was else (one,)
        path = renames.to(one.path)
        return (one._replace(path=path, new=renames.blob(path)) if path else one,)

    def submodules(self) -> list[str]:
        """The paths at which other repositories are, or were once."""
        self._read()
        return sorted(self._submodules)

    def link(self, told: str) -> str:
        """The symbolic link, of now or of once, that a log's path names; "" when it names none, or a file of
        that name in a folder."""
        self._read()
        assert self._by_name is not None
        place = f"/{told.lstrip('/')}"
        found = max((path for path in self._links if place.endswith(f"/{path}")), key=len, default="")
        files = self._by_name.get(composed(place.rpartition("/")[2]), ()) if found else ()
        in_folder = any(len(one.path) > len(found) and place.endswith(f"/{one.path}") for one in files)
        return "" if in_folder else found

    def path_at(self, commit: str, path: str, since: str = "") -> str:
        """What a file of this path is called in a commit, its renames followed; "" when it is gone.

        Args:
            since: the commit in which it had this path: what was renamed before is another file.
        """
        root = self.repository.root(commit)
        open_ = [(path, since)]
        for name, reached in open_:
            renames = [
                (one, to)
                for one, to in self._renames(name)
                if self.has(commit, one) and not self.has(reached, one)
            ]
            if self.repository.find(root, name) and not self._anew(name, commit, renames):
                return name
            open_ += [(to, one) for one, to in renames if (to, one) not in open_]
        return path if self.repository.find(root, path) else ""

    def has(self, commit: str, other: str) -> bool:
        """Whether a commit has another in its history, or is it; `order` does not tell it of branches."""
        if commit == self.head or self.order.get(commit, len(self.order)) >= self.order[other]:
            return commit in (self.head, other)
        if (commit, other) not in self._has:
            last, seen, open_ = self.order[other], {commit}, [commit]
            while open_ and other not in seen:
                parents = [one for one in self.parents[open_.pop()] if self.order.get(one, last + 1) <= last]
                open_ += [one for one in parents if one not in seen]
                seen.update(parents)
            self._has[commit, other] = other in seen
        return self._has[commit, other]

    def _anew(self, path: str, commit: str, renames: Sequence[tuple[str, str]]) -> bool:
        """Whether a file of this name came after one that was renamed: its place was taken by another."""
        assert self._by_name is not None
        files = self._by_name.get(composed(path.rpartition("/")[2]), ()) if renames else ()
        made = [one.commit for one in files if one.path == path and not one.old]
        return any(self.has(commit, one) and self.has(one, renamed) for one in made for renamed, _ in renames)

    def _first_parents(self) -> Iterator[str]:
        commit = self.head
        while commit in self.times:
            yield commit
            commit = self.parent(commit)

    def _ways(self) -> dict[str, str]:
        """The commit after each one on its way to the head, of the merge that took it first."""
        following: dict[str, str] = {self.head: ""}
        work = [(self.head, "")]
        while work:
            tip, child = work.pop()
            if child and tip in following:
                continue
            chain = []
            while tip in self.parents and (not child or tip not in following):
                following[tip] = child or ""
                chain.append(tip)
                child, tip = tip, self.parent(tip)
            # the oldest merge comes off the stack first
            work += [(p, merge) for merge in chain for p in reversed(self.parents[merge][1:])]
        return following

    def _read(self) -> None:
        """One pass over what every commit changed."""
        if self._by_name is not None:
            return
        self._by_name = {}
        log = (
            "log",
            "-z",
            "--raw",
            "-c",
            "--no-renames",
            "--no-abbrev",
            "--ignore-submodules=none",  # whatever .gitmodules says
            "--topo-order",
            "--format=%H",
            self.head,
        )
        commit, raw, cut = "", "", False
        for token in self.repository.tokens(*log):
            if raw:
                if not cut:
                    self._add(commit, raw, token)
                raw = ""
            elif token.lstrip("\n").startswith(":"):
                raw = token.lstrip("\n")
            elif token.strip():
                commit = token.strip()
                # a shallow clone's oldest commit looks as if it had made everything
                cut = self.repository.shallow and not self.parents[commit]

    def _add(self, commit: str, raw: str, path: str) -> None:
        parents = len(raw) - len(raw.lstrip(":"))
        words = raw[parents:].split(" ")
        modes, blobs = words[: parents + 1], words[parents + 1 : 2 * parents + 2]
        for mode, paths in (("160000", self._submodules), ("120000", self._links)):
            if mode in modes:
                paths.add(path)
        # a link or another repository is no file: what became one is gone
        old, *others, new = (blob if mode in FILES else "" for mode, blob in zip(modes, blobs, strict=True))
        if not any((old, *others, new)):
            return
        one = Changed(commit, path, old, new, tuple(others))
        assert self._by_name is not None
        self._by_commit.setdefault(commit, []).append(one)
        self._by_name.setdefault(composed(path.rpartition("/")[2]), []).append(one)
        if not one.new:
            self._moves.setdefault(path, []).append(commit)

    def _renames(self, path: str) -> list[tuple[str, str]]:
        """What a file was renamed to, by each commit that took the name away; the latest first."""
        self._read()
        if path not in self._renamed:
            found = ((one, self._renames_in(one).to(path)) for one in self._moves.get(path, ()))
            self._renamed[path] = [one for one in found if one[1]]
        return self._renamed[path]


def branch_of(repository: Repository, head: str) -> Branch:
    """The branch of a head, read once a repository."""
    commit = repository.commit(head)
    if commit not in repository.branches:
        repository.branches[commit] = Branch(repository, commit)
    found = repository.branches[commit]
    assert isinstance(found, Branch)
    return found
