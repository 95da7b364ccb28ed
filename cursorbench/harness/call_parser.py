"""Tool calls in plain text: an answer's blocks of calls (`call_blocks.py`), and the text around them.

For the gateway (which parses what the engine wrote, so that exact tokens and streaming agree) and
for the harness. Not a repairer: what does not parse is reported as unparsable and stays text, so
that a broken call costs the model what it costs the user. Pure functions; nothing here raises on
any model output.

The forms are those that vLLM's tool parsers read, unclosed last call included; the differences are that one
broken call does not void the others, and that a value may hold the tag which ends the block.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from cursorbench.errors import UsageError
from cursorbench.harness.call_blocks import ANY, CLOSE, OPEN, Block, Found, Schemas, find
from cursorbench.harness.tool_schema import SET_STEPS, Allowance, BadSchemaError, ToolSchema

CallError = Literal["", "unparsable", "unknown_tool", "schema"]
Tool = Mapping[str, Any]  # as in the OpenAI API: {"type": "function", "function": {...}}

_NONE: Schemas = {}


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


class Calls(NamedTuple):
    """The calls of one block, which together are all of it, or one that is unparsable where it is broken.

    `final`: no further text can change how they read.
    """

    calls: list[RawCall]
    final: bool


def opening(text: str, blocks: Sequence[Block] = ANY) -> tuple[int, Block] | None:
    """Where the first block opens, and its kind; None where there is none."""
    begun = [(start, block) for block in blocks if (start := text.find(block.open)) >= 0]
    return min(begun, key=lambda one: one[0], default=None)


def block_at(text: str, start: int, block: Block, parameters: Schemas = _NONE) -> Calls:
    """The calls of the block that opens at `start`."""
    found = find(block, text, start, parameters)
    if found.state == "whole" or (found.state == "open" and found.calls and found.end == len(text)):
        return Calls(_raw(found, start), found.state == "whole")
    body = start + len(block.open)
    end = _unparsable_end(text, body, block)
    ended = text.startswith(block.open, end) or text.endswith(block.close, body, end)
    return Calls([RawCall("", text[start:end], "unparsable", start, end)], found.state == "broken" and ended)


def _raw(found: Found, start: int) -> list[RawCall]:
    ends = [call.end for call in found.calls[:-1]] + [found.end]
    return [
        RawCall(call.name, call.arguments, "", begin, end)
        for call, begin, end in zip(found.calls, [start, *ends], ends, strict=False)
    ]


def _unparsable_end(text: str, start: int, block: Block) -> int:
    """Where a broken block ends: after the next closing tag, before the next opening one, or at the end."""
    close = text.find(block.close, start)
    opening = text.find(block.open, start)
    if close >= 0 and (opening < 0 or close < opening):
        return close + len(block.close)
    return opening if opening >= 0 else len(text)


def parse(text: str, parameters: Schemas = _NONE, blocks: Sequence[Block] = ANY) -> Parsed:
    """Take an answer apart into content and calls. Never raises.

    `parameters`, by the tools' names, say of what types values in tags are; others are text. `blocks`: those
    that the model writes.
    """
    calls: list[RawCall] = []
    content: list[str] = []
    at = 0
    opens = [text.find(block.open) for block in blocks]  # the next of each kind; -1: there is none any more
    while any(start >= 0 for start in opens):
        start, number = min((start, number) for number, start in enumerate(opens) if start >= 0)
        content.append(text[at:start])
        found = block_at(text, start, blocks[number], parameters).calls
        at = found[-1].end
        if found[0].error:
            content.append(text[start:at])
        calls += found
        pairs = zip(opens, blocks, strict=True)
        opens = [text.find(block.open, at) if 0 <= place < at else place for place, block in pairs]
    return Parsed("".join([*content, text[at:]]), tuple(calls))


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
