"""The session of a span where nothing names it: its trace's, or that of the talk which it goes on with.

For `otel`. Most instrumentations know no conversation, and each question of a person's, with some each
call of the model, is a trace of its own which has all messages before it again (`talks.py`).
"""

from __future__ import annotations

from collections import OrderedDict

from cursorbench.sessions import otel_vscode as vscode
from cursorbench.sessions.chat import Answer, Message
from cursorbench.sessions.otel_messages import is_openlits
from cursorbench.sessions.otlp import SESSION, Record
from cursorbench.sessions.records import first_text
from cursorbench.sessions.talks import Talks, keep

_KEPT = 1 << 16  # traces that go on with a talk; the oldest are forgotten


class Sessions:
    """The sessions of one file's records, asked in their order."""

    def __init__(self) -> None:
        self._of_trace: OrderedDict[str, str] = OrderedDict()
        self._of_parent: OrderedDict[str, str] = OrderedDict()
        self._of_client: OrderedDict[str, str] = OrderedDict()
        self._talks = Talks()

    def of(self, record: Record) -> str:
        """As the record names it, else the last one beside it did, else of its trace; else the trace."""
        named, below = _named(record), f"{record.trace} {record.parent}"
        if named and (client := vscode.conversation(record.attributes)):
            keep(self._of_client, client, named, _KEPT)
        if named and record.trace:
            keep(self._of_trace, record.trace, named, _KEPT)
            keep(self._of_parent, below, named, _KEPT)
        return named or self._of_parent.get(below) or self._of_trace.get(record.trace, record.trace)

    def of_client(self, conversation: str) -> str:
        """The session that a client calls by another id, which its spans have beside the session's."""
        return self._of_client.get(conversation, conversation)

    def of_request(self, record: Record, asked: list[Message], answer: Answer) -> str:
        """The same of a call of the model, whose trace may go on with the conversation of another."""
        if _named(record):
            return self.of(record)
        if known := self._talks.before(asked):
            keep(self._of_trace, record.trace, known, _KEPT)
        session = self.of(record)
        said = answer.message
        if said is not None and is_openlits(record.attributes):
            said = Message("assistant", text=said.text)
        self._talks.answered(asked, said, session)
        return session


def _named(record: Record) -> str:
    return vscode.session(record.attributes) or first_text(record.attributes, *SESSION)
