"""Messages in the attributes of the spans of Vercel's AI SDK, versions 4 and 5. For `otel_messages`.

Its calls of a model are the spans `ai.generateText.doGenerate`, `ai.streamText.doStream` and so on, which
alone have `ai.prompt.messages`; those around them repeat the last answer and are not read.
"""

from __future__ import annotations

from typing import Any

from cursorbench.sessions.chat import Message, message_of
from cursorbench.sessions.reading import json_or_text, list_of, table_of, text_of


def asked(told: dict[str, Any]) -> list[Message]:
    """The messages that the model was sent."""
    found = []
    for message in map(table_of, list_of(json_or_text(told.get("ai.prompt.messages")))):
        content = message.get("content")
        parts = [part(table_of(one)) for one in content] if isinstance(content, list) else content
        found.append(message_of({**message, "content": parts}))
    return [one for one in found if one is not None]


def answers(told: dict[str, Any]) -> list[Message]:
    """What it answered: a text, calls, or both."""
    if "ai.prompt.messages" not in told:
        return []
    text = text_of(told.get("ai.response.text"))
    calls = list_of(json_or_text(told.get("ai.response.toolCalls")))
    parts = [{"type": "text", "text": text}] if text else []
    parts += [part({**table_of(call), "type": "tool-call"}) for call in calls]
    message = message_of({"role": "assistant", "content": parts})
    return [message] if parts and message is not None else []


def part(told: dict[str, Any]) -> dict[str, Any]:
    """A part of a message, calls and results as `chat` knows them; others as they are."""
    kind, one = told.get("type"), {"id": told.get("toolCallId")}
    if kind == "tool-call":
        given = json_or_text(told.get("input", told.get("args")))
        return {**one, "type": "tool_call", "name": told.get("toolName"), "arguments": given}
    if kind == "tool-result":
        output = told.get("output", told.get("result"))
        of = text_of(table_of(output).get("type"))
        given = table_of(output)["value"] if of and "value" in table_of(output) else output
        wrong = told.get("isError") is True or of.startswith("error-")
        return {**one, "type": "tool_call_response", "response": given, "is_error": wrong}
    return told
