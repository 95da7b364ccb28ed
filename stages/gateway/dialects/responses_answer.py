"""OpenAI's Responses API: the answer, whole and streamed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import orjson

from stages.gateway.dialects.form import named
from stages.gateway.errors import ApiError, invalid

Item = dict[str, Any]
Event = dict[str, Any]

ALIKE = "another tool has this name: one of a namespace is called NAMESPACE__NAME"


class Tool(NamedTuple):
    """What its client calls a tool; `free`: it takes one text instead of JSON."""

    space: str
    name: str
    free: bool


class Named:
    """What the model's names of tools stand for."""

    def __init__(self) -> None:
        self._tools: dict[str, Tool] = {}

    def declare(self, tool: Tool, where: str) -> str:
        """The name that a model calls a tool by. Raises ApiError 400 where it calls another one so."""
        name = self.called(tool)
        if self._tools[name] != tool:
            raise invalid(ALIKE, param=f"{where}.name")
        return name

    def called(self, tool: Tool) -> str:
        """The same, of a call that was made before."""
        name = tool.name
        if tool.space:
            name = f"{tool.space}{name}" if tool.space.endswith("__") else f"{tool.space}__{name}"
        self._tools.setdefault(name, tool)
        return name

    def item(self, call: dict[str, Any]) -> Item:
        """A call as this API tells it, but for its id."""
        called, arguments = call["function"]["name"], call["function"]["arguments"]
        space, name, free = self._tools.get(called, Tool("", called, free=False))
        told = {"input": _free(arguments)} if free else {"arguments": arguments}
        return {
            "type": "custom_tool_call" if free else "function_call",
            "call_id": call["id"],
            "name": name,
            **told,
            "status": "completed",
            **({"namespace": space} if space else {}),
        }


class _Said(NamedTuple):
    """A kind of item that has one part, of text: what the item is, and the part beside its text."""

    name: str
    fields: dict[str, Any]
    part: str
    beside: dict[str, Any]
    more: dict[str, Any]  # of the part's events

    def item(self, name: Callable[[str, Item], str], body: Item, text: str) -> Item:
        """A whole item of the answer `body`; `name` gives ids."""
        return {
            "id": name(self.name, body),
            **self.fields,
            "status": "completed",
            "content": [self.text(text)],
        }

    def text(self, text: str) -> dict[str, Any]:
        """The part."""
        return {"type": self.part, "text": text, **self.beside}


_MESSAGE = _Said(
    "msg",
    {"type": "message", "role": "assistant"},
    "output_text",
    {"annotations": [], "logprobs": []},
    {"logprobs": []},
)
_THOUGHTS = _Said("rs", {"type": "reasoning", "summary": []}, "reasoning_text", {}, {})


class ResponsesForm:
    """One answer. `asked`: what of the request it says back."""

    tells_stop = False
    id_header = b""

    def __init__(self, names: Named, asked: dict[str, Any]) -> None:
        self._names, self._asked = names, asked
        self._output: list[Item] = []
        self._text: list[str] = []  # of the item that is open
        self._open: _Said | None = None
        self._sent = 0  # events
        self._head: dict[str, Any] = {}
        self._finish = "stop"
        self._usage: dict[str, Any] | None = None

    def whole(self, body: dict[str, Any]) -> dict[str, Any]:
        """See `Form`."""
        choice = body["choices"][0]
        message = choice["message"]
        text, calls = message["content"] or "", message.get("tool_calls") or ()
        if thoughts := message.get("reasoning_content"):
            self._output.append(_THOUGHTS.item(self._id, body, thoughts))
        if text or not calls:
            self._output.append(_MESSAGE.item(self._id, body, text))
        for call in calls:
            self._output.append({"id": self._id("fc", body), **self._names.item(call)})
        self._head, self._finish, self._usage = self._begun(body), choice["finish_reason"], body.get("usage")
        return self._response()

    def piece(self, chunk: dict[str, Any]) -> bytes:
        """See `Form`."""
        events: list[Event] = []
        if not self._head:
            self._head = self._begun(chunk)
            begun = {**self._head, **_state("in_progress"), "output": [], "usage": None}
            events += [{"type": f"response.{name}", "response": begun} for name in ("created", "in_progress")]
        for choice in chunk["choices"]:
            delta = choice["delta"]
            for said, text in ((_THOUGHTS, delta.get("reasoning_content")), (_MESSAGE, delta.get("content"))):
                events += self._more(said, text) if text else []
            for call in delta.get("tool_calls") or ():
                events += self._called(call)
            self._finish = choice["finish_reason"] or self._finish
        self._usage = chunk.get("usage") or self._usage
        return self._told(events)

    def end(self) -> bytes:
        """See `Form`."""
        said_nothing = [] if self._answered() else self._begin(_MESSAGE)
        closed, response = self._close(), self._response()
        ended = {"type": f"response.{response['status']}", "response": response}
        return self._told([*said_nothing, *closed, ended])

    def broken(self, error: ApiError, request_id: str) -> bytes:
        """See `Form`."""
        failed = {**self._head, **_state("failed"), "output": self._output, "usage": None}
        failed["error"] = {"code": "server_error", "message": error.message, "type": error.code}
        return self._told([{"type": "response.failed", "response": failed, "request_id": request_id}])

    def _begun(self, body: dict[str, Any]) -> dict[str, Any]:
        return {**_head(body), **self._asked}

    def _answered(self) -> bool:
        """Whether there is more than thoughts."""
        return any(item["type"] != "reasoning" for item in self._output)

    def _more(self, said: _Said, text: str) -> list[Event]:
        events = [] if self._open is said else self._begin(said)
        self._text.append(text)
        place = {**self._place(self._output[-1], behind=1), "content_index": 0}
        return [*events, {"type": f"response.{said.part}.delta", **place, "delta": text, **said.more}]

    def _begin(self, said: _Said) -> list[Event]:
        """The begin of an item of text."""
        closed = self._close()
        self._open, self._text = said, []
        item = {**said.item(self._id, self._head, ""), "status": "in_progress", "content": []}
        part = {**self._place(item), "content_index": 0, "part": said.text("")}
        added = self._added(item)
        self._output.append(item)
        return [*closed, added, {"type": "response.content_part.added", **part}]

    def _close(self) -> list[Event]:
        """The end of an item that is open."""
        said = self._open
        if said is None:
            return []
        self._open = None
        text = "".join(self._text)
        item = self._output[-1] = {**self._output[-1], "status": "completed", "content": [said.text(text)]}
        place = {**self._place(item, behind=1), "content_index": 0}
        return [
            {"type": f"response.{said.part}.done", **place, "text": text, **said.more},
            {"type": "response.content_part.done", **place, "part": said.text(text)},
            self._done(item),
        ]

    def _called(self, call: dict[str, Any]) -> list[Event]:
        events = self._close()
        item = {"id": self._id("fc", self._head), **self._names.item(call)}
        kind, name = "function_call_arguments", "arguments"
        if item["type"] == "custom_tool_call":
            kind = "custom_tool_call_input"
            name = "input"
        place = self._place(item)
        events.append(self._added({**item, name: "", "status": "in_progress"}))
        events.append({"type": f"response.{kind}.delta", **place, "delta": item[name]})
        events.append({"type": f"response.{kind}.done", **place, name: item[name], "name": item["name"]})
        self._output.append(item)
        return [*events, self._done(item)]

    def _added(self, item: Item) -> Event:
        return {"type": "response.output_item.added", "output_index": len(self._output), "item": item}

    def _done(self, item: Item) -> Event:
        return {"type": "response.output_item.done", "output_index": len(self._output) - 1, "item": item}

    def _place(self, item: Item, *, behind: int = 0) -> dict[str, Any]:
        return {"item_id": item["id"], "output_index": len(self._output) - behind}

    def _id(self, kind: str, body: dict[str, Any]) -> str:
        return f"{kind}_{body['id'].removeprefix('gen_')}_{len(self._output)}"

    def _response(self) -> dict[str, Any]:
        whole = self._finish != "length"
        state = _state("completed") if whole else _state("incomplete", "max_output_tokens")
        return {**self._head, **state, "output": self._output, "usage": _usage(self._usage)}

    def _told(self, events: list[Event]) -> bytes:
        numbered = [{**event, "sequence_number": self._sent + n} for n, event in enumerate(events)]
        self._sent += len(events)
        return b"".join(map(named, numbered))


def _head(body: dict[str, Any]) -> dict[str, Any]:
    """What of a response is known when it begins, whatever was asked."""
    return {
        "id": body["id"],
        "object": "response",
        "created_at": body["created"],
        "model": body["model"],
        "metadata": {},
        "store": False,
        "tools": [],
    }


def _state(status: str, why: str = "") -> dict[str, Any]:
    return {"status": status, "error": None, "incomplete_details": {"reason": why} if why else None}


def _usage(usage: dict[str, Any] | None) -> dict[str, Any]:
    told = usage or {}
    return {
        "input_tokens": told.get("prompt_tokens", 0),
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": told.get("completion_tokens", 0),
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": told.get("total_tokens", 0),
    }


def _free(arguments: str) -> str:
    """The text in the arguments of a call of a tool that takes one; as they stand where there is none."""
    try:
        value = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return arguments
    text = value.get("input") if isinstance(value, dict) else None
    return text if isinstance(text, str) else arguments
