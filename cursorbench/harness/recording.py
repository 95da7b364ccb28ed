"""The record of an agent that is not ours, from what it asked the model. No network.

What its messages repeat tells its conversation: a request that goes on with one before adds what is
new to it; one that does not has begun another (the agent summed up, or has a helper beside it).
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from cursorbench.errors import UsageError
from cursorbench.harness.budget import Budget, Spent, StopReason, Usage, estimate
from cursorbench.harness.call_parser import RawCall, ToolSet
from cursorbench.harness.chat import objects, said_in, whole
from cursorbench.harness.completion import Completion
from cursorbench.harness.episode import CallRecord, Episode, Message, Turn
from cursorbench.harness.results import printable

MAX_KEPT_CHARS = 1 << 16  # of one field of a message in the record
MAX_RECORD_CHARS = 1 << 25  # of all that an agent asked: what a model reads in a long trial is far less
MAX_OPEN = 16  # conversations that may go on: an agent and its helpers
_EACH = 64  # counted of a message besides its texts
_KEPT = ("role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content")


@dataclass
class Recorder:
    """Counts and keeps model calls as they come, from several threads.

    Attributes:
        stop: the limit of the budget that was reached.
        failure: why the last request got no answer, "" when it did.
        full: the last request was longer than the model's context.
        refused: the service takes the key no more.
    """

    budget: Budget
    spent: Spent = field(default_factory=Spent)
    stop: StopReason | None = None
    failure: str = ""
    full: bool = False
    refused: UsageError | None = None
    tools: tuple[Mapping[str, Any], ...] = ()

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._turns: list[Turn] = []
        self._calls: list[CallRecord] = []
        self._open: dict[int, list[bytes]] = {}  # what was said, by segment; the last one went on last
        self._last = ""
        self._left = MAX_RECORD_CHARS
        self._under_way = 0
        self._started, self._began = time.monotonic(), time.time()

    def start(self) -> None:
        """The agent begins now: its wall time counts from here."""
        self._started, self._began = time.monotonic(), time.time()

    @property
    def waits(self) -> bool:
        """Whether a request is under way."""
        return self._under_way > 0

    @property
    def left_s(self) -> float:
        """Seconds of the budget's wall time that are left."""
        return self.budget.wall_s - (time.monotonic() - self._started)

    def over(self) -> StopReason | None:
        """The limit that is reached; None when there may be more."""
        with self._lock:
            self.stop = self.stop or self.spent.over(self.budget, time.monotonic() - self._started)
            return self.stop

    @contextlib.contextmanager
    def call(self) -> Iterator[StopReason | None]:
        """Around one model call: the limit that forbids it, those under way counted too; None for none."""
        limit = self.over()
        with self._lock:
            if limit is None and self.spent.turns + self._under_way >= self.budget.turns:
                limit = StopReason.MAX_TURNS
            self._under_way += 1
        try:
            yield limit
        finally:
            with self._lock:
                self._under_way -= 1

    def fail(self, reason: str) -> None:
        """A request got no answer."""
        with self._lock:
            self.failure = reason

    def add(self, body: Mapping[str, Any], found: Completion) -> None:
        """A request was answered."""
        messages, tools = objects(body.get("messages")), tuple(objects(body.get("tools")))
        answer = whole(found.message, len(self._turns))
        usage = found.usage or Usage(
            estimate([*messages, {"content": tools}]), estimate([answer]), told=False
        )
        with self._lock:
            self.failure, self.full = "", False
            self.spent.add(usage)  # first of all: whatever the record will be, it is paid for
            self.tools = tools or self.tools
            segment, fresh = self._fresh(messages, answer)
            self._results(fresh)
            if tools or not self.tools:  # a helper's answer, for a title say, is not the agent's
                self._last = said_in(answer)
            number = len(self._turns)
            self._turns.append(
                Turn(
                    number,
                    segment,
                    tuple(self._kept(fresh)),
                    _bounded(answer),
                    found.finish_reason,
                    usage,
                    found.generation_id,
                    found.seconds,
                    at_s=time.monotonic() - self._started,
                )
            )
            self._take(number, answer, tools)
            self.stop = self.stop or self.spent.over(self.budget, time.monotonic() - self._started)

    def episode(self, request: str, stop: StopReason, failure: str, seconds: float) -> Episode:
        """The record."""
        with self._lock:
            first = self._turns[0].asked if self._turns else ()
            system = next((str(one.get("content")) for one in first if one.get("role") == "system"), "")
            return Episode(
                system,
                request,
                self.tools,
                tuple(self._turns),
                tuple(self._calls),
                (),
                self._last,
                stop,
                failure,
                self._began,
                seconds,
            )

    def _fresh(self, messages: list[Message], answer: Message) -> tuple[int, list[Message]]:
        """A request's segment and what is new in it; another conversation is new from its beginning."""
        told = [_gist(one) for one in messages]
        for segment in reversed(self._open):
            said = self._open[segment]
            if told[: len(said)] == said:
                break
        else:
            segment, said = len({turn.segment for turn in self._turns}), []
        self._open.pop(segment, None)
        self._open[segment] = [*told, _gist(answer)]
        if len(self._open) > MAX_OPEN:
            del self._open[next(iter(self._open))]
        return segment, messages[len(said) :]

    def _kept(self, messages: Sequence[Message]) -> Iterator[Message]:
        """The messages for the record, for as long as it has room."""
        for message in messages:
            kept = _bounded(message)
            if not self._has_room(sum(map(_size, kept.values()))):
                return
            yield kept

    def _has_room(self, size: int) -> bool:
        self._left -= size + _EACH
        return self._left >= 0

    def _results(self, fresh: Sequence[Message]) -> None:
        """What the agent told the model about its calls."""
        told = {
            str(one.get("tool_call_id")): printable(_text(one.get("content")))[:MAX_KEPT_CHARS]
            for one in fresh
            if one.get("role") == "tool"
        }
        for place, call in enumerate(self._calls):
            if call.id in told and not call.result and self._has_room(len(told[call.id])):
                self._calls[place] = CallRecord(**{**vars(call), "result": told[call.id]})

    def _take(self, turn: int, answer: Message, tools: tuple[Mapping[str, Any], ...]) -> None:
        calls = answer.get("tool_calls") or []
        self.spent.tool_calls += len(calls)
        try:
            known = ToolSet(tools) if calls else None
        except UsageError:
            known = None
        for call in calls:
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            error = known.check(RawCall(name, arguments, "", 0, 0)) if known else ""
            kept = arguments[:MAX_KEPT_CHARS]
            self._calls.append(CallRecord(turn, call["id"], name, kept, error, "", "", 0.0))


def _text(content: object) -> str:
    """What a message says, whole or in parts, whatever else these tell (that they are to be cached, say)."""
    parts = objects(content)
    return "\n".join(str(part.get("text") or "") for part in parts) if parts else str(content or "")


def _gist(message: Message) -> bytes:
    """What of a message comes back the same from a client: of a system prompt not even the text, which some
    sign anew with each request. Kept for as long as the trial lasts, so no text of any size is."""
    ids = [call.get("id") for call in objects(message.get("tool_calls"))]
    role = message.get("role")
    text = "" if role == "system" else _text(message.get("content")).strip()
    return blake2b(repr((role, text, ids)).encode("utf-8", "replace"), digest_size=16).digest()


def _bounded(message: Message) -> Message:
    """What a record is made of. A message may hold anything besides, as much as a body may have."""
    kept = {name: message[name] for name in _KEPT if name in message}
    for name, value in kept.items():
        if _size(value) > MAX_KEPT_CHARS:
            text = value if isinstance(value, str) else ""
            kept[name] = f"{text[:MAX_KEPT_CHARS]}\n[cut]"
    return kept


def _size(value: object) -> int:
    try:
        return len(value if isinstance(value, str) else json.dumps(value))
    except RecursionError:
        return MAX_KEPT_CHARS + 1
