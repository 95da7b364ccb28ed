"""Tool definitions as request logs and telemetry carry them, and calls checked against them.

Understood are the function tools of OpenAI (chat, Responses, the older `functions`), of Anthropic
(`input_schema`) and of OpenTelemetry GenAI (`gen_ai.tool.definitions`). Where a request has a tool whose
calls are not named by it (a server of tools, a name space), a name that is not listed says nothing.
Not for: what an agent said of a broken call (`invalid_calls.py`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import blake2b
from typing import Any, Literal

from cursorbench.errors import UsageError
from cursorbench.harness.call_parser import RawCall, ToolSet
from cursorbench.sessions.reading import json_value, list_of, table_of, text_of
from cursorbench.sessions.records import json_text

Checked = Literal["", "ok", "unknown_tool", "schema"]
_KEPT = 64  # sets of tools whose schemas stay compiled: a session sends the same ones each time
_LEFT_OUT: ContextVar[bool] = ContextVar("_LEFT_OUT", default=False)


@contextmanager
def left_out() -> Iterator[None]:
    """Within it logs are read without definitions: whose reader has no time for a stranger's schemas."""
    token = _LEFT_OUT.set(True)
    try:
        yield
    finally:
        _LEFT_OUT.reset(token)


class Definitions:
    """The tools of one request."""

    def __init__(self, entries: list[dict[str, Any]]) -> None:
        self._tools: dict[str, ToolSet | None] = {}  # None: named, without a schema that can be applied
        self._open = False
        for entry in entries:
            self._add(entry)

    def check(self, name: str, arguments: str, *, offered: bool) -> Checked:
        """Whether a call fits; "" where these definitions do not tell.

        Args:
            arguments: JSON text.
            offered: the call was made with these tools at hand. An older one may have had others.
        """
        if name not in self._tools:
            return "unknown_tool" if offered and not self._open else ""
        tools = self._tools[name]
        if tools is None:
            return "ok"
        return "schema" if tools.check(RawCall(name, arguments or "{}", "", 0, 0)) else "ok"

    def _add(self, entry: dict[str, Any]) -> None:
        inner = {**entry, **table_of(entry.get("function")), **table_of(entry.get("custom"))}
        kind, name = text_of(entry.get("type")), text_of(inner.get("name"))
        if not name or kind not in ("", "function", "custom"):
            self._open = True  # hosted tools and servers: what they are called by is not told here
            return
        schema = inner.get("parameters", inner.get("input_schema", inner.get("inputSchema")))
        self._tools[name] = None
        if kind != "custom" and isinstance(schema, dict):
            try:
                self._tools[name] = ToolSet([{"function": {"name": name, "parameters": schema}}])
            except UsageError:
                self._tools[name] = None  # a client's own slip says nothing of the model's calls


class KnownDefinitions:
    """Definitions by their content: most requests of a log repeat those of the one before."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, Definitions] = OrderedDict()

    def of(self, *values: object) -> Definitions | None:
        """The tools that these fields define, as values or as JSON text; None where they define none."""
        if _LEFT_OUT.get():
            return None
        entries: list[dict[str, Any]] = []
        for value in values:
            entries += [one for one in map(json_value, list_of(json_value(value))) if isinstance(one, dict)]
        if not entries:
            return None
        key = blake2b(json_text(entries).encode(errors="replace"), digest_size=16).digest()
        found = self._known.pop(key, None) or Definitions(entries)
        self._known[key] = found
        if len(self._known) > _KEPT:
            self._known.popitem(last=False)
        return found


def offered_in(message: dict[str, Any]) -> dict[str, Any]:
    """The definition that a message of the role tool is, as Langfuse tells LangChain's tools; else empty."""
    content = table_of(message.get("content"))
    return content if isinstance(content.get("function"), dict) or "input_schema" in content else {}
