"""Messages in the attributes of GenAI spans and events, in the spellings of the instrumentations in use.

One attribute with all messages as JSON, an event a message, or an attribute a field. Events of spans can only
have texts, so what is a table or a list by the conventions is JSON there: as `gen_ai.event.content` (Azure's
SDKs), as the blocks of Bedrock (Strands), or as `message.content`. OpenInference and Vercel's AI SDK have
attributes of their own, as have Logfire's clients and the SDKs of Langfuse and Braintrust. For `otel`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from cursorbench.sessions import otel_braintrust as braintrust
from cursorbench.sessions import otel_vercel as vercel
from cursorbench.sessions import otel_whole as whole
from cursorbench.sessions.chat import Message, message_of
from cursorbench.sessions.items import Quarantined
from cursorbench.sessions.otlp import Record, event_of, exported
from cursorbench.sessions.reading import json_value, list_of, parsed, table_of, text_of
from cursorbench.sessions.records import json_text, records

DETAILS = "gen_ai.client.inference.operation.details"
ROLES = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
    "gen_ai.choice": "assistant",
}
IN_ATTRIBUTES = {"gen_ai.content.prompt": "gen_ai.prompt", "gen_ai.content.completion": "gen_ai.completion"}
LANGFUSE = "langfuse.observation.type"  # of each span of its SDK
_INDEXED = {
    "prompt": re.compile(r"(?:gen_ai\.prompt|llm\.input_messages)\.([0-9]{1,4})\.(?:message\.)?(.+)"),
    "completion": re.compile(
        r"(?:gen_ai\.completion|llm\.output_messages)\.([0-9]{1,4})\.(?:message\.)?(.+)"
    ),
}
_PIECES = ("github-copilot", "chat")  # of whom the output's messages are the pieces of one answer
_OF_RESPONSES = re.compile(r'\s*\{\s*"id"\s*:\s*"resp_')
_CALL = re.compile(r"tool_calls\.([0-9]{1,4})\.(?:tool_call\.)?(?:function\.)?(id|name|arguments)")
_OLDER = re.compile(r"gen_ai\.completion\.([0-9]{1,4})\.function_call\.(name|arguments)")
_USE = re.compile(r"contents\.([0-9]{1,4})\.tool_call\.(?:function\.)?(id|name|arguments)")
_PART = re.compile(r"contents\.([0-9]{1,4})\.message_content\.(type|text)")
_BLOCKS = {"type", "text", "toolUse", "toolResult", "reasoningContent", "image", "document"}
_FIELDS = ("content", "tool_calls", "id", "role")
_LIST = re.compile(r'\s*\[\s*\{\s*"(?:role|parts|content)"\s*:')
_BETWEEN = re.compile(r"[\s,]*")


def messages(value: object, role: str) -> list[Message]:
    """The messages of an attribute, which spans have as JSON text and events as values."""
    if isinstance(value, str):
        text, value = value, _json(value)
        if isinstance(value, str):
            if _LIST.match(text):
                return messages(_whole(text), role)
            return [Message(role, text=text)] if text else []
    found = []
    for entry in value if isinstance(value, list) else [value]:
        if isinstance(entry, str):  # an array of texts is all that some exporters can write
            found += messages(entry, role)
        elif told := table_of(entry):  # an item of the Responses API has its role by its type
            message = message_of(told) or message_of({"role": role, **told})
            found += [message] if message is not None else []
    return found


def _whole(text: str) -> list[Any]:
    """The entries of a list in JSON that was cut off at a limit for attributes, VS Code's 64,000 characters.

    Such a list is no person's text, and its last entry no message.
    """
    found, decoder, at = list[Any](), json.JSONDecoder(), text.index("[") + 1
    while True:
        at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]  # matches the empty string
        try:
            entry, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return found
        found.append(entry)


def texts(told: dict[str, Any]) -> tuple[list[Message], list[Message]]:
    """What a model was asked and answered, as far as a span's attributes have it."""
    asked = messages(told.get("gen_ai.input.messages"), "user") or _indexed(told, "prompt")
    answers, fields = messages(told.get("gen_ai.output.messages"), "assistant"), _indexed(told, "completion")
    if answers and fields and not any(one.calls for one in answers):
        answers[0].calls = fields[0].calls  # LiteLLM's messages have none
    answers = answers or fields
    asked, answers = asked or vercel.asked(told), answers or vercel.answers(told)
    asked = asked or messages(braintrust.asked(told), "user") or whole.asked(told)
    answers = answers or messages(braintrust.answered(told), "assistant") or whole.answers(told)
    if asked or answers:
        return _joined(asked), answers
    return _langfuse(told) if LANGFUSE in told else _logfire(told)


def answer_of(told: dict[str, Any], answers: list[Message]) -> tuple[Message | None, list[Message]]:
    """The answer, and the messages as which a later request has it again.

    Several are choices, of which the first was the answer; not of the Responses API, which has none: these
    are its items (OpenLLMetry's of the Agents SDK, OpenInference's), each a message in the history. Nor of
    Copilot's command line, where each call is one. OpenLIT's history has no calls.
    """
    whole_response = _OF_RESPONSES.match(text_of(told.get("output.value")))  # OpenInference's, of all APIs
    items = bool(whole_response) or text_of(told.get("gen_ai.response.id")).startswith("resp_")
    items = items or (told.get("service.name"), told.get("gen_ai.operation.name")) == _PIECES
    if not answers or not (items or LANGFUSE in told or is_openlits(told)):
        return (answers[0] if answers else None), []
    answer = _whole_of(answers) if items else answers[0]
    texts_ = [Message("assistant", text=one.text) for one in answers if one.text]
    parts = [*texts_, *(Message("assistant", calls=[call]) for call in answer.calls)]
    return answer, parts if len(parts) > 1 else []


def is_openlits(told: dict[str, Any]) -> bool:
    """Whether OpenLIT wrote this span, whose histories have an answer's words alone."""
    return told.get("telemetry.sdk.name") == "openlit"


def _whole_of(items: list[Message]) -> Message:
    """The items of one answer as one message."""
    answer = Message("assistant", text="\n".join(one.text for one in items if one.text))
    answer.thinking = "\n".join(one.thinking for one in items if one.thinking)
    answer.calls = [call for one in items for call in one.calls]
    answer.results = [result for one in items for result in one.results]
    return answer


def _joined(asked: list[Message]) -> list[Message]:
    """The messages with what each tool gave under the id that its call has.

    OpenLLMetry tells a call of the Responses API by its item (`fc_...`), what it gave by the call; the API
    takes no request in which a call has no end.
    """
    known, waiting = {call.id for one in asked for call in one.calls}, list[str]()
    for message in asked:
        waiting += [call.id for call in message.calls if call.id.startswith("fc_")]
        for place, result in enumerate(message.results):
            if result.id not in known and waiting:
                message.results[place] = msgspec.structs.replace(result, id=waiting.pop(0))
    return asked


def _logfire(told: dict[str, Any]) -> tuple[list[Message], list[Message]]:
    """Request and answer as Logfire's instrumentations of OpenAI's and Anthropic's clients have them."""
    request = table_of(_given(told.get("request_data")))
    response = table_of(_given(told.get("response_data")))
    answer = response.get("message")
    for call in map(table_of, list_of(table_of(answer).get("tool_calls"))):
        function = table_of(call.get("function"))
        given = table_of(_given(function.get("arguments")))
        if "type" not in call and given.keys() == {"input"}:  # of Anthropic's
            function["arguments"] = given["input"]
    if answer is None:  # of a stream, or of a completion of text
        answer = text_of(response.get("combined_chunk_content")) or response.get("text")
    of_text = told.get("gen_ai.operation.name") == "text_completion"
    asked = request.get("prompt") if of_text else request.get("messages")
    return messages(asked, "user"), messages(answer, "assistant")


def _langfuse(told: dict[str, Any]) -> tuple[list[Message], list[Message]]:
    """A generation of Langfuse's SDK: messages, or a table with them and the tools; the answer's items.

    The Responses API's items are of one answer; of several choices of chat completions the first was it.
    """
    if told[LANGFUSE] != "generation":
        return [], []
    asked, answer = (told.get(f"langfuse.observation.{name}") for name in ("input", "output"))
    table = table_of(_given(asked))
    answers = messages(answer, "assistant")
    items = answers and any(table_of(one).get("type") for one in list_of(_given(answer)))
    answers = [_whole_of(answers)] if items else answers
    return messages(table.get("messages", table.get("input", asked)), "user"), answers


def _given(value: object) -> object:
    return _json(value) if isinstance(value, str) else value


def _indexed(told: dict[str, Any], which: str) -> list[Message]:
    """Messages as an attribute a field.

    gen_ai.prompt.0.role, gen_ai.prompt.0.content, ... of OpenLLMetry, or
    llm.input_messages.0.message.role, ... of OpenInference.
    """
    found: dict[int, dict[str, Any]] = {}
    for key, value in told.items():
        parts = _INDEXED[which].fullmatch(key)
        if parts is None:
            continue
        if older := _OLDER.fullmatch(key):  # LiteLLM's: all are the answer's
            found.setdefault(0, {}).setdefault("\0calls", {}).setdefault(int(older[1]), {})[older[2]] = value
            continue
        entry = found.setdefault(int(parts[1]), {})
        if inner := _CALL.fullmatch(parts[2]):
            entry.setdefault("\0calls", {}).setdefault(int(inner[1]), {})[inner[2]] = value
        elif inner := _PART.fullmatch(parts[2]):
            entry.setdefault("\0parts", {}).setdefault(int(inner[1]), {})[inner[2]] = value
        elif inner := _USE.fullmatch(parts[2]):
            entry.setdefault("\0uses", {}).setdefault(int(inner[1]), {})[inner[2]] = value
        else:
            entry[parts[2]] = value
    role = "user" if which == "prompt" else "assistant"
    told_of = [_of_fields(entry, role) for _, entry in sorted(found.items())]
    return [message for message in told_of if message is not None]


def _of_fields(entry: dict[str, Any], role: str) -> Message | None:
    """A message of its fields.

    OpenInference has a call once more among the parts, for their order, and what a tool gave an Anthropic
    model under the role `user`.
    """
    calls, parts, uses = (
        [one for _, one in sorted(entry.pop(name, {}).items())] for name in ("\0calls", "\0parts", "\0uses")
    )
    parts = [one for one in parts if one.get("type") != "tool_use"]
    content, result = blocks(entry.get("content")), text_of(entry.get("tool_call_id"))
    if result and entry.get("role") == "user":
        content = [{"type": "tool_result", "tool_use_id": result, "content": content}, *parts]
    return message_of({"role": role, **entry, "tool_calls": calls or uses, "content": content or parts})


def message_of_event(record: Record, role: str) -> Message | None:
    """A message event of the conventions before 1.37; its fields are the body's, or attributes."""
    told = {**record.attributes, **table_of(record.body)}
    told |= table_of(_json(told.get("gen_ai.event.content")))
    told |= {key: told[f"message.{key}"] for key in _FIELDS if f"message.{key}" in told}
    message = told.get("message")
    if isinstance(message, str):
        message = _json(message) if isinstance(_json(message), dict) else message
    inner = {**told, **table_of(message)} if isinstance(message, dict) else told
    inner = {key: inner[key] for key in _FIELDS if key in inner}
    if isinstance(message, str) and "content" not in inner:
        inner["content"] = message
    if isinstance(inner.get("tool_calls"), str):
        inner["tool_calls"] = _json(inner["tool_calls"])
    if not inner.keys() - {"role", "id"}:
        return None
    content = blocks(inner.get("content"))
    inner["content"] = json_text(content) if isinstance(content, dict) else content
    return message_of({**inner, "role": text_of(inner.get("role")) or role})


def blocks(content: object) -> object:
    """The parts of a message, also where an attribute has them as JSON; a person's own JSON stays a text."""
    if isinstance(content, str) and content.startswith("["):
        found = list_of(_json(content))
        if found and all(isinstance(one, dict) and one.keys() & _BLOCKS for one in found):
            return found
    return content


def _json(value: object) -> Any:
    return parsed(value.encode(errors="replace")) if isinstance(value, str) else None


def is_tool(record: Record) -> bool:
    """Whether it is a tool's span."""
    return text_of(record.attributes.get("gen_ai.operation.name")) == "execute_tool"


def _has_text(record: Record) -> bool:
    """Whether it is a model call, or an event of one, with messages."""
    if record.is_span:
        return any(texts(record.attributes)) or any(map(_has_text, [*listed(record), *record.events]))
    if record.name == DETAILS:
        return any(texts(record.attributes))
    if record.name in IN_ATTRIBUTES:
        return bool(record.attributes.get(IN_ATTRIBUTES[record.name]))
    return record.name in ROLES and message_of_event(record, ROLES[record.name]) is not None


def with_text(path: Path) -> Iterator[Record]:
    """The records of a file that have messages; they may stand behind a span of the same call without."""
    for found in records(path):
        for record in exported(found[1]) if not isinstance(found, Quarantined) else ():
            if record is not None and _has_text(record):
                yield record


def listed(record: Record) -> list[Record]:
    """Message events that a span has as one attribute of JSON, `events` (Logfire, Pydantic AI)."""
    told = record.attributes.get("events")
    entries = list_of(json_value(told))
    names = [(text_of(one.get("event.name")), one) for one in entries if isinstance(one, dict)]
    return [event_of(record, name, one, record.at) for name, one in names if name in ROLES]
