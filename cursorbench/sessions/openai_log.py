"""Plain logs of OpenAI requests, JSON Lines: what was asked, what was answered, in the shapes in use.

{request, response} pairs (also as texts, and under the usual other names), batch files ({body} in, response
{body} out), flat {messages, response}; chat completions, Responses and text completions, and Anthropic's
messages; what services for traces export of these (`exports.py`). Not for: exact tokens, choices beyond the
first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

from msgspec import structs

from cursorbench.sessions.chat import Answer, Conversation, Message, content_of, message_of
from cursorbench.sessions.definitions import KnownDefinitions
from cursorbench.sessions.exports import exported, inside
from cursorbench.sessions.exports_litellm import TRACE
from cursorbench.sessions.items import AgentTurn, Completion, Feedback, Place, Quarantined, Read
from cursorbench.sessions.openai_answers import answer_of, chunks_of, is_stream
from cursorbench.sessions.reading import list_of, milliseconds, nested_or_text, table_of, text_of
from cursorbench.sessions.records import first_objects, first_text, mentions, number, oldest_first, opening
from cursorbench.sessions.seen import Seen
from cursorbench.sessions.talks import Talks, keep

KIND = "openai-log"

_REQUEST = ("request", "request_body", "requestBody", "req", "body", "kwargs", "proxy_server_request")
_RESPONSE = ("response", "response_body", "responseBody", "resp", "completion", "output")
_SESSION = (
    *("session_id", "sessionId", "conversation_id", "thread_id", "litellm_session_id"),
    "Helicone-Session-Id",
)
_SESSION_LATE = ("prompt_cache_key", "custom_id")
_AT = (  # where a row tells both, it was made after the call
    *("timestamp", "start_time", "startTime", "created_at", "createdAt", "time", "ts", "logged_at"),
    "request_created_at",
)
_END = ("end_time", "endTime")
_LATENCY = ("duration_ms", "latency_ms", "response_time_ms", "delay_ms")
_OTHERS = {"trajectory", "trajectory_format", "info", "history"}  # of agents' own files
_TRAINING = {"messages", "tools", "functions", "parallel_tool_calls", "metadata", "id"}
_MENTIONED = (  # by a document that is longer than what is looked at
    ("messages", "role", "content", "model"),
    ("run_type", "inputs", "dotted_order"),
    ("span_attributes", "root_span_id", "input"),
    ("observations", "traceId", "startTime"),
    ("trace", "projectId", "sessionId", "bookmarked"),
)
_ANSWERS = 1 << 16  # answers whose session is remembered for `previous_response_id`


def recognises(path: Path, head: bytes) -> bool:
    """A request with messages, input or prompt among the first lines, or a batch's answer."""
    found = first_objects(head)
    if not found:
        return any(mentions(head, *names) for names in _MENTIONED)
    return any(exported(inside(one)[0]) or (not _OTHERS & one.keys() and _is_exchange(one)) for one in found)


def read(path: Path, seen: Seen) -> Iterator[Read]:
    """The turns of each exchange that no exchange before had."""
    log = _Log(seen)
    for found in oldest_first(path, _when):
        if isinstance(found, Quarantined):
            yield found
        else:
            for row in inside(found[1]):
                yield from log.row(row, found[0])
    yield from log.verdicts()


class _Log:
    """One file's conversations."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._conversation = Conversation(seen, KIND)
        self._definitions = KnownDefinitions()
        self._sessions = seen.kept(f"{KIND}:answers", OrderedDict[str, str])  # for `previous_response_id`
        self._talks = seen.kept(f"{KIND}:talks", Talks)
        self._last: dict[str, tuple[str, str]] = {}  # session and answer of each trace's last call
        self._verdicts: list[tuple[str, Feedback]] = []  # on a trace

    def row(self, row: dict[str, Any], place: Place) -> Iterator[Read]:
        """The items of a logged request, or of a row that some service exported."""
        told = exported(row)
        if told is None:
            yield from self.exchange(row, place)
            return
        if told.untold:
            yield Quarantined(place, told.untold)
        session, answer = "", ""
        known = self._last.get(told.trace, ("", ""))[0] if told.trace else ""
        for item in self.exchange(told.record, place, known) if told.record else ():
            if isinstance(item, AgentTurn):
                session, answer = item.session, item.id
            yield item
        if told.trace and session:
            self._last[told.trace] = session, answer  # of an answer without id: it is the session's last
        for name, value in told.scores.items():
            about: dict[str, Any] = {"session": session, "target": answer, "place": place}
            said = Feedback(**about, at=told.scored.get(name, told.at), name=name, value=value)
            if told.record is None:
                self._verdicts.append((told.trace, said))
            elif session:
                yield said

    def verdicts(self) -> Iterator[Feedback]:
        """What was said of whole traces, whose calls may stand behind them: it is of the last answer."""
        for trace, said in self._verdicts:
            session, answer = self._last.get(trace, ("", trace))
            yield structs.replace(said, session=session, target=answer)

    def exchange(self, record: dict[str, Any], place: Place, trace: str = "") -> Iterator[Read]:
        """The items of one record. `trace`: the session of the calls before it in its trace."""
        request, response = _request(record), _response(record)
        messages = _messages(request)
        answer = answer_of(response)
        if not messages and answer is None and "prompt" not in request:
            if not _failed(record, response):
                yield Quarantined(place, "neither a request nor a response")
            return
        at = _at(record, _head(response))
        answer = answer or Answer(message=None)
        answer.model = answer.model or first_text(request, "model") or text_of(record.get("model"))
        answer.duration_ms = _duration(record)
        if not messages and "prompt" in request:
            yield from self._completion(request, answer, at, place)
            return
        session = self._session(record, request, messages, answer, trace)
        self._remember(answer.id, session)
        yield from opening(self._seen, session, place, at)
        tools = self._definitions.of(request.get("tools"), request.get("functions"))
        yield from self._conversation.request(session, messages, answer, at=at, place=place, tools=tools)

    def _completion(
        self, request: dict[str, Any], answer: Answer, at: int | None, place: Place
    ) -> Iterator[Completion]:
        prompt, message = request.get("prompt"), answer.message
        if isinstance(prompt, list):
            prompt = next(iter(prompt), "")
        if self._seen.first(KIND, f"completion:{answer.id}" if answer.id else ""):
            yield Completion(
                session="", id=answer.id, at=at, place=place, prompt=text_of(prompt),
                text=message.text if message else "", model=answer.model,
            )  # fmt: skip

    def _session(
        self,
        record: dict[str, Any],
        request: dict[str, Any],
        messages: list[Message],
        answer: Answer,
        trace: str,
    ) -> str:
        """As told; else that of the answer continued; else made from what the conversation opens with.

        A request without any words of a person's goes on with its trace.
        """
        if episode := first_text(_head(_response(record)), "episode_id") or text_of(
            request.get("tensorzero::episode_id")
        ):
            return episode  # TensorZero's, which its feedback calls name
        conversation = request.get("conversation")
        told = text_of(conversation) or text_of(table_of(conversation).get("id"))
        beside = (table_of(record.get(name)) for name in ("metadata", "request_properties", "properties"))
        tables = (record, *beside, request, table_of(request.get("metadata")))
        for names in (_SESSION, _SESSION_LATE):
            for table in tables:
                told = told or first_text(table, *names)
        if told:
            return told
        if known := self._known(record, request, messages, answer):
            return known
        if trace and all(message.role != "user" for message in messages):
            return trace
        opens = []
        for message in messages:
            opens.append(message.key())
            if message.role == "user":
                break
        if not opens:
            return f"openai-log:{answer.id}" if answer.id else ""
        digest = blake2b("\0".join(opens).encode(errors="replace"), digest_size=12).hexdigest()
        return f"openai-log:{digest}"

    def _known(
        self, record: dict[str, Any], request: dict[str, Any], messages: list[Message], answer: Answer
    ) -> str:
        """The session of the answer continued, or of the talk, where a name may be one request's alone."""
        if known := self._sessions.get(text_of(request.get("previous_response_id"))):
            return known
        of_call = first_text(record, TRACE)
        if not of_call:
            return ""
        known = self._talks.before(messages) or self._talks.begun(messages, of_call)
        self._talks.answered(messages, answer.message, known)
        return known

    def _remember(self, answer: str, session: str) -> None:
        if answer:
            keep(self._sessions, answer, session, _ANSWERS)


def _is_exchange(record: dict[str, Any]) -> bool:
    request, answered = _request(record), answer_of(_response(record)) is not None
    if _messages(request):
        return answered or "model" in request or record.keys() <= _TRAINING
    if "prompt" in request and "model" in request:
        return True
    return answered and ("custom_id" in record or record is not request)


def _table(value: object) -> dict[str, Any]:
    """An object, also one logged as text."""
    return table_of(nested_or_text(value))


def _request(record: dict[str, Any]) -> dict[str, Any]:
    """The request's body: under one of the usual names, in a batch's or proxy's envelope, or the record."""
    for name in _REQUEST:
        inner = _table(record.get(name))
        if inner:
            body = _table(inner.get("body"))
            return body or inner
    asked = _table(record.get("input"))  # Langfuse's and OpenPipe's: what was asked, also as text
    return asked if list_of(asked.get("messages")) or list_of(asked.get("input")) else record


def _response(record: dict[str, Any]) -> object:
    """The response's body as logged: an object, a stream's chunks, also as they came, or a text."""
    for name in _RESPONSE:
        value = record.get(name)
        if isinstance(value, str):
            value = _table(value) or chunks_of(value) or value
        body = table_of(value).get("body") or table_of(value).get("body_raw")  # claude-trace's, of a stream
        if isinstance(body, dict | str):
            value = _table(body) or (chunks_of(body) if isinstance(body, str) else []) or body
        if isinstance(value, list) and not is_stream(value):
            value = {**(record if _is_answer(record) else {}), "output": value}
        if value:
            return value
    return record if isinstance(record.get("choices"), list) else None


def _is_answer(record: dict[str, Any]) -> bool:
    """Whether the record is a Responses answer, with what was asked beside it."""
    return record.get("object") == "response" or text_of(record.get("id")).startswith("resp_")


def _messages(request: dict[str, Any]) -> list[Message]:
    entries = request.get("messages") or request.get("input")
    if isinstance(entries, str):
        message = Message("user")
        content_of(message, entries)
        return [message]
    return [found for entry in list_of(entries) if (found := message_of(entry)) is not None]


def _failed(record: dict[str, Any], response: object) -> bool:
    """A call that was answered by an error has nothing to tell, and is no damage either."""
    return bool(record.get("error") or table_of(response).get("error"))


def _at(record: dict[str, Any], response: dict[str, Any]) -> int | None:
    times = [*(record.get(name) for name in _AT), response.get("created"), response.get("created_at")]
    return next((at for at in map(milliseconds, times) if at is not None), None)


def _when(row: dict[str, Any]) -> int | None:
    """When a row was, ms: of an export, or a logged request."""
    told = exported(row)
    return told.at if told else _at(row, _head(_response(row)))


def _head(response: object) -> dict[str, Any]:
    """What of a response tells when it was made: itself, or the first chunk or event of a stream."""
    first = next((one for one in list_of(response) if isinstance(one, dict)), {})
    return table_of(response) or table_of(first.get("response")) or first


def _duration(record: dict[str, Any]) -> float | None:
    logged = next((ms for name in _LATENCY if (ms := number(record.get(name))) is not None), None)
    if logged is not None:
        return logged
    start = next((at for name in _AT if (at := milliseconds(record.get(name))) is not None), None)
    end = next((at for name in _END if (at := milliseconds(record.get(name))) is not None), None)
    return float(end - start) if start is not None and end is not None and end >= start else None
