"""Where a person stopped Cursor, or Claude Code's answer. For `specstory`.

SpecStory writes Cursor's mark, "Cancelled", in the place of the agent's words: alone at the end of what the
agent had said, for a call that was under way; newer transcripts have the call behind it. Claude Code keeps
what it had of an answer when it was stopped under the name that it speaks under itself. Not for: what other
agents write where they were stopped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from cursorbench.sessions import spoken
from cursorbench.sessions.claude_code_said import NO_MODEL, NOTHING
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

_ERROR = "API Error"
_SOON = 1000  # ms between an answer that was stopped and the mark of the stop: times are of whole seconds
_MARK = re.compile(r"(?:\A|\n---[ \t]*\n\s*)Cancelled\Z")


def told(items: Iterator[Read]) -> Iterator[Read]:
    """The items of a transcript, the mark told as what it is.

    With a person's message behind it, or nothing more, it is an `Interrupt`; a call behind it was
    interrupted, and its edits stay proposed. Sessions of other agents than Cursor are left as they are; the
    oldest transcripts, which name no agent, are of Cursor.
    """
    cursors, stop, call = False, None, ""
    for item in _whose(items):
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


def _whose(items: Iterable[Read]) -> Iterator[Read]:
    """The items with Claude Code's own words as nobody's, and as an answer what a stop follows at once."""
    held: AgentTurn | None = None
    for item in items:
        if held is not None:
            yield from [replace(held, model="")] if _stops(item, held) else _clients(held)
        held = item if isinstance(item, AgentTurn) and item.model == NO_MODEL else None
        if held is None:
            yield item
    if held is not None:
        yield from _clients(held)


def _stops(item: Read, answer: AgentTurn) -> bool:
    if not isinstance(item, Interrupt) or item.at is None or answer.at is None:
        return False
    own = answer.text == NOTHING or answer.text.startswith(_ERROR)
    return not own and item.session == answer.session and 0 <= item.at - answer.at <= _SOON


def _clients(told: AgentTurn) -> Iterator[Read]:
    own = {name: getattr(told, name) for name in ("session", "id", "at", "place")}
    yield from spoken.turns(told.text, "meta", **own)
