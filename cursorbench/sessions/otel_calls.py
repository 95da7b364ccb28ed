"""One id for a tool call that spans tell under several, or under none. For `otel`.

OpenLLMetry names a call of the Responses API by its item (`fc_...`) in one place and by the call (`call_...`)
in another: its instrumentation of OpenAI's client in answers and in histories, that of the Agents SDK in
histories alone, where the span of the tool has no id at all. Such calls are known by name, arguments, and
which of the same they are. Source: traceloop/openllmetry, `responses_wrappers.py`, `openai_agents/_hooks.py`.
Not for: results under another id than their call in one request (`otel_messages`).
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from hashlib import blake2b

import msgspec

from cursorbench.sessions.calls import Call, remember
from cursorbench.sessions.chat import Message


class Ids:
    """The calls that one file's records told, asked in their order; the oldest of too many are forgotten."""

    def __init__(self) -> None:
        self._told: OrderedDict[str, list[str]] = OrderedDict()
        self._of_spans: OrderedDict[str, str] = OrderedDict()  # of calls that only their spans named

    def answered(self, session: str, answer: Message | None) -> None:
        """The model called these."""
        for call in answer.calls if answer is not None else ():
            self._note(session, call)

    def repeated(self, session: str, asked: list[Message]) -> list[Message]:
        """A request's messages, with calls and their ends under the ids that were told first."""
        often, new = Counter[str](), dict[str, str]()
        here = {call.id for message in asked for call in message.calls}
        for call in (call for message in asked for call in message.calls):
            same = self._told.get(key := _key(session, call), [])
            first = same[often[key]] if often[key] < len(same) else ""
            often[key] += 1
            if call.id and first and first not in here and self._alike(first, call.id):
                new[call.id] = first
            else:
                self._note(session, call)
        return [_renamed(message, new) for message in asked] if new else asked

    def of_span(self, session: str, call: Call, span: str, ended: Callable[[str], bool]) -> Call:
        """The call that a tool's span tells: without an id it is one that has no end yet, else the span's."""
        if not call.id:
            same = self._told.get(_key(session, call), [])
            one = next((one for one in same if not ended(one)), span)
            call = msgspec.structs.replace(call, id=one)
            if one == span:
                remember(self._of_spans, span, span)
        self._note(session, call)
        return call

    def _alike(self, first: str, later: str) -> bool:
        """Whether these may be ids of one call: of its item and itself, or of its span."""
        return first in self._of_spans or first.startswith("fc_") != later.startswith("fc_")

    def _note(self, session: str, call: Call) -> None:
        key = _key(session, call)
        if call.id and call.id not in (same := self._told.get(key, [])):
            remember(self._told, key, [*same, call.id])


def _key(session: str, call: Call) -> str:
    """Arguments may be whole files: of what is kept, nothing is text."""
    text = f"{session}\0{call.name}\0{call.arguments.written()}"
    return blake2b(text.encode(errors="replace"), digest_size=12).hexdigest()


def _renamed(message: Message, ids: dict[str, str]) -> Message:
    return msgspec.structs.replace(
        message,
        calls=[msgspec.structs.replace(one, id=ids.get(one.id, one.id)) for one in message.calls],
        results=[msgspec.structs.replace(one, id=ids.get(one.id, one.id)) for one in message.results],
    )
