"""OpenTelemetry: spans and events of the GenAI conventions, from OTLP JSON files.

Conventions: open-telemetry/semantic-conventions-genai; before 1.37 messages were events of their own, before
that attributes of events. Events of Claude Code and Codex: `otel_claude`, `otel_codex`. Not for: receiving.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cursorbench.sessions import otel_braintrust as braintrust
from cursorbench.sessions import otel_claude, otel_codex, spoken
from cursorbench.sessions import otel_vscode as vscode
from cursorbench.sessions.calls import Call, Result
from cursorbench.sessions.chat import Answer, Conversation, Message, plain_text
from cursorbench.sessions.definitions import KnownDefinitions
from cursorbench.sessions.items import AgentTurn, Feedback, Place, Quarantined, Read
from cursorbench.sessions.otel_calls import Ids, of_langchain
from cursorbench.sessions.otel_messages import (
    LANGFUSE,
    ROLES,
    answer_of,
    blocks,
    is_tool,
    with_text,
)
from cursorbench.sessions.otel_pieces import Pieces, is_piece, others, said
from cursorbench.sessions.otel_sessions import Sessions
from cursorbench.sessions.otel_tools import offered
from cursorbench.sessions.otel_waiting import Waiting, apart
from cursorbench.sessions.otel_whole import is_other
from cursorbench.sessions.otlp import Record, exported, exports, in_time, is_export
from cursorbench.sessions.reading import text_of
from cursorbench.sessions.records import (
    first_objects,
    first_text,
    mentions,
    number,
    opening,
)
from cursorbench.sessions.seen import Seen

KIND = "otel"

_AGENTS = (otel_claude, otel_codex)  # with events of their own
_HEAD = re.compile(rb'^[\s\xef\xbb\xbf]*[\[{][\s\[{]*"resource_?(?:Spans|Logs|Metrics|spans|logs|metrics)"')
_PASSED_OVER = {
    "gen_ai.client.operation.exception",
    "gen_ai.content.completion.chunk",  # of a stream, whose answer its span has whole
    "gen_ai.request.attempt",
}
_CALLS = {"chat", "text_completion", "generate_content"}  # operations that are one call of a model
_MODEL = (
    "gen_ai.response.model", "gen_ai.request.model", "llm.model_name", "langfuse.observation.model.name",
)  # fmt: skip
_OURS = ("gen_ai.", "llm.", "braintrust.", LANGFUSE)  # how attributes of such a span begin


def recognises(path: Path, head: bytes) -> bool:
    """An OTLP export among the first lines, or one that is longer than the head."""
    if found := first_objects(head):
        return any(map(is_export, found))
    return _HEAD.match(head) is not None or mentions(head, "context", "trace_id", "span_id", "attributes")


def read(path: Path, seen: Seen) -> Iterator[Read]:
    """What the spans and log records tell of sessions; those of other instrumentations are passed over."""
    told, waiting = _Told(path, seen), Waiting()
    for found in exports(path):
        if isinstance(found, Quarantined):
            yield found
            continue
        place, export = found
        if not is_export(export):
            yield Quarantined(place, "not an OTLP export")
            continue
        for record in in_time(exported(export)):
            if record is None:
                yield Quarantined(place, "a span or log record is no object")
            else:
                for one, where in waiting.told(record, place):
                    yield from told.record(one, where)
    for one, where in waiting.rest():
        yield from told.record(one, where)
    yield from told.end()


class _Told:
    """One file's conversations, put together from its records."""

    def __init__(self, path: Path, seen: Seen) -> None:
        self._path, self._seen = path, seen
        self._looked = False  # for records with messages, of the whole file
        self._conversation, self._sessions, self._ids = Conversation(seen, KIND), Sessions(), Ids()
        self._definitions = KnownDefinitions()
        self._given = list[tuple[str, Result, int | None, Place]]()  # by tools whose spans may tell more
        self._pieces = Pieces()

    def record(self, record: Record, place: Place) -> Iterator[Read]:
        """The items of a span with its events, or of a log record."""
        if record.is_span:
            if not is_tool(record):
                yield from self.rest()
            whole = self._pieces.whole(record)
            yield from self._generation(whole, place)
            yield from braintrust.scores(record, self._sessions.of(record), place)
            if not is_tool(record):  # in whose span messages are what it was asked and gave
                for event in others(record):
                    yield from self._event(event, place)
        elif (agent := next((each for each in _AGENTS if each.is_event(record)), None)) is not None:
            yield from agent.event(record, place, self._seen)
        elif is_piece(record):
            for one, where in self._pieces.add(record, place):
                yield from self._generation(one, where)
        else:
            yield from self._event(record, place)

    def end(self) -> Iterator[Read]:
        """What waits at the file's end."""
        for one, where in self._pieces.rest():
            yield from self._generation(one, where)
        yield from self.rest()

    def rest(self) -> Iterator[Read]:
        """What tools gave to the answer told last, where no span of theirs told it."""
        for session, result, at, place in self._given:
            yield from self._conversation.result(session, result, at, place)
        self._given.clear()

    def _event(self, record: Record, place: Place) -> Iterator[Read]:
        name = record.name
        if name == "gen_ai.evaluation.result":
            yield from self._evaluation(record, place)
        elif name in ROLES:
            yield Quarantined(place, "a message without content")
        elif name.startswith("gen_ai.") and name not in _PASSED_OVER:
            yield Quarantined(place, "unknown_type")
        else:
            session = self._sessions.of_client(text_of(record.attributes.get("conversation_id")))
            yield from vscode.rating(record, session, place)

    def _generation(self, record: Record, place: Place) -> Iterator[Read]:
        """A span of a model call, agent or tool."""
        told = record.attributes
        if is_other(told) or not (record.events or any(key.startswith(_OURS) for key in told)):
            return
        session = self._sessions.of(record)
        if is_tool(record):
            yield from self._opening(session, record, place)
            yield from self._tool(session, record, place)
            return
        if vscode.is_own(told):
            return
        asked, answers = said(record)
        if not asked and not answers:
            yield from self._without_texts(session, record, place)
            return
        answer = _answer(record, *answer_of(told, answers))
        asked, given = apart(asked, answer.message)
        session = self._sessions.of_request(record, asked, answer)
        asked = self._ids.repeated(session, self._unsaid(session, told, vscode.asked(told, asked)))
        self._ids.answered(session, answer.message, record.span)
        self._first(record)
        yield from self._opening(session, record, place)
        tools = self._definitions.of(*offered(told))
        yield from self._conversation.request(session, asked, answer, at=record.at, place=place, tools=tools)
        self._given += ((session, one, record.at, place) for one in given)

    def _unsaid(self, session: str, told: dict[str, Any], asked: list[Message]) -> list[Message]:
        """Without a person's bare words in an agent's span, where its calls told them with a context."""
        new = []
        for one in asked:
            words = spoken.words_of(one.text) if one.role == "user" else ""
            if one.role != "user" or self._seen.first(session, f"otel:words:{words}"):
                new.append(one)
        return new if told.get("gen_ai.operation.name") == "invoke_agent" else asked

    def _without_texts(self, session: str, record: Record, place: Place) -> Iterator[Read]:
        """A call of the model whose texts were not logged, as is the default: its id, model and times."""
        told = record.attributes
        operation, one = text_of(told.get("gen_ai.operation.name")), vscode.response(told, record.span)
        failed = record.failed or bool(told.get("error.type"))
        if not record.is_span or failed or not (operation in _CALLS if operation else one):
            return
        if not self._looked:
            self._looked = True
            for other in with_text(self._path):
                self._first(other)
        new = self._first(record)
        if not new:
            self._pieces.later(record, place)
        elif one or record.span:
            yield from self._opening(session, record, place)
            answer = _answer(record, None)
            yield AgentTurn(
                session=session, id=answer.id, at=record.at, place=place, text="", model=answer.model,
                span=answer.span, first_token_ms=answer.first_token_ms, duration_ms=answer.duration_ms,
            )  # fmt: skip

    def _first(self, record: Record) -> bool:
        """Notes that something is told of a model call; whether nothing was.

        Exports may be sent twice, and a framework and its client tell of the same call, each with a span.
        """
        ids = (record.span, vscode.response(record.attributes, ""))
        new = [self._seen.first("", f"otel:call:{record.trace} {one}") for one in ids if one]
        return all(new)

    def _tool(self, session: str, record: Record, place: Place) -> Iterator[Read]:
        told = record.attributes
        name, one = text_of(told.get("gen_ai.tool.name")), text_of(told.get("gen_ai.tool.call.id"))
        if not name:
            yield Quarantined(place, "a tool's span without its name")
            return
        events = {event.name: event.attributes for event in record.events}
        asked = told.get("gen_ai.tool.call.arguments", events.get("gen_ai.tool.message", {}).get("content"))
        given = told.get("gen_ai.tool.call.result", events.get("gen_ai.choice", {}).get("message"))
        one, asked, given, wrong = of_langchain(one, asked, given)
        call = Call(one, name, vscode.arguments(asked))
        call = self._ids.of_span(
            session, call, record.span, lambda id_: self._conversation.ended(session, id_)
        )
        yield from self._conversation.call(session, call, record.at, place)
        failed = record.failed or wrong or bool(told.get("error.type"))
        result = Result(call.id, plain_text(blocks(given)) if given is not None else "", failed)
        yield from self._conversation.result(session, result, record.at, place)

    def _evaluation(self, record: Record, place: Place) -> Iterator[Read]:
        told = record.attributes
        name, label = text_of(told.get("gen_ai.evaluation.name")), told.get("gen_ai.evaluation.score.label")
        value = number(told.get("gen_ai.evaluation.score.value"))
        if not name or (value is None and not text_of(label)):
            yield Quarantined(
                place, "an evaluation without a score" if name else "an evaluation without name"
            )
            return
        yield Feedback(  # whoever evaluates is not the session's agent: begins nothing
            session=self._sessions.of(record), at=record.at, place=place, name=name,
            target=text_of(told.get("gen_ai.response.id")) or record.span,
            value=value if value is not None else text_of(label),
            comment=text_of(told.get("gen_ai.evaluation.explanation")),
        )  # fmt: skip

    def _opening(self, session: str, record: Record, place: Place) -> Iterator[Read]:
        told = record.attributes
        agent = vscode.AGENT if vscode.wrote(told) else first_text(told, "gen_ai.agent.name", "service.name")
        about = {"version": first_text(told, "gen_ai.agent.version", "service.version")}
        about |= {"agent": agent, "parent": vscode.parent(told)}
        yield from opening(self._seen, session, place, record.at, **about)


def _answer(record: Record, message: Message | None, parts: list[Message] | None = None) -> Answer:
    told = record.attributes
    first = number(told.get("gen_ai.response.time_to_first_chunk"))
    alone = number(told.get("github.copilot.server_duration"))  # ms, without the tools that it asked for
    return Answer(
        message=message,
        parts=parts or [],
        id=vscode.response(told, record.span),
        span=record.span,
        model=first_text(told, *_MODEL) or braintrust.model(told),
        first_token_ms=first * 1000 if first is not None else None,  # seconds in the conventions
        duration_ms=record.duration_ms if alone is None else alone,
    )
