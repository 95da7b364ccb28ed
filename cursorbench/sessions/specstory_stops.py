"""Where a person stopped Cursor: SpecStory writes its mark, "Cancelled", in the place of the agent's words.

It stands alone at the end of what the agent had said, for a call that was under way; newer transcripts have
the call behind it. Not for: what other agents write where they were stopped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec.structs import replace

from cursorbench.sessions.items import (
    AgentTurn,
    Edit,
    Interrupt,
    Read,
    SessionStart,
    ToolEnd,
    ToolUse,
    UserTurn,
)

_MARK = re.compile(r"(?:\A|\n---[ \t]*\n\s*)Cancelled\Z")


def told(items: Iterator[Read]) -> Iterator[Read]:
    """The items of a transcript, the mark told as what it is.

    With a person's message behind it, or nothing more, it is an `Interrupt`; a call behind it was
    interrupted, and its edits stay proposed. Sessions of other agents than Cursor are left as they are; the
    oldest transcripts, which name no agent, are of Cursor.
    """
    cursors, stop, call = False, None, ""
    for item in items:
        if isinstance(item, SessionStart) and not item.parent:
            cursors = item.agent == "" or item.agent.lower().startswith("cursor")
        if stop is not None and isinstance(item, UserTurn):
            yield stop
        if isinstance(item, ToolUse):
            call = item.id if stop is not None else ""
        stop = None
        if cursors and isinstance(item, AgentTurn) and _MARK.search(item.text):
            stop = Interrupt(session=item.session, at=item.at, place=item.place, during="tool")
            rest = replace(item, text=_MARK.sub("", item.text).rstrip())
            if rest.text or rest.thinking:
                yield rest
        elif call and isinstance(item, ToolEnd) and item.id == call:
            yield replace(item, outcome="interrupted", reason="")
        elif call and isinstance(item, Edit) and item.id == call:
            yield replace(item, status="proposed")
        else:
            yield item
    if stop is not None:
        yield stop
