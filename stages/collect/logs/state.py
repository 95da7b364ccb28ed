"""What `turns.py` remembers of a session while it is read, and the generation it makes of a turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from cursorbench.harness.thoughts import CLOSE, OPEN, apart
from cursorbench.sessions import items as said
from cursorbench.sessions.agents import agent_of
from stages.records import TEXT_ONLY, Event, Generation, Sampling, ToolCall

_WITHOUT_IDS = frozenset(
    {"continue", "continue-session"}
)  # what stands for an answer's id is a hash of its text, which is sealed


class Sampled(msgspec.Struct, frozen=True):
    """A generation with its two texts."""

    generation: Generation
    request: str
    answer: str


class Happened(msgspec.Struct, frozen=True):
    """An event and the episode it belongs to."""

    event: Event
    episode: str
    user: str
    derived: bool = False


Record = Sampled | Happened


@dataclass
class Turn:
    """What the agent says until a tool answers."""

    number: int
    at: int
    log_id: str = ""
    model: str = ""
    texts: list[str] = field(default_factory=list)
    thinking: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    first_token_ms: float | None = None
    duration_ms: float | None = None
    answered: bool = False  # a tool has answered: what the agent says next is another generation

    def add(self, text: str, thinking: str) -> None:
        """More that the agent says. What its model thought is no part of it, where the log did not tell."""
        thought, told = apart(text, begun=None)
        self.texts += [told] if told else []
        self.thinking += [each for each in (thinking, thought) if each]


@dataclass
class Episode:
    """A request and what answers it, as far as it is read."""

    id: str
    request: str
    turns: int = 0
    turn: Turn | None = None
    last: str = ""  # id of its last generation
    waiting: list[Happened] = field(default_factory=list)  # for the turn to be complete

    def went_on(self, *, approved: bool) -> None:
        """The client sent more by itself. What was `approved` is stopped no more: the next answer may be."""
        if self.turn:
            self.turn.answered = True
        if approved:
            self.last = ""


@dataclass
class Session:
    """A session, as far as it is read."""

    kind: str
    id: str
    name: str  # unique over kinds
    agent: str = ""
    version: str = ""
    repository: str = ""
    parent: str = ""
    cwd: str = ""
    model: str = ""
    at: int = 0
    episodes: int = 0
    events: int = 0
    open: Episode | None = None
    user: str = ""  # who sent it; "" where it was found on a disk
    mark: str = ""  # of the sender, in the session's name
    command: str = ""  # a slash command that may be answered
    calls: dict[str, tuple[str, str, str]] = field(default_factory=dict)  # id: tool, generation, episode

    @property
    def agent_name(self) -> str:
        """Who answers: one name, however it is spelt."""
        return agent_of(self.agent or self.kind)


def owner_of(session: Session, sessions: Mapping[str, Session], user: str) -> str:
    """Whose session it is. A sub-agent works for whoever began its parent. `user` "": each its own."""
    if session.user:
        return session.user
    names = {session.name}
    while session.parent and session.parent not in names:
        names.add(session.parent)
        if session.parent not in sessions:
            return user or session.parent
        session = sessions[session.parent]
    return user or session.name


def sampled(line: str, user: str, session: Session, episode: Episode, turn: Turn) -> Sampled:
    """The generation of a complete turn. Times that a log does not tell are nan, tokens 0 with a defect."""
    nothing = float("nan")
    generation = Generation(
        id=f"{episode.id}#{turn.number}", key_id=f"log:{session.kind}", user=user,
        session=session.name, episode=episode.id, ordinal=turn.number, at=turn.at, wall=turn.at,
        line=line, arm="", deployment="", api="chat", sampling=Sampling(), spans=(), finish_reason="",
        prompt_tokens=0, output_tokens=0,
        ttft_ms=nothing if turn.first_token_ms is None else turn.first_token_ms,
        duration_ms=nothing if turn.duration_ms is None else turn.duration_ms,
        tool_calls=tuple(turn.calls), invalid_tool_calls=_invalid(turn.calls),
        features=_features(session, turn), defect=TEXT_ONLY,
    )  # fmt: skip
    thought = "\n\n".join(turn.thinking).replace(CLOSE, "")  # or its own end would be there
    answer = f"{OPEN}{thought}{CLOSE}" if thought else ""
    return Sampled(generation, episode.request, answer + "\n\n".join(turn.texts))


def _invalid(calls: list[ToolCall]) -> int | None:
    """How many calls were none; None where that is not told and none is known."""
    invalid = sum(call.error not in ("", "untold") for call in calls)
    return None if not invalid and any(call.error == "untold" for call in calls) else invalid


def _features(session: Session, turn: Turn) -> dict[str, str]:
    told = {
        "agent": session.agent_name,
        "version": session.version,
        "model": turn.model or session.model,
        "repository": session.repository,
        "log": session.kind,
        "log_id": "" if session.kind in _WITHOUT_IDS else turn.log_id,
        "parent": session.parent,
    }
    return {name: value for name, value in told.items() if value}


def says(item: said.AgentTurn | said.ToolUse) -> bool:
    """Whether the agent says, thinks or does something in it; else it tells what a turn took."""
    return isinstance(item, said.ToolUse) or bool(item.text or item.thinking)
