"""The edits of logs that a repository is to be asked about, and the commits that the logs name for them.

An edit goes with the first commit that its session names after it. Edits made in another folder than the
repository's are left out: that their files are not in it says nothing.
Not for: following them (`survival.py`).
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath

import msgspec

from cursorbench.history.changes import Change
from cursorbench.sessions import items as said
from stages.collect.logs.state import Session

_CLOCKS = 60_000  # ms by which two clocks of one log may differ
_HOMES = ("home", "Users", "users", "root")


class KeptEdits:
    """Applied edits in the order of the logs.

    Args:
        repository: where it lies.
        all_of_it: somebody said that the logs are all of this repository, wherever it lay then.

    Attributes:
        elsewhere: how many were made in another folder than the repository's.
    """

    def __init__(self, repository: Path, *, all_of_it: bool) -> None:
        self._root, self._all = repository, all_of_it
        self._changes: dict[str, Change] = {}
        self._session_of: dict[str, tuple[str, int]] = {}  # by event: session, and how many commits it had
        self._event_of: dict[tuple[str, str, str], str] = {}  # session, call, path
        self._commits: dict[str, list[said.Commit]] = defaultdict(list)
        self.elsewhere = 0

    def add(self, session: Session, item: said.Edit, event: str, episode: str) -> None:
        """An edit that was applied, or that was undone."""
        place = session.name, item.id, item.path
        if item.status == "applied":
            if not self._all and not belongs(self._root, session.cwd, item.path):
                self.elsewhere += 1
                return
            self._changes[event] = Change(
                event, item.path, item.before, item.after, item.diff, session.at or None, session=episode
            )
            self._session_of[event] = session.name, len(self._commits[session.name])
            self._event_of[place] = event
        elif item.status == "undone" and (undone := self._event_of.get(place)):
            self._changes[undone] = msgspec.structs.replace(self._changes[undone], undone=True)

    def commit(self, session: str, item: said.Commit) -> None:
        """A commit that the log of this session names."""
        self._commits[session].append(item)

    def changes(self) -> list[Change]:
        """The edits, each with the commit that its session names for it."""
        return [
            msgspec.structs.replace(one, commits=self._named(event, one))
            for event, one in self._changes.items()
        ]

    def _named(self, event: str, change: Change) -> tuple[str, ...]:
        session, before = self._session_of[event]
        named = list(enumerate(self._commits[session]))
        if all(commit.at is not None for _, commit in named):
            named.sort(key=lambda one: one[1].at or 0)  # a log may list them in any order
        for order, commit in named:
            if commit.at is not None and change.at is not None:
                later = commit.at + _CLOCKS >= change.at
            else:
                later = order >= before
            if later and (not commit.paths or any(_same(path, change.path) for path in commit.paths)):
                return tuple(name for name in (commit.sha, commit.id) if name)
        return ()


def belongs(repository: Path, cwd: str, path: str) -> bool:
    """Whether an edit was made in this repository, as far as a log tells: on whatever machine it lay.

    Args:
        cwd: the folder its session was begun in, "" when not told.
        path: the file, absolute or relative to that.
    """
    name = repository.name.removesuffix(".git") or repository.parent.name
    absolute = _pure(path) if _pure(path).is_absolute() else None
    if absolute is not None and absolute.is_relative_to(repository):
        return True
    place = absolute or (_pure(cwd) if cwd else None)
    return place is None or name in place.parts or not (cwd or absolute)


def repository_of(cwd: str) -> str:
    """What a session worked on, by the folder it was begun in; "" for a home folder, which names a person."""
    path = _pure(cwd)
    return "" if path.parent.name in _HOMES or path.name in _HOMES else path.name


def _same(told: str, path: str) -> bool:
    one, other = _pure(told).parts, _pure(path).parts
    n = min(len(one), len(other))
    return n > 0 and one[-n:] == other[-n:]


def _pure(path: str) -> PurePath:
    return PureWindowsPath(path) if "\\" in path or path[1:2] == ":" else PurePosixPath(path)
