"""GenAI spans as OTLP/JSON, as instrumentations of model clients send them."""

from __future__ import annotations

import json
from typing import Any


def attribute(key: str, value: Any) -> dict[str, Any]:
    kinds = {bool: "boolValue", int: "intValue", float: "doubleValue", str: "stringValue"}
    return {"key": key, "value": {kinds[type(value)]: str(value) if type(value) is int else value}}


def span(name: str, trace: str = "a" * 32, **attributes: Any) -> dict[str, Any]:
    told = {key.replace("__", "."): value for key, value in attributes.items()}
    return {
        "name": name,
        "traceId": trace,
        "spanId": "b" * 16,
        "startTimeUnixNano": "1795192653000000000",
        "endTimeUnixNano": "1795192654000000000",
        "attributes": [attribute(key, value) for key, value in told.items()],
    }


def chat(text: str, answer: str, response: str = "", trace: str = "a" * 32) -> dict[str, Any]:
    """A model call with its messages."""
    said = [{"role": "user", "parts": [{"type": "text", "content": text}]}]
    answered = [
        {"role": "assistant", "parts": [{"type": "text", "content": answer}], "finish_reason": "stop"}
    ]
    about = {"gen_ai__response__id": response} if response else {}
    return span(
        "chat m",
        trace,
        gen_ai__operation__name="chat",
        gen_ai__request__model="m",
        gen_ai__input__messages=json.dumps(said),
        gen_ai__output__messages=json.dumps(answered),
        **about,
    )


def tool(call: str, name: str, arguments: dict[str, Any], error: str = "") -> dict[str, Any]:
    """An execution of a tool."""
    return span(
        f"execute_tool {name}",
        gen_ai__operation__name="execute_tool",
        gen_ai__tool__name=name,
        gen_ai__tool__call__id=call,
        gen_ai__tool__call__arguments=json.dumps(arguments),
        gen_ai__tool__call__result="done",
        **({"error__type": error} if error else {}),
    )


def traces(*spans: Any, **resource: Any) -> dict[str, Any]:
    """An export."""
    attributes = [attribute(key.replace("__", "."), value) for key, value in resource.items()]
    return {
        "resourceSpans": [
            {"resource": {"attributes": attributes}, "scopeSpans": [{"scope": {}, "spans": list(spans)}]}
        ]
    }


def logs(*records: dict[str, Any]) -> dict[str, Any]:
    """An export of log records."""
    return {"resourceLogs": [{"resource": {}, "scopeLogs": [{"logRecords": list(records)}]}]}


def claude(name: str, n: int, **attributes: Any) -> dict[str, Any]:
    """One of Claude Code's events."""
    told = {"event.name": name, "session.id": "11111111-2222-4333-8444-555555555555", "event.sequence": n}
    told |= {"event.timestamp": f"2026-11-20T10:00:{n:02d}.000Z", **attributes}
    return {
        "timeUnixNano": str(1795168800000000000 + n * 10**9),
        "body": {"stringValue": f"claude_code.{name}"},
        "attributes": [attribute(key, value) for key, value in told.items()],
    }
