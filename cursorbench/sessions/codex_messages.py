"""Messages of a Codex rollout, which tells most of them twice.

As the model got it (`response_item`, source "item") a message has its id; as the user saw it (`event_msg`,
sources "event" and "completed", for `item_completed`) it is known to be a person's. Both halves come close
together, in either order; where a log goes over from one event to the other, there may be a third.
"""

from __future__ import annotations

from collections import deque
from hashlib import blake2b
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from cursorbench.sessions import spoken
from cursorbench.sessions.items import AgentTurn, Automatic, Place, Read, UserTurn

ITEM = frozenset({"item"})
_MOST_WAITING = 16
_WAYS = 3  # item, event, completed


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message, from one source or several."""

    role: Literal["user", "assistant"]
    source: frozenset[str]
    text: str
    place: Place
    fresh: bool  # its line was not read before, in another copy of the session
    id: str = ""
    at: int | None = None
    model: str = ""
    automatic: Automatic = ""
    first_token_ms: float | None = None
    duration_ms: float | None = None


class Messages:
    """Messages that wait for their other half."""

    def __init__(self) -> None:
        self._waiting: list[Message] = []
        self._said: deque[tuple[str, frozenset[str], bytes, Automatic]] = deque(maxlen=64)
        self._mirrored = False  # this session's user messages come from both sources
        self._working = self._joined = False  # in this turn the agent did something; a person then wrote more

    def add(self, message: Message) -> list[Message]:
        """What is ready to be said now that `message` came."""
        self._mirrored |= message.role == "user" and message.source != ITEM
        if message.role == "assistant":
            self._working = True
        elif not message.automatic and not (self._mirrored and message.source == ITEM):
            self._joined |= self._working
        for index, other in enumerate(self._waiting):
            if _halves(other, message):
                ready = self._ready(self._waiting[:index])
                self._waiting[: index + 1] = [_merged(other, message)]
                return ready
        if self._was_said(message):
            return []
        self._waiting.append(message)
        ready = self._ready(self._waiting[:-_MOST_WAITING])
        self._waiting = self._waiting[-_MOST_WAITING:]
        return ready

    def flushed(self) -> list[Message]:
        """All that wait; something else happened."""
        ready, self._waiting = self._ready(self._waiting), []
        return ready

    def turn(self) -> None:
        """A turn begins: what it says in the words of the last one is not a third way of that."""
        self._working = self._joined = False
        self._said = deque((one for one in self._said if len(one[1]) == 1), maxlen=self._said.maxlen)

    def works(self) -> None:
        """The agent called a tool in this turn."""
        self._working = True

    def lasted(self, first_token_ms: object, duration_ms: object) -> None:
        """The turn is complete: its times go to the message that ended it.

        They are counted from the request that began it, so none go to what answers one that came later.
        """
        joined, self._working, self._joined = self._joined, False, False
        if self._waiting and self._waiting[-1].role == "assistant" and not joined:
            self._waiting[-1] = replace(
                self._waiting[-1], first_token_ms=_number(first_token_ms), duration_ms=_number(duration_ms)
            )

    def _ready(self, messages: list[Message]) -> list[Message]:
        ready = []
        for one in messages:
            automatic = one.automatic
            if self._mirrored and one.role == "user" and one.source == ITEM:
                automatic = automatic or "meta"  # the user never saw it: Codex wrote it
            self._remember(one.role, one.source, _key(one.text), automatic)
            ready.append(replace(one, automatic=automatic))
        return ready

    def _was_said(self, message: Message) -> bool:
        """Whether another way of it was said before; one that was taken for automatic is said again."""
        for one in self._said:
            role, source, key, automatic = one
            if role == message.role and not source & message.source and key == _key(message.text):
                self._said.remove(one)
                again = bool(automatic) and not message.automatic
                if not again:
                    self._remember(role, source | message.source, key, automatic)
                return not again
        return False

    def _remember(self, role: str, source: frozenset[str], key: bytes, automatic: Automatic) -> None:
        """Keep what was said as long as it may be told in one more way."""
        if len(source) < _WAYS:
            self._said.append((role, source, key, automatic))


def turns_of(message: Message, session: str, sub_agent: bool) -> list[Read]:
    """The turns of a message; in a sub-agent's thread no person wrote any."""
    where: dict[str, Any] = {
        "session": session,
        "id": message.id,
        "at": message.at,
        "place": message.place,
    }
    if message.role == "user":
        automatic = message.automatic or ("sub_agent" if sub_agent else "")
        whole = spoken.Part(message.text, automatic)
        apart = [whole] if automatic else spoken.apart(message.text)
        return [UserTurn(**where, text=one.text, automatic=one.automatic) for one in apart]
    times: dict[str, Any] = {"first_token_ms": message.first_token_ms, "duration_ms": message.duration_ms}
    return [AgentTurn(**where, text=message.text, model=message.model, **times)]


def _halves(one: Message, other: Message) -> bool:
    if one.role != other.role or one.source & other.source:
        return False
    if (one.id and one.id == other.id) or _key(one.text) == _key(other.text):
        return True
    if one.role == "user":
        return False
    seen, whole = (other, one) if one.source >= ITEM else (one, other)
    start = seen.text.strip()
    return bool(start) and whole.text.strip().startswith(start)  # citations are cut off what the user sees


def _merged(first: Message, second: Message) -> Message:
    item, event = (first, second) if first.source >= ITEM else (second, first)
    return replace(
        first, source=first.source | second.source, text=item.text, id=item.id or event.id,
        automatic=event.automatic, first_token_ms=first.first_token_ms, duration_ms=first.duration_ms,
    )  # fmt: skip


def _key(text: str) -> bytes:
    return blake2b("".join(text.split()).encode(errors="replace"), digest_size=16).digest()


def _number(value: object) -> float | None:
    number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e15
    return float(value) if number else None  # type: ignore[arg-type]
