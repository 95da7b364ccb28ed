"""The user's own words that caused a commit: what was said before the first edit that the commit took.

A commit is traced to a session, the surest way first: an edit of the session that the commit took, known by
SHA, trailer, note or content (`cursorbench/history`); an attribution of the commit's lines to the session
(git-ai, Agent Trace); the session's log naming the commit. Not for: telling whether the words give the
solution away (`leak.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cursorbench.builder.told import Moment, Session, Told
from cursorbench.builder.wording import assents
from cursorbench.history.branch import Branch, branch_of
from cursorbench.history.follow import follow
from cursorbench.history.repository import Repository
from cursorbench.redaction import visible


@dataclass(frozen=True)
class Request:
    """What a person asked for before a commit.

    Attributes:
        text: their messages in order, a blank line between them; not redacted.
        session: the log's name of it.
        how: what traced the commit to it: sha, trailer, note, content, attribution or log.
        messages: how many there are in `text`.
        turns: the agent's messages from the first of these to the last edit that the commit took; None when
            the log has none.
    """

    text: str
    session: str
    how: str
    messages: int
    turns: int | None


@dataclass(frozen=True)
class Traced:
    """Requests by commit, and why a commit that is traced to a session has none."""

    requests: Mapping[str, Request]
    silent: Mapping[str, str]


def trace(repository: Repository, head: str, said: Told) -> Traced:
    """Follow the edits of all sessions, and find what was said before each commit's first one."""
    branch = branch_of(repository, head)
    took: dict[str, list[tuple[str, str]]] = defaultdict(list)  # commit: (edit, how)
    owner: dict[str, str] = {}  # edit: commit
    for survival in follow(repository, said.changes, head):
        if survival.commit in branch and not survival.reason.startswith("undone"):
            took[survival.commit].append((survival.key, survival.how))
            owner[survival.key] = survival.commit
    requests: dict[str, Request] = {}
    silent: dict[str, str] = {}
    for commit, sessions in _sessions(branch, said, took).items():
        best, why = None, "no_words"
        for name, how in sessions.items():
            session = said.sessions[name]
            moments = _until(session, branch, commit) if how == "log" else session.moments
            request = _request(session.name, moments, commit, how, owner)
            if isinstance(request, str):
                why = request
            elif best is None:
                best = request
        if best:
            requests[commit] = best
        else:
            silent[commit] = why
    return Traced(requests, silent)


def _sessions(
    branch: Branch, said: Told, took: Mapping[str, Sequence[tuple[str, str]]]
) -> dict[str, dict[str, str]]:
    """The sessions of each commit with what traced it there, the one with most of its edits first."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for commit, edits in took.items():
        counted: dict[str, list[str]] = defaultdict(list)
        for key, how in edits:
            counted[said.session_of[key]].append(how)
        for name in sorted(counted, key=lambda name: (-len(counted[name]), name)):
            found[commit][name] = counted[name][0]
    for told_name, names in said.attributed.items():
        if commit := branch.named(told_name):
            for name in names:
                if name in said.sessions:
                    found[commit].setdefault(name, "attribution")
    for session in said.sessions.values():
        for one in session.commits:
            if commit := branch.named(one.sha):
                found[commit].setdefault(session.name, "log")
    return found


def _until(session: Session, branch: Branch, commit: str) -> list[Moment]:
    """What happened in a session before a commit that its log names and after the one before that."""
    times = [one.at for one in session.commits if one.at is not None and branch.named(one.sha) == commit]
    if not times:
        return []
    until = min(times)
    since = max((one.at for one in session.commits if one.at is not None and one.at < until), default=0)
    return [one for one in session.moments if one.at is not None and since < one.at <= until]


def _request(
    name: str, moments: Sequence[Moment], commit: str, how: str, owner: Mapping[str, str]
) -> Request | str:
    """What was said before the first edit of a commit; or why nothing was."""
    mine = [n for n, one in enumerate(moments) if one.key in owner and owner[one.key] == commit]
    free = [n for n, one in enumerate(moments) if one.what == "edit" and one.key not in owner]
    edits = mine or free
    if not edits and how == "log":
        return "no_edits"  # which of the session's messages caused it is not told
    first = min(edits, default=len(moments))
    start = _after_others(moments, first, commit, owner)
    said = [_bare(one.text) for one in moments[start:first] if one.what == "user"]
    if not said and mine:  # two commits of one request: it caused both
        said = _last_said(moments[:first])
    while said and assents(said[0]) and len(said) > 1:
        said = said[1:]  # an assent to what came before
    text = "\n\n".join(one for one in said if one)
    if assents(text):
        return "no_words" if not text else "only_assent"
    last = max(edits, default=first)
    turns = len({one.key for one in moments[start : last + 1] if one.what == "agent"})
    return Request(text, name, how, len(said), turns or None)


def _after_others(moments: Sequence[Moment], first: int, commit: str, owner: Mapping[str, str]) -> int:
    """Where the words for this commit begin: behind the last edit before that another commit took."""
    for n in range(first - 1, -1, -1):
        if moments[n].key in owner and owner[moments[n].key] != commit:
            return n + 1
    return 0


def _last_said(moments: Sequence[Moment]) -> list[str]:
    """The messages that stand together before the last edits: what the agent was still working on."""
    said: list[str] = []
    for one in reversed(moments):
        if one.what == "user":
            said.insert(0, _bare(one.text))
            if not assents(one.text):
                break
    return said


def _bare(text: str) -> str:
    return visible(text).strip()
