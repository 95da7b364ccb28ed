"""Calls of Cursor IDE in SpecStory transcripts: how they ended, and which are shown twice.

Up to July 2026 SpecStory's command line wrote each of them once in full and, right behind that in the same
message, as an empty block of its name; where the call had failed, Cursor's message stood in the place of the
full block, as if the agent had said it. Since then that message is the block's own text. Not for: what a
person stopped, where SpecStory tells that among the agent's words (`specstory_stops`).

Source: specstoryai/getspecstory, `providers/cursoride` (`agent_session.go` before and after 703f8aa,
`tool_handlers.go`).
"""

from __future__ import annotations

import re

from cursorbench.sessions.items import Outcome

_NAMES = frozenset({"Cursor IDE", "cursoride"})  # what the command line has called it
_RUNS = re.compile(r"^Status: \*\*(?:loading|pending|running)\*\*", re.MULTILINE)
_TELLING = ("Explanation: ", "Status: **", "User decision: **")  # texts of calls that ended well, too


def may_repeat(agent: str, line: str) -> bool:
    """Whether the block that a line begins may show a call for the second time."""
    return agent in _NAMES and line.rstrip().endswith("<details>")


def is_bare(name: str, summary: str) -> bool:
    """Whether a block's heading tells the tool's name and nothing that was asked of it."""
    return summary == f"Tool use: **{name}**"


def is_open(agent: str, text: str) -> bool:
    """Whether a call still ran when its transcript was written."""
    return agent in _NAMES and _RUNS.search(text) is not None


def outcome(agent: str, name: str, summary: str, text: str) -> Outcome | None:
    """How a call ended of whose block only `text`, Cursor's own message, is known; None: it does not tell."""
    if agent not in _NAMES:
        return None
    if text == "Cancelled":
        return "interrupted"
    return "error" if text and is_bare(name, summary) and not text.startswith(_TELLING) else None
