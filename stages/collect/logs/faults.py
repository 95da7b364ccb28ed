"""Whether the calls in a log were valid: what its items say of that, put to the calls of the open turn.

Not for: the agents' words and the check against definitions (`cursorbench/sessions`).
"""

from __future__ import annotations

import msgspec

from cursorbench.sessions import items as said
from cursorbench.sessions.invalid_calls import fault_of, tells
from stages.collect.logs.state import Session
from stages.records import CallError, ToolCall


def call_of(session: Session, item: said.ToolUse) -> ToolCall:
    """A call as it is recorded, in the clear: without what is the model's text.

    So is the name of a tool that does not exist, or may not: of a call that was none.
    """
    fault = fault_of_use(session, item)
    return ToolCall(item.id, "" if fault in ("unknown_tool", "unparsable") else item.name, "", fault)


def fault_of_use(session: Session, item: said.ToolUse) -> CallError:
    """What is wrong with a call as far as its own log tells when it is made."""
    if item.invalid:
        return "unparsable"
    if item.checked:
        return "" if item.checked == "ok" else item.checked
    return "" if tells(session.kind, session.agent_name) else "untold"


def fault_of_end(session: Session, item: said.ToolEnd, tool: str) -> str:
    """Notes at its call what a call's end says was wrong with the call itself; returns what to count, or "".

    Nothing can be noted at a call whose generation is complete already: that is counted by itself.
    """
    fault = fault_of(session.kind, session.agent_name, tool, item.outcome, item.text)
    if not fault:
        return ""
    turn = session.open.turn if session.open else None
    for n, call in enumerate(turn.calls if turn else ()):
        if item.id and call.id == item.id:
            if turn is None or call.error not in ("", "untold"):
                return ""
            name = "" if fault == "unknown_tool" else call.name
            turn.calls[n] = msgspec.structs.replace(call, error=fault, name=name)
            return f"invalid_calls:{fault}"
    return "invalid_calls_told_late"
