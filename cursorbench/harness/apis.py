"""The APIs in which an agent of others may ask for its model's answer, and how each is read for the record.

OpenAI's chat completions and Responses, and Anthropic's Messages. A record has all of them as chat
completions (`recording.py`); what goes to the model and back is not touched here. Read as leniently as logs
are (`cursorbench.sessions`), by the same readers: an answer that no chat completion can be made of is
none, whatever a request holds is not refused. Not for: serving them (`stages.gateway.dialects`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from cursorbench.harness import completion, sse
from cursorbench.harness.budget import Usage
from cursorbench.harness.chat import objects
from cursorbench.harness.completion import Completion
from cursorbench.harness.episode import Message
from cursorbench.sessions import chat as logged
from cursorbench.sessions.openai_answers import answer_of
from cursorbench.sessions.reading import table_of, text_of

_STOPS = {"max_tokens": "length", "tool_use": "tool_calls"}  # of Messages; all others are a stop
_ENDS = ("response.completed", "response.incomplete")
_ENDED = ("completed", "incomplete")
_CALLS = ("function_call", "custom_tool_call")
_INPUT = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}


class Api(NamedTuple):
    """One of them.

    Attributes:
        path: where it is asked.
        asked: a request's `messages` and `tools` as chat completions have them.
        read: the completion in an answer's body, by its headers, and the seconds it took. Raises ValueError.
    """

    path: str
    asked: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    read: Callable[[bytes, Mapping[str, str], float], Completion]


def _messages_asked(body: Mapping[str, Any]) -> dict[str, Any]:
    said = [{"role": "system", "content": body.get("system")}, *objects(body.get("messages"))]
    blocks = (block for one in said for block in objects(one.get("content")))
    added = (table_of(table_of(block.get("tool")).get("definition")) for block in blocks)
    tools = [tool for tool in (*objects(body.get("tools")), *added) if "input_schema" in tool]
    return {
        "messages": _conversation(said),
        "tools": [_tool(tool, tool["input_schema"]) for tool in tools],
    }


def _responses_asked(body: Mapping[str, Any]) -> dict[str, Any]:
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else objects(given)
    told = [*objects(body.get("tools"))]
    for item in items:
        if item.get("type") == "additional_tools":
            told += objects(item.get("tools"))
    said = [{"role": "system", "content": body.get("instructions")}, *map(_plain, items)]
    return {"messages": _conversation(said), "tools": [tool for one in told for tool in _declared(one)]}


def _messages_read(content: bytes, headers: Mapping[str, str], seconds: float) -> Completion:
    events = list(sse.events(content)) if sse.is_stream(headers) else []
    if sse.is_stream(headers) and not any(event.get("type") == "message_stop" for event in events):
        raise ValueError("the stream broke off")
    whole = {} if events else _object(content)
    stop, usage = text_of(whole.get("stop_reason")), dict(table_of(whole.get("usage")))
    for event in events:
        usage |= table_of(table_of(event.get("message")).get("usage")) | table_of(event.get("usage"))
        stop = text_of(table_of(event.get("delta")).get("stop_reason")) or stop
    read = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    prompt = [usage[name] for name in read if isinstance(usage.get(name), int)]
    used = _usage(sum(prompt) if prompt else None, usage.get("output_tokens"))
    return _completion(events or whole, headers, _STOPS.get(stop, "stop"), used, seconds)


def _responses_read(content: bytes, headers: Mapping[str, str], seconds: float) -> Completion:
    if sse.is_stream(headers):
        ends = [event for event in sse.events(content) if event.get("type") in _ENDS]
        if not ends:
            raise ValueError("the stream broke off")
        whole = table_of(ends[-1].get("response"))
    else:
        whole = _object(content)
    if isinstance(whole.get("output"), list):
        said = [_plain(item) for item in objects(whole["output"])]
        empty = not said and whole.get("status") in _ENDED  # nothing was said, and was paid for
        whole = {**whole, "output": [{"role": "assistant", "content": ""}] if empty else said}
    usage = table_of(whole.get("usage"))
    used = _usage(usage.get("input_tokens"), usage.get("output_tokens"))
    stop = "length" if whole.get("status") == "incomplete" else "stop"
    found = _completion(whole, headers, stop, used, seconds)
    called = stop == "stop" and "tool_calls" in found.message
    return Completion(**{**vars(found), "finish_reason": "tool_calls"}) if called else found


CHAT = Api("/v1/chat/completions", lambda body: body, sse.read)
MESSAGES = Api("/v1/messages", _messages_asked, _messages_read)
RESPONSES = Api("/v1/responses", _responses_asked, _responses_read)
ALL = {api.path: api for api in (CHAT, MESSAGES, RESPONSES)}


def _completion(
    answer: object, headers: Mapping[str, str], stop: str, usage: Usage | None, seconds: float
) -> Completion:
    found = answer_of(answer)
    if found is None or found.message is None:
        raise ValueError("the answer has no message")
    message = next(_chat(found.message), {"role": "assistant", "content": ""})
    return Completion(completion.id_of(headers, found.id), message, stop, usage, seconds)


def _usage(prompt: object, output: object) -> Usage | None:
    return Usage(prompt, output) if isinstance(prompt, int) and isinstance(output, int) else None


def _object(content: bytes) -> dict[str, Any]:
    try:
        return table_of(json.loads(content))
    except RecursionError as error:
        raise ValueError("the answer is nested too deep") from error


def _conversation(said: list[dict[str, Any]]) -> list[Message]:
    """Messages as chat has them; what the model said in several pieces is one answer there."""
    found: list[Message] = []
    for message in filter(None, map(logged.message_of, said)):
        for one in _chat(message):
            if found and one["role"] == found[-1]["role"] == "assistant":
                _join(found[-1], one)
            else:
                found.append(one)
    return found


def _join(before: Message, more: Message) -> None:
    for name in ("content", "reasoning_content"):
        if joined := "\n".join(filter(None, (before.get(name), more.get(name)))):
            before[name] = joined
    if calls := [*before.get("tool_calls", ()), *more.get("tool_calls", ())]:
        before["tool_calls"] = calls


def _chat(message: logged.Message) -> Iterator[Message]:
    """A message as chat completions have it: what calls gave is one each there, before what a person says."""
    if message.role == "assistant":
        said: Message = {"role": "assistant", "content": message.text}
        if message.thinking:
            said["reasoning_content"] = message.thinking
        if message.calls:
            said["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments.text},
                }
                for call in message.calls
            ]
        yield said
        return
    for result in message.results:
        yield {"role": "tool", "tool_call_id": result.id, "content": result.text}
    if message.text:
        yield {"role": message.role, "content": message.text}


def _plain(item: dict[str, Any]) -> dict[str, Any]:
    """An item of Responses; a call of a tool in a name space, or of one that takes a text, is a plain one."""
    if item.get("type") not in _CALLS:
        return item
    plain = {**item, "type": "function_call", "name": _named(text_of(item.get("namespace")), item)}
    if item["type"] == "custom_tool_call":
        plain["arguments"] = json.dumps({"input": text_of(plain.pop("input", ""))})
    return plain


def _named(space: str, tool: Mapping[str, Any]) -> str:
    """The name that the model calls a tool by, as the gateway gives it."""
    return f"{space.removesuffix('__')}__{text_of(tool.get('name'))}" if space else text_of(tool.get("name"))


def _declared(tool: dict[str, Any], space: str = "") -> Iterator[dict[str, Any]]:
    kind = tool.get("type")
    if kind == "namespace" and not space:
        for inner in objects(tool.get("tools")):
            yield from _declared(inner, text_of(tool.get("name")))
    elif kind in ("function", "custom"):
        schema = _INPUT if kind == "custom" else tool.get("parameters")
        yield _tool({**tool, "name": _named(space, tool)}, schema)


def _tool(tool: Mapping[str, Any], schema: object) -> dict[str, Any]:
    function = {"name": text_of(tool.get("name")), "description": text_of(tool.get("description"))}
    return {"type": "function", "function": {**function, "parameters": schema or {"type": "object"}}}
