"""What session logs tell, as the builder needs it: per session, in order, who said what, which edits stood.

A sub-agent's edits count as its parent's, in the order of time. Not for: which commit took an edit
(`requests.py`), formats (`cursorbench/sessions/`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Literal

from cursorbench.errors import InputMissingError
from cursorbench.history.changes import Change
from cursorbench.sessions import given, kinds, on_disk
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
from cursorbench.sessions.tellers import LEFT_OUT, Tellers

_CLOCKS = 60_000  # ms by which two clocks of one log may differ


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
    repositories = [path for path in dict.fromkeys(paths) if given.is_repository(path)]
    within = lru_cache(maxsize=1)(lambda file: {path for path in repositories if _is_of(file, path)})
    tellers, held = Tellers(), set[Path]()
    files = (file for path in paths if not given.is_bare(path) for file in kinds.files(path))
    for kind, item in on_disk.read(dict.fromkeys(files), list(dict.fromkeys(paths))):
        of = within(item.place.file)
        if of and isinstance(item, Quarantined) and item.reason == "unknown_kind":
            continue  # its source
        held |= of
        taken = tellers.take(kind, item)
        if taken is not None and not (isinstance(taken, Quarantined) and taken.reason == LEFT_OUT):
            yield taken
    for path in repositories:
        if path not in held and not _holds_any(path):
            raise InputMissingError(
                f"{path} holds no sessions",
                hint="name session logs, or a repository with Entire's or git-ai's",
            )


def _is_of(file: str, repository: Path) -> bool:
    """Whether that is a file of its work tree, or in its branches, refs or notes."""
    return file.startswith(f"{repository}:") or Path(file).is_relative_to(repository)


def _holds_any(repository: Path) -> bool:
    """Whether there are sessions in it, told before or not."""
    files = () if given.is_bare(repository) else kinds.files(repository)
    return on_disk.refs(repository) != b"" or any(map(given.kind_of, files))


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
