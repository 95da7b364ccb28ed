"""Which of the lines that somebody asks about stand in a file or a tree: every blob is read once.

A tree's answer is made of its entries' answers, kept by id, so that two commits cost what differs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Set

from cursorbench.history.branch import Changed
from cursorbench.history.repository import FILES, Repository
from cursorbench.sessions.line_ends import code_lines

_NONE: Counter[str] = Counter()


class Tracked:
    """The lines asked about, `recognisable` ones, in the files of some suffixes. What comes back must not be
    changed."""

    def __init__(self, repository: Repository, lines: Set[str], suffixes: Set[str]) -> None:
        self.repository = repository
        self.lines = lines
        self.suffixes = suffixes
        self._blobs: dict[str, Counter[str]] = {}
        self._trees: dict[str, frozenset[str]] = {}

    def of_blob(self, blob: str) -> Counter[str]:
        """How often each tracked line stands in a file; nothing for ""."""
        if not blob:
            return _NONE
        if blob not in self._blobs:
            self._blobs[blob] = self.of_text(self.repository.text(blob)) or _NONE
        return self._blobs[blob]

    def of_text(self, text: str) -> Counter[str]:
        """The same of a text."""
        return Counter(filter(self.lines.__contains__, map(str.strip, code_lines(text))))

    def before(self, one: Changed) -> Counter[str]:
        """The lines of a file before a commit changed it; of a merge those that any parent has."""
        found = self.of_blob(one.old)
        for blob in one.others:
            found = found | self.of_blob(blob)
        return found

    def gained(self, one: Changed) -> Counter[str]:
        """What a commit added to a file; a merge only what no parent has."""
        return self.of_blob(one.new) - self.before(one)

    def lost(self, one: Changed) -> Counter[str]:
        """What a commit took out of a file; a merge of any parent's, as who resolves a conflict sees both."""
        return self.before(one) - self.of_blob(one.new)

    def gains(self, one: Changed, lines: Iterable[str]) -> bool:
        """Whether a commit added one of these lines to a file."""
        was, now = self.before(one), self.of_blob(one.new)
        return any(now.get(line, 0) > was.get(line, 0) for line in lines)

    def loses(self, one: Changed, lines: Iterable[str]) -> bool:
        """Whether a commit took one of these lines out of a file."""
        was, now = self.before(one), self.of_blob(one.new)
        return any(was.get(line, 0) > now.get(line, 0) for line in lines)

    def files_with(self, tree: str, lines: Set[str], suffix: str) -> Iterator[tuple[str, str]]:
        """(path, blob) of every file of this suffix in a tree in which one of these lines stands."""
        folders = [(tree, "")]
        for oid, folder in folders:
            for entry in self.repository.tree(oid):
                path = folder + entry.name
                if entry.mode == "40000":
                    if not lines.isdisjoint(self._in_tree(entry.oid)):
                        folders.append((entry.oid, f"{path}/"))
                elif (
                    entry.mode in FILES
                    and suffix_of(entry.name) == suffix
                    and not lines.isdisjoint(self.of_blob(entry.oid))
                ):
                    yield path, entry.oid

    def _in_tree(self, tree: str) -> frozenset[str]:
        """Without recursion: a repository may have folders in folders without end."""
        open_ = [tree]
        while open_:
            entries = self.repository.tree(open_[-1])
            within = [entry.oid for entry in entries if entry.mode == "40000"]
            if unread := [oid for oid in within if oid not in self._trees]:
                open_ += unread
                continue
            found = set[str]().union(*(self._trees[oid] for oid in within))
            for entry in entries:
                if entry.mode in FILES and suffix_of(entry.name) in self.suffixes:
                    found |= self.of_blob(entry.oid).keys()
            self._trees[open_.pop()] = frozenset(found)
        return self._trees[tree]


def suffix_of(path: str) -> str:
    """`.py` of `a/b.py`; the whole base name of a file without a suffix."""
    name = path.replace("\\", "/").rpartition("/")[2]
    return name[name.rindex(".") :] if "." in name[1:] else name
