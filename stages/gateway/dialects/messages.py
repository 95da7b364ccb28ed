"""Anthropic's Messages API, `POST /v1/messages`: the request. The answer is in `messages_answer.py`.

Source: docs.anthropic.com/en/api/messages; what Claude Code 2.1.332 sends was read off its requests. What of
that API lies with its maker's own servers has no effect here (`docs/http.md` lists it).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import orjson

from cursorbench.sessions.automatic import automatic_of
from stages.gateway.clients import unsigned
from stages.gateway.dialects.form import Form, read_as, string_in
from stages.gateway.dialects.messages_answer import MessagesForm
from stages.gateway.dialects.talk import Part, Talk, call_of, image_part, text_part, tool_named, tool_of
from stages.gateway.errors import invalid
from stages.gateway.ids import is_id
from stages.gateway.request_fields import Count

FIELDS = {"stop": "stop_sequences", "response_format": "output_config.format"}  # by chat's names
_SAME = ("stream", "temperature", "top_p", "top_k")
_WHOSE = ("model", "metadata", "user")
_CALLABLE = (None, "custom")  # types of tools that are the client's; others run at the maker's
# of an answer that an own server gave with tools of its own, or another model thought: not what this model
# is to read
_NOT_TOLD = (
    *("thinking", "redacted_thinking", "fallback"),
    *("server_tool_use", "mcp_tool_use", "mcp_tool_listing"),
)
# what only a server that keeps conversations, or sums them up, could heed
_ELSEWHERE = {
    "thread": "nothing is kept, send the whole conversation",
    "compaction": "ask for a summary in a message",
}

_Blocks = list[dict[str, Any]]


class _Message(msgspec.Struct):
    role: Literal["user", "assistant", "system"]
    content: str | _Blocks | None = None


class _Tool(msgspec.Struct):
    name: str
    input_schema: dict[str, Any]
    description: str | None = None
    defer_loading: bool | None = None


class _Choice(msgspec.Struct):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class _Request(msgspec.Struct):
    messages: Annotated[list[_Message], msgspec.Meta(min_length=1)]
    system: str | _Blocks = ""
    stop_sequences: list[Annotated[str, msgspec.Meta(min_length=1)]] | None = None
    tools: _Blocks = []
    tool_choice: _Choice | None = None
    output_config: dict[str, Any] | None = None
    output_format: dict[str, Any] | None = None


class _WithLimit(msgspec.Struct):
    max_tokens: Count


def read(body: dict[str, Any]) -> tuple[dict[str, Any], Form]:
    """The request as `/v1/chat/completions` has it, and the form of its answer. Raises ApiError 400."""
    for name, why in _ELSEWHERE.items():
        if body.get(name) is not None:
            raise invalid(f"{name} is not supported: {why}", param=name, code="unsupported_parameter")
    chat = conversation(body)
    chat["max_tokens"] = read_as(body, _WithLimit).max_tokens
    chat |= {name: body[name] for name in _SAME if name in body}
    if body.get("stream") is True:
        chat |= {"stream_options": {"include_usage": True}, "return_token_ids": True}
    return chat, MessagesForm()


def conversation(body: dict[str, Any]) -> dict[str, Any]:
    """What of a request the prompt is made of, and what bounds the answer but for its length."""
    request = read_as(body, _Request)
    talk = Talk()
    system = request.system if isinstance(request.system, str) else _instructions(request.system, "system")
    talk.system(unsigned(system))
    for index, message in enumerate(request.messages):
        _add(talk, message, f"messages[{index}].content")
    said = talk.messages()
    if said and said[-1]["role"] == "assistant":
        why = "the last message must not be the assistant's: its answer is not gone on with"
        raise invalid(why, param="messages", code="unsupported_parameter")
    chat: dict[str, Any] = {"messages": said, "tools": _tools(request)}
    chat |= {name: body[name] for name in _WHOSE if name in body}
    if request.stop_sequences:
        chat["stop"] = request.stop_sequences
    if request.tool_choice is not None:
        chat |= _choice(request.tool_choice)
    if form := request.output_format or (request.output_config or {}).get("format"):
        chat["response_format"] = _bound(form)
    return chat


def _instructions(blocks: _Blocks, where: str) -> str:
    texts = [
        string_in(one, "text", f"{where}[{n}]") for n, one in enumerate(blocks) if one.get("type") == "text"
    ]
    return "\n\n".join(filter(None, map(unsigned, texts)))


def _add(talk: Talk, message: _Message, where: str) -> None:
    content = message.content
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if blocks is None:
        if message.role != "system":  # which may say how the answer is to be, and no word
            raise invalid("content is required", param=where)
    elif message.role == "system":
        talk.system(_instructions(blocks, where))
    elif message.role == "assistant":
        _answer(talk, blocks, where)
    else:
        _spoken(talk, blocks, where)


def _answer(talk: Talk, blocks: _Blocks, where: str) -> None:
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    for n, block in enumerate(blocks):
        kind, here = block.get("type"), f"{where}[{n}]"
        if kind == "text":
            texts.append(string_in(block, "text", here))
        elif kind == "thinking" and is_id(str(block.get("signature"))):
            thoughts.append(string_in(block, "thinking", here))
        elif kind == "tool_use":
            arguments = block.get("input")
            if not isinstance(arguments, dict):
                raise invalid("the input of a tool must be an object", param=f"{here}.input")
            id, name = string_in(block, "id", here), string_in(block, "name", here)
            calls.append(call_of(id, name, orjson.dumps(arguments).decode()))
        elif kind not in _NOT_TOLD and not str(kind).endswith("_tool_result"):
            raise _unknown(here)
    talk.answered("".join(texts), calls, "".join(thoughts))


def _spoken(talk: Talk, blocks: _Blocks, where: str) -> None:
    """What calls gave comes first: it answers the calls of the message before.

    A summary of what was said before is a message of its own. Its client joins what a person asks next to it,
    where the conversation had to be summed up for that.
    """
    parts: list[Part] = []
    results = 0
    for n, block in enumerate(blocks):
        here = f"{where}[{n}]"
        if block.get("type") == "tool_result":
            results += 1
            given = block.get("content")
            given = [{"type": "text", "text": given}] if isinstance(given, str) else given or []
            if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
                raise invalid("content must be a string or a list of blocks", param=f"{here}.content")
            told = [_part(one, f"{here}.content[{k}]") for k, one in enumerate(given)]
            talk.result(string_in(block, "tool_use_id", here), [part for part in told if part])
        else:
            part = _part(block, here)
            if part and parts and (_is_summary(part) or _is_summary(parts[-1])):
                talk.user(parts)
                parts = []
            parts += [part] if part else []
    if parts or not results:
        talk.user(parts)


def _is_summary(part: Part) -> bool:
    return part["type"] == "text" and automatic_of(part["text"]) == "continuation"


def _part(block: dict[str, Any], where: str) -> Part | None:
    """A block of the user's or of a tool's; None for one that tells the model nothing."""
    kind, source = block.get("type"), block.get("source")
    if kind == "text":
        return text_part(string_in(block, "text", where))
    if kind == "tool_reference":
        return None
    if kind == "image" and isinstance(source, dict):
        if source.get("type") == "url":
            return image_part(string_in(source, "url", f"{where}.source"))
        if source.get("type") == "base64":
            media, data = (string_in(source, name, f"{where}.source") for name in ("media_type", "data"))
            return image_part(f"data:{media};base64,{data}")
    if kind == "document" and isinstance(source, dict) and source.get("type") == "text":
        return text_part(string_in(source, "data", f"{where}.source"))
    raise _unknown(where)


def _tools(request: _Request) -> list[dict[str, Any]]:
    """The client's tools; one that is to be loaded later as soon as the conversation has named it."""
    tools: dict[str, _Tool] = {}
    for index, tool in enumerate(request.tools):
        if tool.get("type") in _CALLABLE:
            read = _declared(tool, f"tools[{index}]")
            if read.name in tools:
                raise invalid("another tool has this name", param=f"tools[{index}].name")
            tools[read.name] = read
    for index, message in enumerate(request.messages):
        for block in message.content if isinstance(message.content, list) else ():
            _change(tools, block, f"messages[{index}]")
    return [
        tool_of(tool.name, tool.description or "", tool.input_schema)
        for tool in tools.values()
        if not tool.defer_loading
    ]


def _declared(tool: Any, where: str) -> _Tool:
    try:
        return msgspec.convert(tool, _Tool)
    except msgspec.ValidationError as error:
        raise invalid(f"no tool: {str(error).partition(' - at ')[0]}", param=where) from None


def _change(tools: dict[str, _Tool], block: dict[str, Any], where: str) -> None:
    """What a block of the conversation changes about the tools: their results, and words of the system's."""
    kind, content, tool = block.get("type"), block.get("content"), block.get("tool")
    if kind == "tool_result" and isinstance(content, list):
        for one in content:
            if isinstance(one, dict) and one.get("type") == "tool_reference":
                _load(tools, one.get("tool_name"))
    elif kind == "tool_addition" and isinstance(tool, dict):
        if tool.get("type") == "tool_definition":
            added = _declared(tool.get("definition"), where)
            added.defer_loading = None
            tools[added.name] = added
        else:
            _load(tools, tool.get("name"))
    elif kind == "tool_removal" and isinstance(tool, dict) and isinstance(tool.get("name"), str):
        tools.pop(tool["name"], None)


def _load(tools: dict[str, _Tool], name: Any) -> None:
    if isinstance(name, str) and name in tools:
        tools[name].defer_loading = None


def _choice(choice: _Choice) -> dict[str, Any]:
    """Whether tools may or must be called, and how many of them, as chat has it."""
    chosen: Any = "required" if choice.type == "any" else choice.type
    if choice.type == "tool":
        if choice.name is None:
            raise invalid("tool_choice needs the name of a tool", param="tool_choice.name")
        chosen = tool_named(choice.name)
    return {"tool_choice": chosen, "parallel_tool_calls": not choice.disable_parallel_tool_use}


def _bound(form: Any) -> dict[str, Any]:
    """The answer is to fit a schema, as chat has it."""
    if not isinstance(form, dict) or form.get("type") != "json_schema":
        raise invalid("the only format is json_schema", param="output_config.format")
    if not isinstance(schema := form.get("schema"), dict):
        raise invalid("schema must be an object", param="output_config.format.schema")
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


def _unknown(where: str) -> Exception:
    return invalid("content of this type is not supported", param=where, code="unsupported_parameter")
