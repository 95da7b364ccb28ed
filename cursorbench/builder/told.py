"""What session logs tell, as the builder needs it: per session, in order, who said what, which edits stood.

A sub-agent's edits count as its parent's, in the order of time. Not for: which commit took an edit
(`requests.py`), formats (`cursorbench/sessions/`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from cursorbench.errors import InputMissingError, UsageError
from cursorbench.history.changes import Change
from cursorbench.sessions import entire_branch, git_ai, given, kinds
from cursorbench.sessions.copies import Copies
from cursorbench.sessions.entire_beside import in_order
from cursorbench.sessions.items import (
    AgentTurn,
    Attribution,
    Commit,
    Edit,
    Item,
    Quarantined,
    Read,
    SessionStart,
    UserTurn,
)
from cursorbench.sessions.seen import Seen
from cursorbench.sessions.tellers import LEFT_OUT, SECOND_HAND, Tellers

_CLOCKS = 60_000  # ms by which two clocks of one log may differ
_IN_REPOSITORIES = {"entire": entire_branch.read_repository, "git-ai": git_ai.read_repository}


@dataclass(frozen=True)
class Moment:
    """One thing in a session. `key` is an edit's; `text` a person's words; `id` an agent's turn's."""

    what: Literal["user", "agent", "edit"]
    at: int | None
    order: int
    text: str = ""
    key: str = ""


@dataclass
class Session:
    """A session with its sub-agents.

    Attributes:
        moments: in the order of the log, or of time where all have one.
        commits: what the log calls the commits that took its work: (SHA or "", id, when, paths).
    """

    name: str
    moments: list[Moment] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    began: int | None = None

    def sort(self) -> None:
        """Into the order of time, where every moment has one."""
        if all(moment.at is not None for moment in self.moments):
            self.moments.sort(key=lambda moment: (moment.at or 0, moment.order))


@dataclass
class Told:
    """All sessions by name, the applied edits as changes to be followed, and what could not be read."""

    sessions: dict[str, Session] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    session_of: dict[str, str] = field(default_factory=dict)
    attributed: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    unread: Counter[str] = field(default_factory=Counter)


def items_of(paths: Sequence[Path]) -> Iterator[Read]:
    """Every item of logs, of folders of them, and of what repositories hold in branches and notes, once.

    What stands in several of them is told by the first: lines by their ids, files by their bytes, a session
    that several kinds of logs have by one of them, its agent's own before a transcript of it.

    Raises:
        InputMissingError: (exit 5) nothing is there, or a repository holds no sessions.
    """
    tellers, held = Tellers(), set[Path]()
    for path, kind, item in _every(paths):
        if isinstance(item, Quarantined) and item.reason == "unknown_kind" and given.is_repository(path):
            continue
        held.add(path)
        taken = None if item is None else tellers.take(kind, item)
        if taken is not None and not (isinstance(taken, Quarantined) and taken.reason == LEFT_OUT):
            yield taken
    for path in paths:
        if given.is_repository(path) and path not in held and not _holds_any(path):
            raise InputMissingError(
                f"{path} holds no sessions",
                hint="name session logs, or a repository with Entire's or git-ai's",
            )


def _every(paths: Sequence[Path]) -> Iterator[tuple[Path, str, Read | None]]:
    """(one of the paths, kind, item); None for a file of which another had the bytes."""
    seen, copies, later = Seen(), Copies(), list[tuple[Path, Path, str]]()
    for path in paths:
        for file in () if given.is_bare(path) else in_order(list(kinds.files(path))):
            if copies.again(file):
                yield path, "", None
            elif (kind := given.kind_of(file)) in SECOND_HAND:
                later.append((path, file, kind))
            else:
                yield from ((path, kind or "", item) for _, item in kinds.read(file, kind, seen))
    for path in filter(given.is_repository, paths):
        yield from _in_git(path, "entire", seen)
    for path, file, kind in later:
        yield from ((path, kind, item) for _, item in kinds.read(file, kind, seen))
    for path in filter(given.is_repository, paths):
        yield from _in_git(path, "git-ai", seen)


def _in_git(path: Path, kind: str, seen: Seen) -> Iterator[tuple[Path, str, Read | None]]:
    with suppress(InputMissingError, UsageError):  # it holds none of this kind
        for item in _IN_REPOSITORIES[kind](path, seen):
            yield path, kind, item


def _holds_any(path: Path) -> bool:
    """Whether a repository has sessions in branches or notes, told before or not."""
    return any(True for kind in _IN_REPOSITORIES for _ in _in_git(path, kind, Seen()))


def told(items: Iterable[Read]) -> Told:
    """Put items into sessions."""
    found, parents = Told(), dict[str, str]()
    edits: dict[str, Edit] = {}
    undone: set[str] = set()
    for order, item in enumerate(items):
        if isinstance(item, Quarantined):
            found.unread[item.reason] += 1
            continue
        if isinstance(item, SessionStart) and item.parent:
            parents[item.session] = item.parent
        if isinstance(item, Attribution):
            if item.session and item.author in ("ai", "mixed") and item.commit:
                found.attributed[item.commit].append(item.session)
            continue
        _put(found.sessions.setdefault(item.session, Session(item.session)), item, order, edits, undone)
    _join(found.sessions, parents)
    for session in found.sessions.values():
        session.sort()
        taken = {moment.key: moment for moment in session.moments if moment.what == "edit"}
        for key, moment in taken.items():
            edit = edits[key]
            found.session_of[key] = session.name
            found.changes.append(
                Change(
                    key, edit.path, edit.before, edit.after, edit.diff,
                    edit.at if edit.at is not None else session.began,
                    _named(session, edit, moment), session.name, key in undone,
                )
            )  # fmt: skip
    return found


def _put(session: Session, item: Item, order: int, edits: dict[str, Edit], undone: set[str]) -> None:
    if isinstance(item, SessionStart):
        session.began = item.at if session.began is None else session.began
    elif isinstance(item, UserTurn) and not item.automatic and item.text.strip():
        session.moments.append(Moment("user", item.at, order, item.text))
    elif isinstance(item, AgentTurn):
        session.moments.append(Moment("agent", item.at, order, key=item.id or str(order)))
    elif isinstance(item, Commit):
        session.commits.append(item)
    elif isinstance(item, Edit):
        key = f"{item.session}/{item.id}/{item.path}" if item.id else f"{item.session}/{order}"
        if item.status == "applied" and key not in edits:
            edits[key] = item
            session.moments.append(Moment("edit", item.at, order, key=key))
        elif item.status in ("undone", "rejected"):
            undone.add(key)


def _join(sessions: dict[str, Session], parents: dict[str, str]) -> None:
    """Give the moments of sub-agents, what they were told apart, to the session that began them."""
    for name in [name for name in parents if name in sessions]:
        root, seen = name, {name}
        while (parent := parents.get(root)) and parent not in seen:
            seen.add(parent)
            root = parent
        if root != name and root in sessions:
            child = sessions.pop(name)
            sessions[root].moments += [one for one in child.moments if one.what != "user"]
            sessions[root].commits += child.commits


def _named(session: Session, edit: Edit, moment: Moment) -> tuple[str, ...]:
    """What the log calls the commit that took an edit: the first it names after it that has the file."""
    for commit in sorted(session.commits, key=lambda one: (one.at is None, one.at or 0)):
        if commit.at is not None and moment.at is not None and commit.at + _CLOCKS < moment.at:
            continue
        if not commit.paths or any(_same(path, edit.path) for path in commit.paths):
            return tuple(name for name in (commit.sha, commit.id) if name)
    return ()


def _same(told: str, path: str) -> bool:
    one, other = (text.replace("\\", "/").strip("/").split("/") for text in (told, path))
    n = min(len(one), len(other))
    return one[-n:] == other[-n:]
