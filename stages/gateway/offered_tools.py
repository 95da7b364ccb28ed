"""The tools of a request, compiled, and which of them the answer has to call.

Not for: the answer's calls (`tools.py`), the grammar that forces one (`cursorbench.harness.forced_calls`).
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import msgspec
import orjson

from cursorbench.errors import UsageError
from cursorbench.harness.call_parser import ToolSet
from cursorbench.harness.forced_calls import ForcedCalls, schema_of_text, structural_tag
from stages.gateway.errors import invalid

Compile = Callable[[str, bytes], ToolSet]
_Mode = Literal["auto", "required", "one"]

_TOOLS_BYTES = 16 << 20  # JSON of the tools whose schemas are kept compiled
_TAG_CHARACTERS = 1 << 19  # of a grammar, each tool twice; an engine makes one at a time, in up to a minute
_CHOICES = '"auto", "none" or "required", or name a tool in the way of this API'


class Offered(NamedTuple):
    """What a request offers.

    Attributes:
        compiled: the tools; None without any.
        digest: of their canonical JSON; "" without any.
        total: how many they are.
        callable: whether calls are to be found in the answer.
        forced: what the answer has to call, or else be the `text`; None where no call is bound.
        text: the schema of text that has to be JSON; None where it need not be, or there may be none.
        tag: the engine's grammar for both, "" without any.
    """

    compiled: ToolSet | None = None
    digest: str = ""
    total: int = 0
    callable: bool = False
    forced: ForcedCalls | None = None
    text: dict[str, Any] | None = None
    tag: str = ""


def offered(given: Mapping[str, Any], compiled: Compile | None = None) -> Offered:
    """The tools of a chat request, and its choice among them. Raises ApiError 400.

    `compiled` gives tools by digest and JSON, and may raise of its own; None compiles what is new, which may
    take seconds.
    """
    tools, digest, count = _tools(given, compiled or _COMPILED.of)
    choice = given.get("tool_choice", "auto")
    known = tools.names if tools else ()
    forced = None if choice in ("auto", "none") else _forced(given, choice, known)
    bound = forced is not None or "structured_outputs" in given
    text = None if bound else schema_of_text(given.get("response_format"))
    may_call = bool(known) and choice != "none"
    if may_call and text is not None:  # the format alone would let no call through
        forced = ForcedCalls(known, given.get("parallel_tool_calls") is not False)
    tag = "" if forced is None and text is None else structural_tag(forced, _schemas(given), text)
    if len(tag) > _TAG_CHARACTERS:
        raise invalid(
            "the schemas are too long for a grammar", param="tools" if forced else "response_format"
        )
    return Offered(tools, digest, count, may_call, forced, text, tag)


def _schemas(given: Mapping[str, Any]) -> dict[str, object]:
    """Those of the tools, by name. The grammar keeps to the order of properties, as the prompt shows them."""
    functions = [tool["function"] for tool in given.get("tools", ())]
    return {str(one["name"]): one["parameters"] for one in functions if one.get("parameters")}


def _tools(given: Mapping[str, Any], compiled: Compile) -> tuple[ToolSet | None, str, int]:
    tools = given.get("tools")
    if not tools:
        return None, "", 0
    canonical = orjson.dumps(tools, option=orjson.OPT_SORT_KEYS)
    digest = hashlib.sha256(canonical).hexdigest()
    try:
        return compiled(digest, canonical), f"sha256:{digest}", len(tools)
    except UsageError as error:
        raise invalid(error.message, param="tools") from None


class _Named(msgspec.Struct):
    name: str


class _Tool(msgspec.Struct, tag_field="type", tag="function"):
    function: _Named


class _Allowed(msgspec.Struct):
    mode: Literal["auto", "required"]
    tools: list[_Tool]


class _AllowedTools(msgspec.Struct, tag_field="type", tag="allowed_tools"):
    allowed_tools: _Allowed


def _forced(given: Mapping[str, Any], choice: Any, known: tuple[str, ...]) -> ForcedCalls | None:
    """What a choice that is neither "auto" nor "none" forces. Raises ApiError 400."""
    mode, names = _chosen(choice, known)
    if not names or not set(names) <= set(known):
        raise invalid("tool_choice needs tools, and may name none but these", param="tool_choice")
    if mode == "auto":
        if set(names) != set(known):
            why = "with the mode auto every tool may be called: leave the others out of tools"
            raise invalid(why, param="tool_choice", code="unsupported_parameter")
        return None
    if "structured_outputs" in given:
        why = "structured_outputs cannot hold for an answer that has to be a call"
        raise invalid(why, param="structured_outputs")
    return ForcedCalls(names, mode == "required" and given.get("parallel_tool_calls") is not False)


def _chosen(choice: Any, known: tuple[str, ...]) -> tuple[_Mode, tuple[str, ...]]:
    if choice == "required":
        return "required", known
    try:
        read = msgspec.convert(choice, _Tool | _AllowedTools)
    except msgspec.ValidationError:
        raise invalid(f"tool_choice must be {_CHOICES}", param="tool_choice") from None
    if isinstance(read, _Tool):
        return "one", (read.function.name,)
    names = [tool.function.name for tool in read.allowed_tools.tools]
    return read.allowed_tools.mode, tuple(dict.fromkeys(names))


class NewToolsError(Exception):
    """Tools that are not compiled yet."""


class _Compiled:
    """An agent sends the same tools with every request: their schemas are compiled once. For any thread.

    Bounded by what the sets take as JSON, of which they hold several times as much: clients say how long one
    is. The least recently used leave.
    """

    def __init__(self, most: int) -> None:
        self._most, self._held = most, 0
        self._known: OrderedDict[str, tuple[ToolSet, int]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, digest: str, canonical: bytes) -> ToolSet:
        """The tools in `canonical`, JSON of that digest. Raises UsageError."""
        try:
            return self.known(digest, canonical)
        except NewToolsError:
            tools, size = ToolSet(orjson.loads(canonical)), len(canonical)
        with self._lock:
            self._held += size - self._known.get(digest, (tools, 0))[1]
            self._known[digest] = tools, size
            while self._held > self._most:
                self._held -= self._known.popitem(last=False)[1][1]
        return tools

    def known(self, digest: str, _: bytes) -> ToolSet:
        """The tools of that digest, at once. Raises NewToolsError."""
        with self._lock:
            found = self._known.get(digest)
            if found is None:
                raise NewToolsError
            self._known.move_to_end(digest)
        return found[0]


_COMPILED = _Compiled(_TOOLS_BYTES)
known_tools = _COMPILED.known
