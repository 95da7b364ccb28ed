"""Arguments of calls: what of them survives a client's round trip, in whichever API it speaks. Pure."""

from __future__ import annotations

from typing import Any

import orjson

from stages.gateway.http import is_deep

EXACT = 2**53  # doubles from here on do not tell whole numbers apart
_LONG = 1 << 16  # characters of a call's arguments; of longer ones the numbers are compared as they stand


def object_in(arguments: str) -> dict[str, Any] | None:
    """The object that a call's arguments are; None for what is none, or too deep to come back as a part of a
    body's JSON, as in Anthropic's API."""
    try:
        value = orjson.loads(arguments)
    except orjson.JSONDecodeError:  # also a number that is infinite
        return None
    body = {"messages": [{"content": [{"input": value}]}]}
    return value if isinstance(value, dict) and not is_deep(body) else None


def compared(arguments: str) -> Any:
    """What tells arguments from others, in whichever API they come back.

    Anthropic's, which tells objects alone, has all that are none as {}. OpenAI's Responses has a tool that
    takes one text, `input`: it comes back as that alone, where there is none with all that the model wrote.
    """
    value = object_in(arguments)
    if value is not None and isinstance(text := value.get("input"), str):
        try:
            orjson.loads(text)
        except orjson.JSONDecodeError:
            return text
        arguments, value = text, object_in(text)
    if value is None:
        return {}
    return _as_written_anywhere(value) if len(arguments) <= _LONG else value


def _as_written_anywhere(value: Any) -> Any:
    """JSON whose numbers are as JavaScript writes them again: doubles, and 30.0 as 30."""
    if isinstance(value, dict):
        return {name: _as_written_anywhere(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_as_written_anywhere(one) for one in value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    number = float(value)
    return int(number) if number.is_integer() and abs(number) < EXACT else number
