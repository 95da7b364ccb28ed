"""The edits of logs that a repository is to be asked about, and the commits that the logs name for them.

Which commit of its session an edit goes with: `named.py`. Edits made in another folder than the
repository's are left out: that their files are not in it says nothing.
Not for: following them (`survival.py`).
"""

from __future__ import annotations

import ntpath
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath, PureWindowsPath
from posixpath import normpath

import msgspec

from cursorbench.history.changes import Change
from cursorbench.sessions import items as said
from stages.collect.logs.clock import ZONELESS, Clock
from stages.collect.logs.named import Named, pure
from stages.collect.logs.spill import Spill
from stages.collect.logs.state import Session

_HOMES = ("home", "Users", "users", "root")
_WORKTREES = {".claude": 0, ".cursor": 3}  # folders of worktrees: how many parts on is the repository's
_TREES = re.compile(r"[._-]+worktrees$")  # folders of worktrees beside a repository, NAME.worktrees
_LAST_PART = re.compile(r"(?:^|[/:\\])(\w[\w.-]*?)(?:\.git)?/?$")  # of a repository's address
_BATCH = 32 << 20  # characters of edit texts in memory at once: as lines they take some ten times as much


@dataclass
class _Kept:
    """An edit without its texts: those are the record `texts` of the spill, so many characters."""

    event: str
    path: str
    at: int | None
    episode: str
    session: str
    log_session: str
    before: int  # commits that its session had named by then
    texts: int
    size: int
    zoneless: bool
    undone: bool = False


class KeptEdits:
    """Applied edits in the order of the logs; their texts are put aside, so that memory is bounded.

    Args:
        repository: where it lies.
        all_of_it: somebody said that the logs are all of this repository, wherever it lay then.
        spill: takes the texts.

    Attributes:
        root: where the repository lies.
        elsewhere: how many were made in another folder than the repository's.
        clock: set before `batches` where times of a wall clock were kept.
    """

    def __init__(self, repository: Path, *, all_of_it: bool, spill: Spill) -> None:
        self.root, self._all, self._spill = repository, all_of_it, spill
        self._kept: list[_Kept] = []
        # by session, call and path: a call may change a file in several parts
        self._places: dict[tuple[str, str, str], list[int]] = defaultdict(list)
        self._commits: dict[str, list[said.Commit]] = defaultdict(list)
        self._known: dict[str, tuple[int, Named]] = {}  # of so many commits, by session
        self.elsewhere = 0
        self.clock: Clock | None = None

    def add(self, session: Session, item: said.Edit, event: str, episode: str) -> None:
        """An edit that was applied, or that was undone."""
        path = _located(session.cwd, item.path)
        place = session.name, item.id, path
        if item.status == "applied":
            # a folder within another project may have this one's name, but not where this one lies,
            told = normpath(item.path.replace("\\", "/"))
            outside = told.startswith("..") or _lies_in(self.root, path)
            # and a worktree need not, where the log itself says whose it is
            named = _is_of(self.root, session.repository) and pure(path).is_relative_to(pure(session.cwd))
            known = named or belongs(self.root, session.cwd, path if outside else item.path)
            if not self._all and not known:
                self.elsewhere += 1
                return
            texts = item.before, item.after, item.diff
            kept = _Kept(
                event, path, item.at or session.at or None, episode, session.name, session.id,
                len(self._commits[session.name]), self._spill.add(msgspec.msgpack.encode(texts)),
                sum(len(text) for text in texts if text is not None), session.kind in ZONELESS,
            )  # fmt: skip
            self._places[place].append(len(self._kept))
            self._kept.append(kept)
        elif item.status == "undone":
            for undone in self._places.pop(place, ()):
                self._kept[undone].undone = True

    def warnings(self) -> list[str]:
        """What to tell who asked for a repository in which none of the edits was made."""
        if self._kept or not self.elsewhere:
            return []
        name = names_of(self.root)[0]
        return [
            f"all edits ({self.elsewhere}) were made in folders not called {name}, and are left out: "
            f"--repository {name} takes them for this repository's, wherever it lay"
        ]

    def commit(self, session: str, item: said.Commit) -> None:
        """A commit that the log of this session names."""
        self._commits[session].append(item)

    def wall_clocks(self) -> list[tuple[int, str]]:
        """Wall clock time of each edit of which only that is told, and what its log calls its commit."""
        return [
            (kept.at, next(iter(self._named(kept)), ""))
            for kept in self._kept
            if kept.zoneless and kept.at is not None
        ]

    def named(self) -> Iterator[str]:
        """What the logs call the commits that took an edit."""
        for kept in self._kept:
            yield from self._named(kept)

    def __len__(self) -> int:
        """How many edits there are to follow."""
        return len(self._kept)

    def batches(self, most: int = _BATCH) -> Iterator[list[Change]]:
        """All edits, each with the commit that its session names for it, in lists of a bounded size.

        Edits of files of one name go together as far as that allows, those of an episode and a file always:
        which of two took the same lines, and what superseded what, is told apart within a list. Where one
        list is enough the edits come in the order of the logs.
        """
        groups: dict[tuple[str, str, str], list[int]] = defaultdict(list)
        for n, kept in enumerate(self._kept):
            groups[PurePosixPath(kept.path.replace("\\", "/")).name, kept.episode, kept.path].append(n)
        latest = {key: max(self._kept[n].at or 0 for n in members) for key, members in groups.items()}
        batch: list[int] = []
        size = 0
        for key in sorted(groups, key=lambda key: (key[0], -latest[key], key)):
            more = sum(self._kept[n].size for n in groups[key])
            if batch and size + more > most:
                yield self._changes(batch)
                batch, size = [], 0
            batch += groups[key]
            size += more
        if batch:
            yield self._changes(batch)

    def _changes(self, members: list[int]) -> list[Change]:
        found = []
        for kept in (self._kept[n] for n in sorted(members)):
            at = kept.at
            if at is not None and kept.zoneless and self.clock is not None:
                at = self.clock.utc(at)
            before, after, diff = msgspec.msgpack.decode(self._spill.read(kept.texts))
            found.append(
                Change(
                    kept.event, kept.path, before, after, diff, at, self._named(kept), kept.episode,
                    kept.undone, kept.log_session,
                )
            )  # fmt: skip
        return found

    def _named(self, kept: _Kept) -> tuple[str, ...]:
        commits = self._commits.get(kept.session, [])
        known = self._known.get(kept.session)
        if known is None or known[0] != len(commits):
            known = self._known[kept.session] = len(commits), Named(commits)
        commit = known[1].after(kept.path, kept.at, kept.before)
        return tuple(name for name in (commit.sha, commit.id) if name) if commit else ()


def belongs(repository: Path, cwd: str, path: str) -> bool:
    """Whether an edit was made in this repository, as far as a log tells: on whatever machine it lay.

    Args:
        cwd: the folder its session was begun in, "" when not told.
        path: the file, absolute or relative to that.
    """
    path = normpath(path)
    absolute = pure(path) if pure(path).is_absolute() else None
    if _lies_in(repository, path):
        return True
    place = absolute or (pure(cwd) if cwd else None)
    if place is None:
        return True
    return any(_is_of(repository, part) or _is_of(repository, _TREES.sub("", part)) for part in place.parts)


def _lies_in(repository: Path, path: str) -> bool:
    """Whether an absolute path, of this machine then, leads into where a repository lies."""
    return any(pure(path).is_relative_to(one) for one in _places(repository))


def _is_of(repository: Path, name: str) -> bool:
    """Whether a repository is called so, in any case: most machines tell no cases apart."""
    return name.casefold() in _folded(repository)


@lru_cache
def _folded(repository: Path) -> frozenset[str]:
    return frozenset(name.casefold() for name in names_of(repository))


def _located(cwd: str, path: str) -> str:
    """A log's path spelled shortest, whole where it tells what folder it is relative to.

    Edits of one file are told by it, and of files of one name in a repository the right one.
    """
    folder = pure(cwd)
    if path and folder.is_absolute() and not PurePosixPath(path).is_absolute():
        if isinstance(folder, PureWindowsPath):
            return ntpath.normpath(folder / path)
        path = path if pure(path).is_absolute() else f"{cwd}/{path}"
    return path and normpath(path)


def place_of(repository: Path) -> Path:
    """Its whole path; a link is not followed, as its name may be what the repository is called."""
    whole = repository.absolute()
    return whole.resolve() if whole.name == ".." else whole.parent.resolve() / whole.name


@lru_cache
def _places(repository: Path) -> tuple[Path, ...]:
    """Where a repository lies: as it was named, and where that leads by symbolic links."""
    return tuple(dict.fromkeys((repository, repository.resolve())))


def names_of(repository: Path) -> list[str]:
    """What a repository is called by its folder; first as it was named."""
    return [one.name.removesuffix(".git") or one.parent.name for one in _places(repository)]


def repository_of(cwd: str, named: str = "") -> str:
    """What a session worked on, by the folder it was begun in; "" for a home folder, which names a person.

    A worktree that an agent made, for a session or for a sub-agent alone, is its repository's, and so is one
    in the repository's `.worktrees` or, as editors make them, in `NAME.worktrees` beside it.

    Args:
        cwd: the folder, "" when not told.
        named: what the log itself calls the repository, `owner/name` or an address: its last part counts.
    """
    name = _LAST_PART.search(named)
    if name and "REDACTED" not in name[1]:
        return name[1]
    path = pure(cwd)
    for at, part in enumerate(path.parts[:-1]):
        if part in _WORKTREES and path.parts[at + 1] == "worktrees":
            path = type(path)(*path.parts[: at + _WORKTREES[part]])
            break
        if part.endswith(".worktrees"):
            path = type(path)(*path.parts[:at], part.removesuffix(".worktrees"))
            break
    return "" if path.parent.name in _HOMES or path.name in _HOMES else path.name
