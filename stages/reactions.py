"""From what a log tells of an answer to the event it is: for logs on disk and for what is received.

Pure. Not for: feedback (`verdicts.py`), which generation it is about (`turns.py`, `gateway/received.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cursorbench.sessions import items as said
from stages.records import BY_CALL, EventType

_ENDS: dict[str, EventType] = {
    "applied": "edit_applied",
    "rejected": "edit_rejected",
    "undone": "edit_reverted",
}


_TOLD = ("edit_applied", "edit_rejected")


def of_edit(item: said.Edit) -> tuple[EventType, dict[str, Any]] | None:
    """The event of an edit that was decided; None for a proposal. Texts are those of the part replaced."""
    if item.status == "proposed":
        return None
    if item.status == "undone":
        return "edit_reverted", {"path": item.path}
    texts = {"before": item.before, "after": item.after, "diff": item.diff}
    data: dict[str, Any] = {"path": item.path, **{k: v for k, v in texts.items() if v is not None}}
    if "before" in data or "after" in data:
        data = {"before": "", "after": "", **data, "part": True}
    return _ENDS[item.status], data


def of_tool(item: said.ToolEnd, name: str) -> tuple[EventType, dict[str, Any]]:
    """The event of a tool call that ended. `name` is the tool's, which the item does not tell."""
    data = {"name": name, "ok": item.outcome == "ok", "tool_call_id": item.id, "outcome": item.outcome}
    return "tool_result", data | ({"reason": item.reason} if item.reason else {})


def told_again(events: Sequence[tuple[str, Mapping[str, Any]]]) -> set[int]:
    """Which of an episode's events, types and data, are edits read off calls that its client tells as well.

    A client that tells its edits tells all of them: those of its calls are the same ones.
    """
    by_call = {n: BY_CALL in data for n, (type, data) in enumerate(events) if type in _TOLD}
    return {n for n, read in by_call.items() if read} if not all(by_call.values()) else set()
