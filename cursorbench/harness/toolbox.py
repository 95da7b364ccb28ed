"""A set of tools bound to a workplace: what agents may do there, and how a call is answered.

A tool is its definition (OpenAI's form, with a JSON schema) and a function from a workplace and decoded
arguments to a result. The sets are in `tools.py` (the small one, for small models) and `task_tools.py`.
Not here: what a call is (`call_parser.py`), when it is run (`loop.py`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from cursorbench.errors import SandboxError
from cursorbench.harness.budget import CHARS_PER_TOKEN
from cursorbench.harness.call_parser import CallError, RawCall, ToolSet
from cursorbench.harness.results import RefusedError, ToolResult, printable
from cursorbench.harness.workplace import Workplace

MAX_ARGUMENT_CHARS = 1 << 20  # of one call's JSON text

Arguments = Mapping[str, Any]
Handler = Callable[[Workplace, Arguments, float], ToolResult]  # the last one: seconds it may take


@dataclass(frozen=True)
class Tool:
    """One tool.

    Attributes:
        definition: {"type": "function", "function": {"name", "description", "parameters"}}.
        run: does the work; raises RefusedError for what cannot be done.
        edits: whether it changes files itself; such a call is run alone, in its place among the others.
    """

    definition: dict[str, Any]
    run: Handler
    edits: bool = False

    @property
    def name(self) -> str:
        """The function's name."""
        return str(self.definition["function"]["name"])


class Toolbox:
    """Tools in a workplace. Changes what is there and nothing else; keeps no state."""

    def __init__(self, workplace: Workplace, tools: Sequence[Tool]) -> None:
        self.workplace = workplace
        self.definitions: tuple[dict[str, Any], ...] = tuple(tool.definition for tool in tools)
        self._tools = {tool.name: tool for tool in tools}
        text = json.dumps(self.definitions)
        self.tokens = math.ceil(len(text) / CHARS_PER_TOKEN)  # of the definitions in a prompt, about
        self._checker = _compiled(text)

    def edits(self, name: str) -> bool:
        """Whether calls of this tool change files themselves."""
        tool = self._tools.get(name)
        return tool is not None and tool.edits

    def check(self, name: str, arguments: str) -> CallError:
        """What is wrong with a call before it is run: "" for nothing."""
        return self._checker.check(RawCall(name, arguments, "", 0, 0))

    def call(self, name: str, arguments: str, turn: int = 0, left_s: float = math.inf) -> ToolResult:
        """Run one call. Never raises for what a model wrote, nor for a sandbox that died.

        Args:
            arguments: the JSON text the model wrote.
            turn: the model call it came with, for the record of an edit.
            left_s: seconds the episode has left.
        """
        tool = self._tools.get(name)
        if tool is None:
            return ToolResult(printable(f"error: no tool {name[:40]}"), "unknown_tool")
        try:
            result = tool.run(self.workplace, decode(arguments), left_s)
        except RefusedError as refused:
            return ToolResult(printable(f"error: {refused.text}"), refused.error)
        except SandboxError as error:
            return ToolResult(f"error: {error.message}", "sandbox")
        edit = None if result.edit is None else replace(result.edit, turn=turn)
        return ToolResult(printable(result.text), result.error, edit)


@lru_cache(maxsize=64)
def _compiled(definitions: str) -> ToolSet:
    """Schemas are compiled once per set of tools, not once per episode."""
    return ToolSet(json.loads(definitions))


def decode(arguments: str) -> Arguments:
    """The arguments as a mapping. Raises RefusedError (arguments)."""
    if len(arguments) > MAX_ARGUMENT_CHARS:
        raise RefusedError("arguments", "arguments are too long")
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError) as error:
        raise RefusedError("arguments", "arguments are not JSON") from error
    if not isinstance(value, dict):
        raise RefusedError("arguments", "arguments are not an object")
    return value


def text(arguments: Arguments, name: str, default: str | None = None) -> str:
    """A text among the arguments. Raises RefusedError (arguments)."""
    value = arguments.get(name, default)
    if not isinstance(value, str):
        raise RefusedError("arguments", f"{name} is missing or not a text")
    return value


def number(arguments: Arguments, name: str, default: int, least: int, most: int) -> int:
    """A whole number among the arguments, brought into its range. Raises RefusedError (arguments)."""
    value = arguments.get(name, default)
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        value = int(value)  # JSON schema calls 3.0 an integer too
    if isinstance(value, bool) or not isinstance(value, int):
        raise RefusedError("arguments", f"{name} is not a whole number")
    return max(least, min(most, value))


def flag(arguments: Arguments, name: str) -> bool:
    """A boolean among the arguments, False when it is not there. Raises RefusedError (arguments)."""
    value = arguments.get(name, False)
    if not isinstance(value, bool):
        raise RefusedError("arguments", f"{name} is not true or false")
    return value


def define(
    name: str, description: str, properties: Mapping[str, Any], required: Sequence[str] | None = None
) -> dict[str, Any]:
    """A tool's definition; without `required` all properties are."""
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": dict(properties),
                "required": list(properties if required is None else required),
                "additionalProperties": False,
            },
        },
    }
