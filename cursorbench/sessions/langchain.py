"""Messages and answers of LangChain in OpenAI's terms, as LangSmith has them. For `exports` and `otel`.

Its objects are written with all their arguments (`lc`, `kwargs`), a list of messages for each prompt.
Messages and answers of OpenAI's and Anthropic's APIs stay as they are. Not for: what its callbacks are told
(`otel_calls.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cursorbench.sessions.reading import list_of, table_of
from cursorbench.sessions.records import first_text

_ROLES = {"human": "user", "ai": "assistant", "AIMessageChunk": "assistant", "HumanMessageChunk": "user"}
_FIELDS = ("role", "content", "tool_calls", "tool_call_id", "name")


def answer(outputs: dict[str, Any]) -> dict[str, Any]:
    """The outputs of a run as an answer: LangChain's first generation, a message, or as the API gave it."""
    first = table_of(next(flat(outputs.get("generations")), None))
    if not first:
        inner = outputs.get("message") or next(reversed(list_of(outputs.get("messages"))), None)
        return {**message(inner), "role": "assistant"} if isinstance(inner, dict) else outputs
    said = message(first["message"]) if isinstance(first.get("message"), dict) else {}
    said = said or {"content": first.get("text")}
    told = table_of(table_of(table_of(first.get("message")).get("kwargs")).get("response_metadata"))
    made = table_of(outputs.get("llm_output"))
    model = first_text(made, "model_name", "model") or first_text(told, "model_name", "model")
    return {**said, "role": "assistant", "model": model, "id": first_text(made, "id")}


def flat(value: object) -> Iterator[Any]:
    """The members of a list of lists, as LangChain has one for each prompt; those of a plain one too."""
    for one in list_of(value):
        if isinstance(one, list):
            yield from one
        else:
            yield one


def message(value: object) -> dict[str, Any]:
    """A message of LangChain, also as it writes its objects, in OpenAI's terms; others as they are."""
    told = table_of(value)
    kwargs = told.get("kwargs") if told.get("lc") else told.get("data")
    inner = table_of(kwargs) or told
    kind = first_text(inner, "type") or first_text(told, "type")
    if "role" in inner or not kind:
        return inner
    found = {name: inner[name] for name in _FIELDS if name in inner}
    found["role"] = _ROLES.get(kind, kind)
    calls = [*list_of(inner.get("tool_calls")), *list_of(inner.get("invalid_tool_calls"))]
    if any(table_of(part).get("type") == "tool_use" for part in list_of(inner.get("content"))):
        calls = []  # Anthropic's blocks have them
    found["tool_calls"] = calls or table_of(inner.get("additional_kwargs")).get("tool_calls")
    if kind == "tool" and inner.get("status") == "error":
        one, given = inner.get("tool_call_id"), inner.get("content")
        result = {"type": "tool_result", "tool_use_id": one, "content": given, "is_error": True}
        found["content"] = [result]
    return found
