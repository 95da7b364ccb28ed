"""One id for a tool call that spans tell under several, or under none. For `otel`.

OpenLLMetry names a call of the Responses API by its item (`fc_...`) in one place and by the call (`call_...`)
in another: its instrumentation of OpenAI's client in answers and in histories, that of the Agents SDK in
histories alone, where the span of the tool has no id at all. LiteLLM's answers have calls without one. Such
calls are known by name, arguments, and which of the same they are. Source: traceloop/openllmetry,
`responses_wrappers.py`, `openai_agents/_hooks.py`; BerriAI/litellm, `integrations/opentelemetry.py`.
Not for: results under another id than their call in one request (`otel_messages`).
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from typing import TypeVar

import msgspec

from cursorbench.sessions.calls import Call, Result, remember
from cursorbench.sessions.chat import Message
from cursorbench.sessions.reading import parsed, table_of, text_of

_Told = TypeVar("_Told", Call, Result)


class Ids:
    """The calls that one file's records told, asked in their order; the oldest of too many are forgotten."""

    def __init__(self) -> None:
        self._told: OrderedDict[str, list[str]] = OrderedDict()
        self._of_spans: OrderedDict[str, int] = OrderedDict()  # ids made of those of spans

    def answered(self, session: str, answer: Message | None, span: str) -> None:
        """The model called these; a call without an id has that of the answer's span, and its place."""
        if answer is None:
            return
        for place, call in enumerate(answer.calls):
            if span and not call.id:
                answer.calls[place] = _with_id(call, f"{span}:{place}")
                remember(self._of_spans, answer.calls[place].id, place)
            self._note(session, answer.calls[place])

    def repeated(self, session: str, asked: list[Message]) -> list[Message]:
        """A request's messages, with calls and their ends under the ids that were told first."""
        often, new, waiting = Counter[str](), dict[str, str](), list[str]()
        here = {call.id for message in asked for call in message.calls}
        found = []
        for message in asked:
            calls = []
            for call in message.calls:
                same = self._told.get(key := _key(session, call), [])
                first = same[often[key]] if often[key] < len(same) else ""
                often[key] += 1
                is_it = bool(first) and first not in here and self._alike(first, call.id)
                calls.append(_with_id(call, first) if is_it else call)
                self._note(session, calls[-1])
                if is_it and call.id:
                    new[call.id] = first
                elif is_it:
                    waiting.append(first)
            ends = [
                _with_id(one, new.get(one.id, one.id) or (waiting.pop(0) if waiting else ""))
                for one in message.results
            ]
            found.append(msgspec.structs.replace(message, calls=calls, results=ends))
        return found

    def of_span(self, session: str, call: Call, span: str, ended: Callable[[str], bool]) -> Call:
        """The call that a tool's span tells: one that has no end yet, else the span's where it has no id."""
        same = self._told.get(_key(session, call), [])
        if not call.id or call.id not in same:
            open_ = (one for one in same if not ended(one) and (not call.id or self._alike(one, call.id)))
            call = _with_id(call, next(open_, call.id or span))
            if call.id == span:
                remember(self._of_spans, span, 0)
        self._note(session, call)
        return call

    def _alike(self, first: str, later: str) -> bool:
        """Whether these may be ids of one call: of its item and itself, or of a span."""
        items = bool(later) and first.startswith("fc_") != later.startswith("fc_")
        return items or first in self._of_spans

    def _note(self, session: str, call: Call) -> None:
        key = _key(session, call)
        if call.id and call.id not in (same := self._told.get(key, [])):
            remember(self._told, key, [*same, call.id])


def of_langchain(one: str, asked: object, given: object) -> tuple[str, object, object, bool]:
    """A call's id, arguments and result, and whether it failed, out of what OpenLLMetry has of LangChain's.

    Both attributes hold all that LangChain told its callbacks; the span has no id. Of others: as they are.
    """
    told = table_of(parsed(asked.encode(errors="replace"))) if isinstance(asked, str) else {}
    if not told.keys() >= {"input_str", "inputs", "kwargs"}:
        return one, asked, given, False
    output = table_of(parsed(given.encode(errors="replace"))) if isinstance(given, str) else {}
    message = table_of(table_of(output.get("output")).get("kwargs"))
    result = message.get("content", output.get("output", given))
    one = one or text_of(table_of(told["kwargs"]).get("tool_call_id"))
    return one, told["inputs"] or told["input_str"], result, message.get("status") == "error"


def _key(session: str, call: Call) -> str:
    """Arguments may be whole files: of what is kept, nothing is text."""
    text = f"{session}\0{call.name}\0{call.arguments.written()}"
    return blake2b(text.encode(errors="replace"), digest_size=12).hexdigest()


def _with_id(told: _Told, one: str) -> _Told:
    return msgspec.structs.replace(told, id=one)
