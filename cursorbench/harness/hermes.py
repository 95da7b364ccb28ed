"""Tool calls in plain text: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, the Hermes form, or
Qwen3-Coder's, which has tags in such a block (`function_tags.py`).

For the gateway (which parses what the engine wrote, so that exact tokens and streaming agree) and
for the harness. Not a repairer: what does not parse is reported as unparsable and stays text, so
that a broken call costs the model what it costs the user. Pure functions; nothing here raises on
any model output.

The forms are those that vLLM's tool parsers `hermes` and `qwen3_coder` read, unclosed last call included; the
differences are that one broken call does not void the others, and that a value may hold `</tool_call>`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from cursorbench.errors import UsageError
from cursorbench.harness import function_tags
from cursorbench.harness.tool_schema import SET_STEPS, Allowance, BadSchemaError, ToolSchema

OPEN = "<tool_call>"
CLOSE = "</tool_call>"

CallError = Literal["", "unparsable", "unknown_tool", "schema"]
Schemas = Mapping[str, object]
Tool = Mapping[str, Any]  # as in the OpenAI API: {"type": "function", "function": {...}}

_NONE: Schemas = {}
_DECODER = json.JSONDecoder()
_BLANK = re.compile(r"[ \t\r\n]*")
_CLOSING = re.compile(rf"[ \t\r\n]*{re.escape(CLOSE)}")


class _Call(msgspec.Struct):
    name: str
    arguments: msgspec.Raw


@dataclass(frozen=True)
class RawCall:
    """One call as the model wrote it.

    Attributes:
        name: the tool's name; "" when the block did not parse.
        arguments: JSON text of the arguments, exact or made of the tags' values; the whole block, tags
            included, when it did not parse.
        error: "unparsable" or ""; `check` tells the other errors.
        start: offset of the block's first character in the answer.
        end: offset after the block's last character.
    """

    name: str
    arguments: str
    error: CallError
    start: int
    end: int


@dataclass(frozen=True)
class Parsed:
    """An answer taken apart.

    Attributes:
        content: everything outside of well-formed calls, verbatim; unparsable blocks stay in it.
        calls: all blocks in order, unparsable ones included.
    """

    content: str
    calls: tuple[RawCall, ...]

    @property
    def valid(self) -> tuple[RawCall, ...]:
        """The calls that parsed (the tool may still be unknown, or the arguments wrong)."""
        return tuple(call for call in self.calls if not call.error)


def _decode(text: str, start: int, parameters: Schemas) -> tuple[str, str, int] | None:
    """Name and arguments of the call that begins at `start`, and where it ends; None if there is none."""
    begin = _BLANK.match(text, start).end()  # type: ignore[union-attr]  # matches the empty string
    if text.startswith(function_tags.OPENING, begin):
        found = function_tags.read(text, begin)
        if not isinstance(found, function_tags.Function):
            return None
        typed = function_tags.arguments(found.values, parameters.get(found.name))
        return found.name, typed, found.end
    if not text.startswith("{", begin):
        return None
    try:
        _, end = _DECODER.raw_decode(text, begin)
        call = msgspec.json.decode(text[begin:end], type=_Call)
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return None
    return call.name, bytes(call.arguments).decode(), end


def _unparsable_end(text: str, start: int) -> int:
    """Where a broken block ends: after the next closing tag, before the next opening one, or at the end."""
    close = text.find(CLOSE, start)
    opening = text.find(OPEN, start)
    if close >= 0 and (opening < 0 or close < opening):
        return close + len(CLOSE)
    return opening if opening >= 0 else len(text)


def _block(text: str, start: int, parameters: Schemas) -> RawCall:
    """The block that opens at `start`."""
    body = start + len(OPEN)
    decoded = _decode(text, body, parameters)
    if decoded is not None:
        name, arguments, end = decoded
        closing = _CLOSING.match(text, end)
        rest = _BLANK.match(text, end)
        at_end = rest is not None and rest.end() == len(text)
        if closing is not None or at_end:
            stop = closing.end() if closing is not None else len(text)
            return RawCall(name, arguments, "", start, stop)
    end = _unparsable_end(text, body)
    return RawCall("", text[start:end], "unparsable", start, end)


def parse(text: str, parameters: Schemas = _NONE) -> Parsed:
    """Take an answer apart into content and calls. Never raises.

    `parameters`, by the tools' names, say of what types values in tags are; others are text.
    """
    calls: list[RawCall] = []
    content: list[str] = []
    at = 0
    while (start := text.find(OPEN, at)) >= 0:
        content.append(text[at:start])
        call = _block(text, start, parameters)
        if call.error:
            content.append(text[call.start : call.end])
        calls.append(call)
        at = call.end
    content.append(text[at:])
    return Parsed("".join(content), tuple(calls))


def render(name: str, arguments: Mapping[str, Any] | str) -> str:
    """A call in the form `parse` reads; `arguments` as a mapping or as JSON text already."""
    raw = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return f'{OPEN}{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": {raw}}}{CLOSE}'


class ToolSet:
    """Tools with their schemas compiled once. `parameters`: the schemas as they were given, by name.

    Raises UsageError when a tool or its schema is malformed, or all of them take too long to compile.
    """

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._schemas: dict[str, ToolSchema] = {}
        self.parameters: dict[str, object] = {}
        allowance = Allowance(SET_STEPS)
        for index, tool in enumerate(tools):
            try:
                function = tool["function"]
                name = str(function["name"])
                parameters = self.parameters[name] = function.get("parameters") or {"type": "object"}
                self._schemas[name] = ToolSchema(parameters, allowance)
            except (KeyError, TypeError, AttributeError, BadSchemaError) as error:
                if index and allowance.left <= 0:
                    raise UsageError(
                        f"the schemas of {index + 1} tools take too long to compile",
                        hint="offer fewer tools, or tools with fewer properties",
                    ) from error
                raise UsageError(
                    f"tool {index} is not a function tool with a JSON schema that can be applied",
                    hint='{"type": "function", "function": {"name": ..., "parameters": {...}}}',
                ) from error

    @property
    def names(self) -> tuple[str, ...]:
        """The tools' names in the order given."""
        return tuple(self._schemas)

    def check(self, call: RawCall, allowance: Allowance | None = None) -> CallError:
        """What is wrong with a call: "" for nothing. A schema that cannot be applied fits nothing, nor does
        anything when the `allowance` of several calls is used up."""
        if call.error:
            return call.error
        schema = self._schemas.get(call.name)
        if schema is None:
            return "unknown_tool"
        return "" if schema.fits(call.arguments, allowance) else "schema"


def check(call: RawCall, tools: Sequence[Tool] | ToolSet) -> CallError:
    """What is wrong with a call: "" for nothing. Compile a `ToolSet` once when there are many to check."""
    return (tools if isinstance(tools, ToolSet) else ToolSet(tools)).check(call)
