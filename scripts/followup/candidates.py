"""Human follow-up messages of session logs, each with what it answers to. For annotation and training.

A follow-up is a message that a person wrote in a session after the agent did something there. Messages that
no person wrote are left out and do not end an answer; what the user did in between is counted, not judged.
What the user said when refusing a tool call is no message of its own: refusals are behaviour, and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b

import msgspec

from cursorbench.sessions.items import (
    AgentTurn,
    Edit,
    Interrupt,
    Quarantined,
    Read,
    Status,
    ToolEnd,
    ToolUse,
    UserTurn,
)
from followup import texts


class Between(msgspec.Struct, frozen=True, kw_only=True):
    """What happened since the user's previous message, in numbers. Of an edit its last status counts."""

    answers: int = 0  # texts of the agent
    tool_calls: int = 0
    tool_errors: int = 0
    tool_rejections: int = 0
    edits_applied: int = 0
    edits_rejected: int = 0
    edits_undone: int = 0
    interrupts: int = 0


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where logs come from. `commit` is of the repository that holds them."""

    folder: str
    repository: str
    licence: str
    commit: str = ""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """One follow-up with its context. Texts are masked excerpts; `position` counts the session's messages."""

    id: str
    message: str
    message_characters: int
    request: str
    answer_end: str
    between: Between
    source: str
    repository: str
    licence: str
    commit: str
    kind: str
    agent: str
    session: str
    item: str
    position: int


@dataclass
class _Session:
    """What is known of a session up to now."""

    agent: str = ""
    request: str = ""
    position: int = 0
    acted: bool = False  # the agent, ever
    answer: list[str] = field(default_factory=list)  # the last one
    fresh: bool = True  # whether the next text begins a new answer
    edits: dict[tuple[str, str], Status] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    seen: set[str] = field(default_factory=set)

    def between(self) -> Between:
        status = Counter(self.edits.values())
        return Between(
            **self.counts,
            edits_applied=status["applied"],
            edits_rejected=status["rejected"],
            edits_undone=status["undone"],
        )

    def note(self, item: Read) -> None:
        """The agent did something, or something was done to its work."""
        if isinstance(item, AgentTurn) and item.text.strip():
            if self.fresh:
                self.answer, self.fresh = [], False
            self.answer.append(item.text)
            self.counts["answers"] += 1
            self.acted = True
        elif isinstance(item, ToolUse):
            self.counts["tool_calls"] += 1
            self.acted = True
        elif isinstance(item, Edit):
            self.edits[item.id, item.path] = item.status
            self.acted = True
        elif isinstance(item, ToolEnd) and item.outcome in ("error", "rejected"):
            self.counts["tool_errors" if item.outcome == "error" else "tool_rejections"] += 1
        elif isinstance(item, Interrupt):
            self.counts["interrupts"] += 1

    def said(self, text: str) -> None:
        """The user's message is over; what comes next is about it."""
        self.request = text
        self.position += 1
        self.edits.clear()
        self.counts.clear()
        self.fresh = True


def identity(repository: str, session: str, text: str) -> str:
    """The id of a message: 16 hexadecimal digits of its repository, session and words."""
    words = " ".join(text.split())
    return blake2b("\0".join((repository, session, words)).encode(), digest_size=8).hexdigest()


def candidates(
    read: Iterable[tuple[str, Read]], source: Source, left_out: Counter[str]
) -> Iterator[Candidate]:
    """The follow-ups of a stream of (kind, item), in its order.

    Args:
        read: what `cursorbench.sessions.kinds.read` gives.
        source: where it comes from.
        left_out: counts why a message of a user is no candidate.
    """
    sessions: dict[str, _Session] = {}
    copies: set[tuple[str, str, str]] = set()
    for kind, item in read:
        if isinstance(item, Quarantined):
            left_out[f"quarantined: {item.reason}"] += 1
            continue
        session = sessions.setdefault(item.session, _Session())
        if not isinstance(item, UserTurn):
            session.agent = getattr(item, "agent", "") or session.agent
            session.note(item)
            continue
        if item.automatic:
            left_out[f"automatic: {item.automatic}"] += 1
            continue
        if not item.text.strip():
            left_out["empty"] += 1
            continue
        found = _candidate(kind, item, session, source)
        if not session.acted:
            left_out["before any answer"] += 1
        elif found.id in session.seen:
            left_out["said before in the session"] += 1
        elif (copy := (found.request, found.answer_end, found.message)) in copies:
            left_out["copy of another session"] += 1
        else:
            session.seen.add(found.id)
            copies.add(copy)
            yield found
        session.said(item.text)


def _candidate(kind: str, item: UserTurn, session: _Session, source: Source) -> Candidate:
    return Candidate(
        id=identity(source.repository, item.session, item.text),
        message=texts.message(item.text),
        message_characters=len(item.text),
        request=texts.request(session.request),
        answer_end=texts.answer_end(session.answer),
        between=session.between(),
        source=source.folder,
        repository=source.repository,
        licence=source.licence,
        commit=source.commit,
        kind=kind,
        agent=session.agent or kind,
        session=texts.mask(item.session),
        item=item.id,
        position=session.position,
    )
