"""OpenAI's Responses API, `POST /v1/responses`: the request. The answer is in `responses_answer.py`.

Source: platform.openai.com/docs/api-reference/responses; what Codex 0.163 sends was read off its requests.
Nothing is kept for a later request: each brings its conversation along.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import orjson

from cursorbench.sessions.codex_agents import letter_of
from stages.gateway.dialects.form import Form, read_as, string_in
from stages.gateway.dialects.responses_answer import ALIKE, Named, ResponsesForm, Tool
from stages.gateway.dialects.talk import Part, Talk, call_of, image_part, text_part, tool_named, tool_of
from stages.gateway.errors import invalid
from stages.gateway.request_fields import Count

FIELDS = {  # by chat's names
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
}
_SAME = ("model", "stream", "temperature", "top_p", "metadata", "user", "parallel_tool_calls")
_KEPT = ("previous_response_id", "conversation", "prompt")  # what a server would have to have kept
_EFFORTS = ("low", "medium", "high")  # that chat has, too
# what an own server did with tools of its own
_NOT_TOLD = (
    *("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call"),
    *("mcp_call", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response"),
    *("program", "program_output"),
)
_TOOLS = "additional_tools"
_THREAD = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_FREE = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}

_Objects = list[dict[str, Any]]


class _Request(msgspec.Struct):
    input: str | _Objects
    instructions: str = ""
    tools: _Objects = []
    tool_choice: str | dict[str, Any] = "auto"
    max_output_tokens: Count | None = None
    text: dict[str, Any] = {}
    reasoning: dict[str, Any] = {}
    background: bool = False


def read(body: dict[str, Any]) -> tuple[dict[str, Any], Form]:
    """The request as `/v1/chat/completions` has it, and the form of its answer. Raises ApiError 400."""
    for name in _KEPT:
        if body.get(name) is not None:
            message = f"{name} is not supported: nothing is kept, send the whole input"
            raise invalid(message, param=name, code="unsupported_parameter")
    request = read_as(body, _Request)
    if request.background:
        message = "background is not supported: wait for the answer"
        raise invalid(message, param="background", code="unsupported_parameter")
    names = Named()
    tools = _tools(request, names)
    chat: dict[str, Any] = {"tools": tools, "messages": _messages(request, names)}
    chat |= {name: body[name] for name in _SAME if name in body}
    chat |= _thread(body)
    chat["tool_choice"] = _choice(request.tool_choice, names)
    if request.max_output_tokens is not None:
        chat["max_tokens"] = request.max_output_tokens
    if (form := _bound(request.text.get("format"))) is not None:
        chat["response_format"] = form
    if request.reasoning.get("effort") in _EFFORTS:
        chat["reasoning_effort"] = request.reasoning["effort"]
    if body.get("stream") is True:
        chat["stream_options"] = {"include_usage": True}
    several = chat.get("parallel_tool_calls") is not False
    return chat, ResponsesForm(names, {"parallel_tool_calls": several, "tool_choice": request.tool_choice})


def _thread(body: dict[str, Any]) -> dict[str, Any]:
    """The thread that Codex says a request is of, as its session, where it names none itself.

    Its history begins anew when it is summed up, and has nothing of an answer that somebody stopped.
    """
    told, metadata = body.get("client_metadata"), body.get("metadata") or {}
    thread = told.get("thread_id") if isinstance(told, dict) else None
    if not isinstance(thread, str) or not _THREAD.fullmatch(thread) or not isinstance(metadata, dict):
        return {}
    return {"metadata": {"rtrl_session": thread} | metadata}


def _messages(request: _Request, names: Named) -> list[dict[str, Any]]:
    talk = Talk()
    talk.system(request.instructions)
    if isinstance(request.input, str):
        talk.user([text_part(request.input)])
        return talk.messages()
    for index, item in enumerate(request.input):
        _add(talk, item, names, f"input[{index}]")
    messages = talk.messages()
    if not messages:
        raise invalid("input must have at least one message", param="input")
    return messages


def _add(talk: Talk, item: dict[str, Any], names: Named, where: str) -> None:
    kind = item.get("type", "message")
    if kind == "item_reference" or item.keys() == {"id"}:
        message = 'nothing is kept that could be referred to: send the items themselves ("store": false)'
        raise invalid(message, param=where, code="unsupported_parameter")
    if kind == "message":
        _say(talk, item, where)
    elif kind == "function_call":
        name = names.called(_tool(item, where, item.get("namespace"), free=False))
        arguments = string_in(item, "arguments", where)
        talk.answered("", [call_of(string_in(item, "call_id", where), name, arguments)])
    elif kind == "custom_tool_call":
        name = names.called(_tool(item, where, item.get("namespace"), free=True))
        arguments = orjson.dumps({"input": string_in(item, "input", where)}).decode()
        talk.answered("", [call_of(string_in(item, "call_id", where), name, arguments)])
    elif kind in ("function_call_output", "custom_tool_call_output"):
        talk.result(string_in(item, "call_id", where), _parts(item.get("output"), f"{where}.output"))
    elif kind == "agent_message":
        talk.user([text_part(letter_of(item).text)])
    elif kind == "reasoning":
        if thoughts := _thoughts(item):
            talk.answered("", thoughts=thoughts)
    elif kind not in (*_NOT_TOLD, _TOOLS):
        raise invalid("items of this type are not supported", param=where, code="unsupported_parameter")


def _say(talk: Talk, item: dict[str, Any], where: str) -> None:
    role, parts = item.get("role"), _parts(item.get("content"), f"{where}.content")
    text = [part["text"] for part in parts if part["type"] == "text"]
    if role in ("system", "developer"):
        talk.system("\n\n".join(text))
    elif role == "assistant":
        talk.answered("".join(text))
    elif role == "user":
        talk.user(parts)
    else:
        raise invalid("role must be user, assistant, system or developer", param=f"{where}.role")


def _thoughts(item: dict[str, Any]) -> str:
    """What the model thought; "" where another one did, whose maker sends a summary and what is encrypted."""
    content = item.get("content")
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    return "".join(str(part.get("text") or "") for part in parts if part.get("type") == "reasoning_text")


def _parts(content: Any, where: str) -> list[Part]:
    if isinstance(content, str):
        return [text_part(content)]
    if not isinstance(content, list):
        raise invalid("it must be a string or a list of parts", param=where)
    return [_part(one, f"{where}[{n}]") for n, one in enumerate(content)]


def _part(part: Any, where: str) -> Part:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in ("input_text", "output_text", "text"):
        return text_part(string_in(part, "text", where))
    if kind == "refusal":
        return text_part(string_in(part, "refusal", where))
    if kind == "input_image" and part.get("image_url") is not None:
        return image_part(string_in(part, "image_url", where))
    raise invalid("content of this type is not supported", param=where, code="unsupported_parameter")


def _tools(request: _Request, names: Named) -> list[dict[str, Any]]:
    """The client's tools. Those that run at the API's maker (`web_search` and others) are left out.

    What Codex declares among the messages has its latest form, where it is declared again.
    """
    declared: dict[str, dict[str, Any]] = {}
    for where, tool, space in _told("tools", request.tools):
        for name, one in _declared(tool, names, where, space):
            if name in declared:
                raise invalid(ALIKE, param=f"{where}.name")
            declared[name] = one
    for index, item in enumerate(request.input if isinstance(request.input, list) else ()):
        if item.get("type") == _TOOLS and isinstance(added := item.get("tools"), list):
            for where, tool, space in _told(f"input[{index}].tools", added):
                declared |= _declared(tool, names, where, space)
    return list(declared.values())


def _told(place: str, tools: list[Any]) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Each tool, those in a namespace too: where it stands, itself, its namespace or ""."""
    for index, tool in enumerate(tools):
        where = f"{place}[{index}]"
        if not isinstance(tool, dict):
            raise invalid("a tool must be an object", param=where)
        if tool.get("type") == "namespace" and isinstance(inner := tool.get("tools"), list):
            space = string_in(tool, "name", where)
            yield from (
                (f"{where}.tools[{n}]", one, space) for n, one in enumerate(inner) if isinstance(one, dict)
            )
        else:
            yield where, tool, ""


def _declared(tool: dict[str, Any], names: Named, where: str, space: str) -> list[tuple[str, dict[str, Any]]]:
    """The tool as chat has it, by its name; nothing for one that is none of the client's."""
    kind, description = tool.get("type"), tool.get("description")
    if kind not in ("function", "custom"):
        return []
    name = names.declare(_tool(tool, where, space, free=kind == "custom"), where)
    if kind == "custom":
        form = tool.get("format")
        definition = form.get("definition") if isinstance(form, dict) else None
        described = [text for text in (description, definition) if isinstance(text, str)]
        return [(name, tool_of(name, "\n\n".join(described), _FREE))]
    parameters = tool.get("parameters")
    if parameters is not None and not isinstance(parameters, dict):
        raise invalid("parameters must be an object", param=f"{where}.parameters")
    said = description if isinstance(description, str) else ""
    return [(name, tool_of(name, said, parameters or {"type": "object", "properties": {}}))]


def _tool(named: dict[str, Any], where: str, space: Any, *, free: bool) -> Tool:
    return Tool(space if isinstance(space, str) else "", string_in(named, "name", where), free)


def _choice(choice: str | dict[str, Any], names: Named) -> Any:
    """Whether tools may or must be called, and which, as chat has it."""
    if isinstance(choice, str):
        return choice
    if choice.get("type") != "allowed_tools":
        return _chosen(choice, names)
    allowed = choice.get("tools")
    if not isinstance(allowed, list) or not all(isinstance(one, dict) for one in allowed):
        raise invalid("tools of tool_choice must be a list of tools", param="tool_choice")
    chosen = {"mode": choice.get("mode"), "tools": [_chosen(one, names) for one in allowed]}
    return {"type": "allowed_tools", "allowed_tools": chosen}


def _chosen(tool: dict[str, Any], names: Named) -> dict[str, Any]:
    kind = tool.get("type")
    if kind not in ("function", "custom"):
        raise invalid("tool_choice may name functions and custom tools alone", param="tool_choice")
    return tool_named(names.called(_tool(tool, "tool_choice", tool.get("namespace"), free=kind == "custom")))


def _bound(form: Any) -> dict[str, Any] | None:
    """What the answer is to fit, as chat has it."""
    kind = "text" if form is None else form.get("type") if isinstance(form, dict) else None
    if kind == "json_schema":
        told = {name: form[name] for name in ("name", "schema", "strict") if name in form}
        return {"type": kind, "json_schema": told}
    if kind not in ("text", "json_object"):
        raise invalid("the formats are text, json_object and json_schema", param="text.format")
    return None if kind == "text" else form
