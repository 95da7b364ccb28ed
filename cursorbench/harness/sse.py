"""Chat completions as they come over HTTP: one JSON document, or a stream of events put together again.

For who passes answers on and has to count them (`relay.py`), other APIs' streams too (`apis.py`). Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from cursorbench.harness import completion
from cursorbench.harness.completion import Completion

_LINE_END = re.compile(r"\r\n|\n|\r")  # and no other: what a model wrote may hold U+2028 or U+0085


def read(content: bytes, headers: Mapping[str, str], seconds: float) -> Completion:
    """The completion in a body. Raises ValueError when there is none."""
    if is_stream(headers):
        return completion.read(assembled(content), headers, seconds)
    try:
        return completion.read(json.loads(content), headers, seconds)
    except RecursionError as error:
        raise ValueError("the answer is no chat completion") from error


def is_stream(headers: Mapping[str, str]) -> bool:
    """Whether an answer is a stream of events."""
    return headers.get("content-type", "").startswith("text/event-stream")


def data_of(text: str) -> Iterator[str]:
    """What the events of a stream tell, one after the other."""
    for line in _LINE_END.split(text):
        if line.startswith("data:") and (data := line.removeprefix("data:").strip()):
            yield data


def events(content: bytes) -> Iterator[dict[str, Any]]:
    """The events of a stream that are JSON objects, each with its type. Raises ValueError for no JSON."""
    for data in data_of(content.decode("utf-8", "replace")):
        try:
            found = None if data == "[DONE]" else json.loads(data)
        except RecursionError as error:
            raise ValueError("a piece of the stream is nested too deep") from error
        if isinstance(found, dict):
            yield found


def assembled(content: bytes) -> dict[str, Any]:
    """The chat completion whose pieces a stream brought. Raises ValueError for a stream that broke off."""
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    calls: dict[int, dict[str, Any]] = {}
    whole: dict[str, Any] = {"choices": [{"message": message, "finish_reason": None}]}
    ended = False
    for data in data_of(content.decode("utf-8", "replace")):
        if data == "[DONE]":
            ended = True
            break
        try:
            _take(json.loads(data), whole, message, calls)
        except (LookupError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError("a piece of the stream is no chat completion") from error
    if not ended:
        raise ValueError("the stream broke off")
    if calls:
        message["tool_calls"] = [calls[index] for index in sorted(calls)]
    return whole


def _take(
    piece: dict[str, Any],
    whole: dict[str, Any],
    message: dict[str, Any],
    calls: dict[int, dict[str, Any]],
) -> None:
    whole["id"] = piece.get("id") or whole.get("id")
    whole["usage"] = piece.get("usage") or whole.get("usage")
    for choice in piece.get("choices") or ():
        whole["choices"][0]["finish_reason"] = (
            choice.get("finish_reason") or whole["choices"][0]["finish_reason"]
        )
        delta = choice.get("delta") or {}
        message["content"] += delta.get("content") or ""
        if thought := delta.get("reasoning_content") or delta.get("reasoning"):
            message["reasoning_content"] = message.get("reasoning_content", "") + thought
        for part in delta.get("tool_calls") or ():
            call = calls.setdefault(
                int(part["index"]), {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
            )
            call["id"] = part.get("id") or call["id"]
            function = part.get("function") or {}
            call["function"]["name"] += function.get("name") or ""
            call["function"]["arguments"] += function.get("arguments") or ""
