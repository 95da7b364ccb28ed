"""Chat messages as APIs and telemetry log them, and a conversation out of requests that each repeat it.

For `openai_log` and `otel`. Understood are messages of OpenAI (chat and Responses), of Anthropic (blocks) and
of OpenTelemetry GenAI (parts). Not for: streams, envelopes, which differ by format.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from cursorbench.harness.thoughts import apart
from cursorbench.sessions import calls, responses_items, spoken
from cursorbench.sessions.automatic import launches_skill
from cursorbench.sessions.calls import Arguments, Call, Open, Result, arguments_of, asked_for, edits
from cursorbench.sessions.carried_out import not_written
from cursorbench.sessions.codex_agents import letter_of
from cursorbench.sessions.definitions import Checked, Definitions, offered_in
from cursorbench.sessions.items import AgentTurn, Automatic, Outcome, Place, Read, Status, ToolEnd, ToolUse
from cursorbench.sessions.reading import list_of, table_of, text_of
from cursorbench.sessions.records import first_text, json_text
from cursorbench.sessions.refusals import refusal, stopped
from cursorbench.sessions.seen import Seen

_TEXT = {"text", "input_text", "output_text", "refusal", ""}
_AT_SERVICE = ("server_tool_call", "server_tool_call_response")  # what they tell is in a field of their name
_CALL = {"tool_call", "function_call", "tool_use", "custom_tool_call", _AT_SERVICE[0]}
_RESULT = {
    "tool_call_response", "tool_result", "function_call_output", "custom_tool_call_output", _AT_SERVICE[1],
}  # fmt: skip
_THINKING = {"reasoning", "thinking"}
_DISTINCT = 8  # characters; shorter ids ("call_0") are given again and again


class Message(msgspec.Struct):
    """One message, whatever the API: `role` is system, user, assistant or tool.

    `automatic`: why no person wrote it, where the log's fields tell.
    """

    role: str
    text: str = ""
    thinking: str = ""
    calls: list[Call] = []
    results: list[Result] = []
    automatic: Automatic = ""

    def key(self) -> str:
        """Equal for the same message however it is repeated, without its thoughts, say."""
        text = apart(self.text, begun=None).said if self.role == "assistant" else self.text
        calls = [f"{call.id}\0{call.name}\0{call.arguments.written()}" for call in self.calls]
        results = [f"{result.id}\0{result.text}" for result in self.results]
        return "\1".join([self.role, text.strip(), *calls, "\2", *results])


class Answer(msgspec.Struct, kw_only=True):
    """What the model answered to a request, with what the log tells of it."""

    message: Message | None
    parts: list[Message] = []  # what it is put together from, as a later request repeats it
    id: str = ""
    span: str = ""
    model: str = ""
    first_token_ms: float | None = None
    duration_ms: float | None = None


def message_of(value: object) -> Message | None:
    """A logged message; None for what is none."""
    if not isinstance(value, dict):
        return None
    role, kind = text_of(value.get("role")), text_of(value.get("type"))
    redacted = role != "assistant" and value.get("content") == calls.REDACTED
    if redacted or (role == "tool" and offered_in(value)):
        return None
    if kind == "agent_message":  # Codex's, from one of its agents to another
        return Message("user", **letter_of(value)._asdict())
    own = responses_items.KINDS.get(kind, "")
    if not role and kind not in _CALL | _RESULT | _THINKING and not own:
        return None
    default = own or ("tool" if kind in _RESULT else "assistant")
    message = Message({"developer": "system", "function": "tool"}.get(role, role) or default)
    if not role:
        _add(message, value)
        return message
    texts = content_of(message, value.get("parts") if "parts" in value else value.get("content"))
    if refusal := text_of(value.get("refusal")):
        _add(message, {"refusal": refusal})
    message.thinking = "\n".join(
        filter(None, [first_text(value, "reasoning_content", "reasoning"), message.thinking])
    )
    for call in map(table_of, list_of(value.get("tool_calls"))):
        if call:
            _add_call(message, {**call, **table_of(call.get("function")), **table_of(call.get("custom"))})
    if older := table_of(value.get("function_call")):  # its result bears its name
        _add_call(message, {"id": older.get("name"), **older})
    if message.role == "tool" and not message.results:
        one = first_text(value, "tool_call_id", "id", "name")
        message.results.append(Result(one, texts))
        message.text = ""
    return message


def content_of(message: Message, content: object) -> str:
    """Adds a text or list of parts to the message; returns its text."""
    for part in [content] if isinstance(content, str | dict) else list_of(content):
        _add(message, {"text": part} if isinstance(part, str) else table_of(part))
    return message.text


def _add(message: Message, part: dict[str, Any]) -> None:
    kind = text_of(part.get("type"))
    if kind in responses_items.KINDS:
        asked, ended = responses_items.told(part)
        message.calls += asked
        message.results += ended
    elif kind in _CALL:
        _add_call(message, part)
    elif kind in _RESULT:
        one = first_text(part, "tool_use_id", "call_id", "id")
        names = ("response", "result", "output", "content", _AT_SERVICE[1])
        given = next((part[name] for name in names if part.get(name) is not None), "")
        wrong = part.get("is_error") is True
        message.results.append(Result(one, plain_text(given), wrong))
    elif kind in _THINKING:
        listed = [
            *list_of(part.get("content")),
            *list_of(part.get("summary")),
        ]  # Responses: in full, or short
        summary = "\n".join(text_of(table_of(each).get("text")) for each in listed)
        thought = first_text(part, "thinking", "content", "text") or summary
        message.thinking = "\n".join(filter(None, [message.thinking, thought]))
    elif not kind and isinstance(part.get("toolUse"), dict):  # Bedrock's blocks are named by their only key
        _add_call(message, {**part["toolUse"], "id": part["toolUse"].get("toolUseId")})
    elif not kind and isinstance(block := part.get("toolResult"), dict):
        one, wrong = text_of(block.get("toolUseId")), block.get("status") == "error"
        message.results.append(Result(one, plain_text(block.get("content")), wrong))
    elif _has_parts(part):  # a whole message's, as VS Code wrote it
        for inner in map(table_of, part["content"]):
            if not _has_parts(inner):
                _add(message, inner)
    elif kind in _TEXT:
        text = first_text(part, "text", "content", "refusal")
        message.text = "\n".join(filter(None, [message.text, "" if text == calls.REDACTED else text]))


def _has_parts(part: dict[str, Any]) -> bool:
    """Whether it is a text whose content are parts."""
    return text_of(part.get("type")) in _TEXT and isinstance(part.get("content"), list)


def _add_call(message: Message, call: dict[str, Any]) -> None:
    names = ("arguments", "input", "args", _AT_SERVICE[0])  # the third is LangChain's
    given = next((call[name] for name in names if name in call), None)
    if call.get("type") in ("custom", "custom_tool_call") and isinstance(given, str):
        arguments = Arguments(text=calls.json_text(given))  # free text by its kind, no JSON
    else:
        arguments = arguments_of(given)
    message.calls.append(Call(first_text(call, "call_id", "id"), text_of(call.get("name")), arguments))


def plain_text(value: object) -> str:
    """The text of a tool's result: itself, that of its parts, or the JSON of what else it is."""
    if isinstance(value, list) and all(isinstance(one, dict) and "text" in one for one in value):
        return "\n".join(text_of(one["text"]) for one in value)
    return json_text(value)


def _skills_marked(messages: list[Message]) -> Iterator[Message]:
    """The messages; the text of a skill that the model called is marked as nobody's."""
    launched = False
    for message in messages:
        now = any(launches_skill(result.text) for result in message.results)
        if (now or launched) and message.role == "user" and not message.automatic:
            halted = any(part.stopped for part in spoken.parts(message.text))
            message.automatic = "" if halted else "meta"
        launched = now or (launched and message.role == "tool")
        yield message


class Conversation:
    """Tells each message of a session once, though every request has all messages before it again.

    A message is known by its content and how often that came before it in the same request, so trimmed
    histories and rewritten messages do not make the others new.
    """

    def __init__(self, seen: Seen, kind: str) -> None:
        self._seen, self._kind = seen, kind
        self._open = seen.kept(f"{kind}:open", Open)  # a file may hold one request alone

    def request(
        self,
        session: str,
        messages: list[Message],
        answer: Answer | None,
        *,
        at: int | None,
        place: Place,
        times: Counter[str] | None = None,
        tools: Definitions | None = None,
    ) -> Iterator[Read]:
        """What this request said for the first time: its new messages and the answer.

        A request that is logged in pieces brings `times`, how often each message came in it so far.
        `tools` are those that it offered.
        """
        times, asked = Counter() if times is None else times, False
        for message in _skills_marked(messages):
            if self._new(session, message, times):
                asked = asked or message.role in ("user", "tool")
                yield from self._said(message, session, at, place, Answer(message=None), tools)
        if answer is None or answer.message is None:
            return
        # the same words again answer what is asked for the first time
        new = self._new(session, answer.message, times) or asked
        for part in answer.parts:
            self._new(session, part, times)
        if self._seen.first(session, f"{self._kind}:answer:{answer.id}") if answer.id else new:
            yield from self._said(answer.message, session, at, place, answer, tools, offered=True)

    def call(
        self, session: str, call: Call, at: int | None, place: Place, checked: Checked = ""
    ) -> Iterator[Read]:
        """A tool call, unless its id is told already."""
        if not self._seen.first(session, self._key("call", call.id)):
            return
        arguments = call.arguments
        yield ToolUse(
            session=session, id=call.id, at=at, place=place, name=call.name,
            arguments=arguments.text, invalid=arguments.invalid, checked=checked,
        )  # fmt: skip
        changes = asked_for(call.name, arguments)
        self._open.add(f"{session}\0{call.id}" if call.id else "", changes)
        yield from edits(changes, "proposed", session=session, call=call.id, at=at, place=place)

    def result(self, session: str, result: Result, at: int | None, place: Place) -> Iterator[Read]:
        """A tool call's end, unless its id is told already. What it was to change is changed then."""
        if not self._seen.first(session, self._key("end", result.id)):
            return
        common: dict[str, Any] = {"session": session, "at": at, "place": place}
        changes = self._open.take(f"{session}\0{result.id}")
        wrong = result.wrong or result.text.startswith("Error:") or (changes and not_written(result.text))
        reason = result.reason if result.refused else refusal(result.text)
        ended: Outcome = "interrupted" if stopped(result.text) else "error" if wrong else "ok"
        outcome = "rejected" if reason is not None else ended
        yield ToolEnd(id=result.id, outcome=outcome, text=result.text, reason=reason or "", **common)
        if outcome in ("ok", "rejected"):
            status: Status = "applied" if outcome == "ok" else "rejected"
            yield from edits(changes, status, call=result.id, **common)

    def ended(self, session: str, call: str) -> bool:
        """Whether the end of this call is told."""
        return self._seen.knows(session, self._key("end", call))

    def _new(self, session: str, message: Message, times: Counter[str]) -> bool:
        key = message.key()
        times[key] += 1
        return self._seen.first(session, f"{self._kind}:{times[key]}:{key}")

    def _key(self, what: str, one: str) -> str:
        return f"{self._kind}:{what}:{one}" if len(one) >= _DISTINCT else ""

    def _said(
        self,
        message: Message,
        session: str,
        at: int | None,
        place: Place,
        told: Answer,
        tools: Definitions | None,
        *,
        offered: bool = False,
    ) -> Iterator[Read]:
        own = {call.id for call in message.calls}  # called and ended in one message, by the service itself
        ended = {result.id for result in message.results}
        for result in message.results:
            if result.id not in own:
                yield from self.result(session, result, at, place)
        if message.role == "user" and (message.text or not message.results):
            yield from spoken.turns(message.text, message.automatic, session=session, at=at, place=place)
        if message.role == "assistant":
            # an answer that only calls is told for its id, model and times
            if message.text or message.thinking or not message.calls or told.id or told.model:
                yield AgentTurn(
                    session=session, id=told.id, at=at, place=place, text=message.text, model=told.model,
                    thinking=message.thinking, first_token_ms=told.first_token_ms,
                    duration_ms=told.duration_ms, span=told.span,
                )  # fmt: skip
            for call in message.calls:
                ours = call.id not in ended and not call.arguments.untold  # nobody offers the service's
                fit = tools.check(call.name, call.arguments.text, offered=offered) if tools and ours else ""
                yield from self.call(session, call, at, place, "" if call.arguments.invalid else fit)
            for result in message.results:
                if result.id in own:
                    yield from self.result(session, result, at, place)
