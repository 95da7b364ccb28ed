"""Anthropic's Messages API: the answer, whole and streamed, and its errors."""

from __future__ import annotations

from typing import Any

import orjson

from stages.gateway.arguments import object_in
from stages.gateway.dialects.form import named
from stages.gateway.errors import ApiError

_STOPS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
}
_DETAILS = {"thread": {"error_code": "thread_unsupported_request"}}  # tool runners go on without one then
_TOO_LONG = "prompt is too long: "  # by these words clients know that they have to sum up


class MessagesForm:
    """One answer."""

    tells_stop = True
    id_header = b"request-id"  # Claude Code tells it in its log and telemetry

    def __init__(self) -> None:
        self._blocks = 0  # begun
        self._open = ""  # the type of the last one, while it may go on
        self._begun = False
        self._signature = ""  # of the thoughts
        self._stop: dict[str, Any] = {}
        self._usage = _usage(None)

    def whole(self, body: dict[str, Any]) -> dict[str, Any]:
        """See `Form`."""
        choice = body["choices"][0]
        message = choice["message"]
        content: list[dict[str, Any]] = []
        if message.get("reasoning_content"):
            content.append({**_thinking(body), "thinking": message["reasoning_content"]})
        if message["content"]:
            content.append({"type": "text", "text": message["content"]})
        content += [
            {**_call(call), "input": orjson.Fragment(_object(call["function"]["arguments"]))}
            for call in message.get("tool_calls") or ()
        ]
        return {**_message(body), "content": content, **_stop(choice), "usage": _usage(body.get("usage"))}

    def piece(self, chunk: dict[str, Any]) -> bytes:
        """See `Form`."""
        events: list[dict[str, Any]] = []
        if not self._begun:
            self._begun = True
            usage = {"input_tokens": len(chunk.get("prompt_token_ids") or ()), "output_tokens": 0}
            stop = {"stop_reason": None, "stop_sequence": None}
            message = {**_message(chunk), "content": [], **stop, "usage": usage}
            events.append({"type": "message_start", "message": message})
        for choice in chunk["choices"]:
            delta = choice["delta"]
            if delta.get("reasoning_content"):
                events += self._thought(chunk, delta["reasoning_content"])
            if delta.get("content"):
                events += self._text(delta["content"])
            for call in delta.get("tool_calls") or ():
                events += self._tool(call)
            if choice["finish_reason"]:
                self._stop = _stop(choice)
        if chunk.get("usage"):
            self._usage = _usage(chunk["usage"])
        return b"".join(map(named, events))

    def end(self) -> bytes:
        """See `Form`."""
        ended = {"type": "message_delta", "delta": self._stop, "usage": self._usage}
        return b"".join(map(named, [*self._close(), ended, {"type": "message_stop"}]))

    def broken(self, error: ApiError, request_id: str) -> bytes:
        """See `Form`."""
        return named(error_body(error, request_id))

    def _thought(self, chunk: dict[str, Any], text: str) -> list[dict[str, Any]]:
        self._signature = _thinking(chunk)["signature"]
        begun = {**_thinking(chunk), "signature": ""}
        events = [] if self._open == "thinking" else self._start(begun)
        return [*events, self._delta({"type": "thinking_delta", "thinking": text})]

    def _text(self, text: str) -> list[dict[str, Any]]:
        events = [] if self._open == "text" else self._start({"type": "text", "text": ""})
        return [*events, self._delta({"type": "text_delta", "text": text})]

    def _tool(self, call: dict[str, Any]) -> list[dict[str, Any]]:
        delta = {"type": "input_json_delta", "partial_json": _object(call["function"]["arguments"])}
        return [*self._start({**_call(call), "input": {}}), self._delta(delta), *self._close()]

    def _start(self, block: dict[str, Any]) -> list[dict[str, Any]]:
        closed = self._close()
        self._blocks, self._open = self._blocks + 1, block["type"]
        return [*closed, {"type": "content_block_start", "index": self._blocks - 1, "content_block": block}]

    def _delta(self, delta: dict[str, Any]) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": self._blocks - 1, "delta": delta}

    def _close(self) -> list[dict[str, Any]]:
        if not self._open:
            return []
        signed = self._open == "thinking"
        signature = [self._delta({"type": "signature_delta", "signature": self._signature})] if signed else []
        self._open = ""
        return [*signature, {"type": "content_block_stop", "index": self._blocks - 1}]


def error_body(error: ApiError, request_id: str) -> dict[str, Any]:
    """An error as this API tells it, with the `code` and `param` that all of ours have."""
    long = error.code == "context_length_exceeded"
    told: dict[str, Any] = {
        "type": _TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "api_error"),
        "message": f"{_TOO_LONG}{error.message}" if long else error.message,
        "code": error.code,
        "param": error.param,
    }
    if error.param in _DETAILS:
        told["details"] = _DETAILS[error.param]
    return {"type": "error", "error": told, "request_id": request_id}


def _message(body: dict[str, Any]) -> dict[str, Any]:
    return {"id": body["id"], "type": "message", "role": "assistant", "model": body["model"]}


def _thinking(body: dict[str, Any]) -> dict[str, Any]:
    """A block of thoughts. Signed, clients send it back; by which answer's name, it is told to the model."""
    return {"type": "thinking", "thinking": "", "signature": body["id"]}


def _stop(choice: dict[str, Any]) -> dict[str, Any]:
    """Why it ended. A stop string only where there is one: engines tell of tokens by number, too."""
    reason, stopped = choice["finish_reason"], choice.get("stop_reason")
    if reason == "stop" and isinstance(stopped, str):
        return {"stop_reason": "stop_sequence", "stop_sequence": stopped}
    return {"stop_reason": _STOPS.get(reason, "end_turn"), "stop_sequence": None}


def _usage(usage: dict[str, Any] | None) -> dict[str, int]:
    told = usage or {}
    return {"input_tokens": told.get("prompt_tokens", 0), "output_tokens": told.get("completion_tokens", 0)}


def _call(call: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_use", "id": call["id"], "name": call["function"]["name"]}


def _object(arguments: str) -> str:
    """A call's arguments, JSON as the model wrote it. This API can tell objects alone: others are told as one
    without anything in it."""
    return "{}" if object_in(arguments) is None else arguments
