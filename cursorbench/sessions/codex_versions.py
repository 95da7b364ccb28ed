"""What versions of Codex write differently, in one form: lines, and completed items as events.

2025's first versions wrote payloads without an envelope. 0.148 and later write `item_completed` in threads
whose `history_mode` is `paginated`, which all new ones are since 0.153: no `user_message`, no
`patch_apply_end`. The names are those of `items.rs` and `protocol.rs` in openai/codex. Not for: what the
events mean (`codex.py`, `codex_calls.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cursorbench.sessions.codex_calls import KINDS
from cursorbench.sessions.codex_told import says_no
from cursorbench.sessions.reading import list_of, table_of, text_of

_BARE_ITEMS = KINDS | {"message", "reasoning"}
_QUIET = """
    CollabAgentToolCall ContextCompaction EnteredReviewMode ExitedReviewMode Extension FunctionCallOutput
    HookPrompt ImageGeneration ImageView Plan Reasoning Sleep SubAgentActivity WebSearch
"""
_PASSED_OVER = frozenset(_QUIET.split())  # nothing in them that is no response item of its own


def split(value: dict[str, Any]) -> tuple[str, object]:
    """A line's type and payload; lines of the first versions are told by what they have."""
    kind, payload = value.get("type"), value.get("payload")
    if "payload" not in value and isinstance(kind, str) and kind in _BARE_ITEMS:
        return "response_item", value
    if kind is None and "payload" not in value and "id" in value and "timestamp" in value:
        return "session_meta", value
    if kind is None and "record_type" in value:
        return "record_type", None
    return text_of(kind), payload


def ordinal(value: object, untold: int = 1 << 63) -> int:
    """A line's number in its thread, which newer versions tell; `untold` where there is none."""
    return value if isinstance(value, int) and 0 <= value < 1 << 63 else untold


def event_of(item: dict[str, Any]) -> dict[str, Any] | None:
    """The event of a completed item, {} for one that tells nothing; None for one of no known type."""
    kind = text_of(item.get("type"))
    if kind in _PASSED_OVER:
        return {}
    return {"id": text_of(item.get("id")), **_EVENTS[kind](item)} if kind in _EVENTS else None


def _said(event: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def told(item: dict[str, Any]) -> dict[str, Any]:
        texts = [text_of(table_of(part).get("text")) for part in list_of(item.get("content"))]
        return {"type": event, "message": "".join(texts)}

    return told


def _changed(item: dict[str, Any]) -> dict[str, Any]:
    told = {name: item.get(name) for name in ("changes", "status", "stderr")}
    told["success"] = item.get("status") == "completed"
    return {"type": "patch_apply_end", "call_id": item.get("id"), **told}


def _ran(item: dict[str, Any]) -> dict[str, Any]:
    """A command, or a call of an MCP server or of a tool of the client's."""
    status = "failed" if item.get("success") is False else item.get("status")
    if says_no(text_of(table_of(item.get("error")).get("message"))):
        status = "declined"
    told = {name: item.get(name) for name in ("exit_code", "stderr", "aggregated_output")}
    told |= {"status": status, "result": {"Ok": item.get("result")}}
    return {"type": "exec_command_end", "call_id": item.get("id"), **told}


_EVENTS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "UserMessage": _said("user_message"),
    "AgentMessage": _said("agent_message"),
    "FileChange": _changed,
    "CommandExecution": _ran,
    "McpToolCall": _ran,
    "DynamicToolCall": _ran,
}
