"""Tools' spans that were over before the answer that asked for them. For `otel`.

GitHub Copilot's command line ends the span of a model's call when the tools are done that the answer asked
for, so exports have them first, often minutes and many lines before. Such a span waits for what ends next
below the same parent: a model's call that names it in its answer is told before it, anything else behind it.
What the tools gave stands among the messages of that request, as if the answer had come after it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from msgspec.structs import replace

from cursorbench.sessions.calls import Result
from cursorbench.sessions.chat import Message
from cursorbench.sessions.items import Place
from cursorbench.sessions.otel_messages import is_tool, texts
from cursorbench.sessions.otlp import Record
from cursorbench.sessions.reading import text_of

_Told = tuple[Record, Place]
_HELD = 1024  # spans that wait, of all parents; those of the oldest one are told then


class Waiting:
    """The spans of one file that wait, asked in the order of its records."""

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[str, str], list[_Told]] = OrderedDict()
        self._number = 0

    def told(self, record: Record, place: Place) -> Iterator[_Told]:
        """What is to be told now, of this record and those that waited for it."""
        below = (record.trace, record.parent)
        if record.parent and is_tool(record) and text_of(record.attributes.get("gen_ai.tool.call.id")):
            yield from self._released((record.trace, record.span))
            yield from self._hold(below, (record, place))
            return
        own = self._released((record.trace, record.span)) if record.is_span else []
        beside = self._released(below) if record.parent and _is_ours(record) else []
        asked = _called(record) if beside else set[str]()
        yield from [*own, *(one for one in beside if _id(one) not in asked)]
        yield record, place
        yield from (one for one in beside if _id(one) in asked)

    def rest(self) -> Iterator[_Told]:
        """Those that still wait at the file's end."""
        for held in self._held.values():
            yield from held
        self._held.clear()

    def _hold(self, below: tuple[str, str], one: _Told) -> Iterator[_Told]:
        self._held.setdefault(below, []).append(one)
        self._number += 1
        if self._number > _HELD:
            yield from self._released(next(iter(self._held)))

    def _released(self, below: tuple[str, str]) -> list[_Told]:
        held = self._held.pop(below, [])
        self._number -= len(held)
        return held


def apart(asked: list[Message], answer: Message | None) -> tuple[list[Message], list[Result]]:
    """A request's messages without the results of what its own answer asked for; and those.

    Where the request has such a call, too, the id is used again, and the result is that one's.
    """
    own = {call.id for call in answer.calls if call.id} if answer is not None else set[str]()
    own -= {call.id for one in asked for call in one.calls}
    if not own or not any(result.id in own for one in asked for result in one.results):
        return asked, []
    kept, later = list[Message](), list[Result]()
    for one in asked:
        ends = [result for result in one.results if result.id not in own]
        later += (result for result in one.results if result.id in own)
        if ends or one.text or one.calls or not one.results:
            kept.append(replace(one, results=ends))
    return kept, later


def _is_ours(record: Record) -> bool:
    return record.is_span and "gen_ai.operation.name" in record.attributes


def _id(one: _Told) -> str:
    return text_of(one[0].attributes.get("gen_ai.tool.call.id"))


def _called(record: Record) -> set[str]:
    """The calls that a model's answer asks for."""
    return {call.id for message in texts(record.attributes)[1] for call in message.calls}
