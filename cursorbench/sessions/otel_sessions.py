"""The session of a span where nothing names it: its trace's, or that of the talk which it goes on with.

For `otel`. Most instrumentations know no conversation, and each question of a person's, with some each
call of the model, is a trace of its own which has all messages before it again. A request goes on with a talk
when what it has up to the last answer is, word for word, what an earlier request asked and was answered.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from typing import TypeVar

from cursorbench.sessions import otel_vscode as vscode
from cursorbench.sessions.chat import Message
from cursorbench.sessions.otlp import SESSION, Record
from cursorbench.sessions.records import first_text

_Key = TypeVar("_Key", str, bytes)
_KEPT = 1 << 16  # conversations, and traces that go on with one; the oldest are forgotten


class Sessions:
    """The sessions of one file's records, asked in their order."""

    def __init__(self) -> None:
        self._of_trace: OrderedDict[str, str] = OrderedDict()
        self._of_parent: OrderedDict[str, str] = OrderedDict()
        self._of_client: OrderedDict[str, str] = OrderedDict()
        self._of_talk: OrderedDict[bytes, str] = OrderedDict()

    def of(self, record: Record) -> str:
        """As the record names it, else the last one beside it did, else of its trace; else the trace."""
        named, below = _named(record), f"{record.trace} {record.parent}"
        if named and (client := vscode.conversation(record.attributes)):
            _keep(self._of_client, client, named)
        if named and record.trace:
            _keep(self._of_trace, record.trace, named)
            _keep(self._of_parent, below, named)
        return named or self._of_parent.get(below) or self._of_trace.get(record.trace, record.trace)

    def of_client(self, conversation: str) -> str:
        """The session that a client calls by another id, which its spans have beside the session's."""
        return self._of_client.get(conversation, conversation)

    def of_request(self, record: Record, asked: list[Message], answer: Message | None) -> str:
        """The same of a call of the model, whose trace may go on with the conversation of another."""
        if _named(record):
            return self.of(record)
        last = max((place for place, one in enumerate(asked) if one.role == "assistant"), default=-1)
        if last >= 0 and (known := self._of_talk.get(_digest(asked[: last + 1]))):
            _keep(self._of_trace, record.trace, known)
        session = self.of(record)
        if answer is not None:
            _keep(self._of_talk, _digest([*asked, answer]), session)
        return session


def _named(record: Record) -> str:
    return vscode.session(record.attributes) or first_text(record.attributes, *SESSION)


def _digest(messages: list[Message]) -> bytes:
    """Of what was said and called. An answer may come back in pieces, and its calls under other ids."""
    pieces, role = list[str](), ""
    for one in messages:
        pieces += [f"\3{one.role}"] if one.role != role else []
        role = one.role
        pieces += filter(None, [one.text.strip()])
        pieces += (f"\2{call.name}\0{call.arguments.written()}" for call in one.calls)
        pieces += (f"\2{result.text}" for result in one.results)
    text = "\1".join(pieces)
    return blake2b(text.encode(errors="replace"), digest_size=16).digest()


def _keep(known: OrderedDict[_Key, str], key: _Key, session: str) -> None:
    known[key] = session
    known.move_to_end(key)
    if len(known) > _KEPT:
        known.popitem(last=False)
