"""Messages that are records of their own, put together with the span of the call that they are of.

Conventions before 1.37 have an event for each message, and none of them tells the model, the answer's id or
how long it took; later ones may have all in one event. As events of a span they stand in it; as log records
they come before its end or, by the batches of exporters, behind it. Those of a call wait for its span, or
without one to the file's end; those that name no span are told with the answer. For `otel`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from msgspec.structs import replace

from cursorbench.sessions.chat import Message
from cursorbench.sessions.items import Place
from cursorbench.sessions.otel_messages import (
    DETAILS,
    IN_ATTRIBUTES,
    ROLES,
    listed,
    message_of_event,
    messages,
    texts,
)
from cursorbench.sessions.otel_whole import by_roles
from cursorbench.sessions.otlp import Record
from cursorbench.sessions.reading import table_of, text_of

_Told = tuple[Record, Place]
_CALLS = 256  # calls whose span did not come yet; the oldest is told then
_MESSAGES = 4096  # of one call; so many are told then
_SPANS = 4096  # spans whose messages did not come yet; the oldest are forgotten
_LAST = ("gen_ai.choice", "gen_ai.content.completion", DETAILS)


class Pieces:
    """The log records of one file that are messages, asked in their order."""

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[str, str], list[_Told]] = OrderedDict()
        self._answered: set[tuple[str, str]] = set()  # of those held
        self._spans: OrderedDict[tuple[str, str], _Told] = OrderedDict()

    def whole(self, span: Record) -> Record:
        """A span with the messages of its call that came before it."""
        return _with(span, self._taken(_key(span)))

    def later(self, span: Record, place: Place) -> None:
        """Notes a span of a call whose messages stand behind it."""
        self._spans[_key(span)] = span, place
        if len(self._spans) > _SPANS:
            self._spans.popitem(last=False)

    def add(self, record: Record, place: Place) -> Iterator[_Told]:
        """Takes a log record that is a message; gives what is whole with it, or has waited long enough."""
        key, last = _key(record), _is_last(record)
        several = record.name not in _LAST and key in self._answered  # the span is of several calls
        if several or len(self._held.get(key, ())) >= _MESSAGES:
            yield _alone(self._taken(key))
        self._held.setdefault(key, []).append((record, place))
        if last:
            self._answered.add(key)
        if last and key in self._spans:
            span, where = self._spans.pop(key)
            yield _with(span, self._taken(key)), where
        elif last and not record.span:
            yield _alone(self._taken(key))
        elif len(self._held) > _CALLS:
            yield _alone(self._taken(next(iter(self._held))))

    def rest(self) -> Iterator[_Told]:
        """Those whose span did not come."""
        for key in list(self._held):
            yield _alone(self._taken(key))

    def _taken(self, key: tuple[str, str]) -> list[_Told]:
        self._answered.discard(key)
        return self._held.pop(key, [])


def is_piece(record: Record) -> bool:
    """Whether a log record, or an event, is a message of a call, or has all those."""
    return record.name == DETAILS or _is_message(record)


def others(span: Record) -> list[Record]:
    """The events of a span that are no messages of its call."""
    return [event for event in [*listed(span), *span.events] if not is_piece(event)]


def said(record: Record) -> tuple[list[Message], list[Message]]:
    """What a model was asked and answered: by a record's attributes, else by its events."""
    asked, answers = texts(record.attributes)
    if asked and answers:
        return asked, answers
    more, last = list[Message](), list[Message]()
    for event in [*listed(record), *record.events]:
        found, then = texts(event.attributes) if event.name == DETAILS else _one_side(event)
        if found:  # what was answered before is of what was asked now
            more += [*last, *found]
            last = []
        last += then
    return asked or more, answers or last


def _is_last(record: Record) -> bool:
    return record.name in _LAST and not _other_choice(record)


def _one_side(event: Record) -> tuple[list[Message], list[Message]]:
    """What an event tells of what was asked, or of what was answered."""
    if event.name in IN_ATTRIBUTES:
        role = "assistant" if event.name in _LAST else "user"
        value = event.attributes.get(IN_ATTRIBUTES[event.name])
        found = by_roles(text_of(value)) if role == "user" else []
        found = found or messages(value, role)
    else:
        message = message_of_event(event, ROLES[event.name]) if event.name in ROLES else None
        found = [] if message is None or _other_choice(event) else [message]
    return ([], found) if event.name in _LAST else (found, [])


def _other_choice(record: Record) -> bool:
    """Whether it is a choice that was not the answer."""
    return bool(table_of(record.body).get("index", record.attributes.get("index", 0)) != 0)


def _is_message(record: Record) -> bool:
    if record.name in IN_ATTRIBUTES:
        return True
    return record.name in ROLES and message_of_event(record, ROLES[record.name]) is not None


def _key(record: Record) -> tuple[str, str]:
    return record.trace, record.span


def _with(span: Record, held: list[_Told]) -> Record:
    if not held:
        return span
    pieces = [one for one, _ in held if one.name != DETAILS]
    whole = {key: value for one, _ in held if one.name == DETAILS for key, value in one.attributes.items()}
    return replace(span, attributes={**whole, **span.attributes}, events=[*span.events, *pieces])


def _alone(held: list[_Told]) -> _Told:
    """Messages without a span, as one record."""
    first, place = held[0]
    return _with(replace(first, name="", body=None), held), place
