"""What a person wrote in a message that Cline, Roo or Kilo put together. For `spoken`.

The words stand in a tag: a task, what was written when it went on, an answer. Behind them come files, a list
of what is to be done and the state of the editor. Not for: results of calls that a person answered.

By hand and not by one pattern: one with a tag's end, and blank lines on both sides of the words, takes a time
that grows with the cube of the blank lines in a message.
"""

from __future__ import annotations

import re

_TAGS = ("task", "user_message", "feedback")
_RESUMED = "[TASK RESUMPTION] "
_MOST = 4000  # characters of what is said of a task that goes on
_LEAD = re.compile(
    r"New (?:message to respond to|instructions for task continuation)[^\n]{0,300}:"
    r"|The user provided the following feedback:"
)
_EDITOR = "<environment_details>"
_END = re.compile(r"[ \t]*+(?:\n|\Z)")


def asked(text: str) -> tuple[str, str] | None:
    """(what is around it, what the person wrote) of such a message; None for any other text.

    A tag with nothing of the client's before it, nor the editor's state behind it, may be a person's own.
    """
    start = len(text) - len(text.lstrip())
    lead = (
        _LEAD.search(text, start, start + _MOST)
        if text.startswith(_RESUMED, start)
        else _LEAD.match(text, start)
    )
    if lead:
        start = len(text) - len(text[lead.end() :].lstrip())
    tag = next((one for one in _TAGS if text.startswith(f"<{one}>", start)), "")
    begin = start + len(tag) + 2
    first = len(text) - len(text[begin:].lstrip())
    if not tag or "\n" not in text[begin:first]:
        return None
    closed = _closed(text, f"</{tag}>", begin)
    if closed is None:
        return None
    end, behind = closed
    if not lead and _EDITOR not in text[behind:]:
        return None
    return f"{text[:start].strip()}\n{text[behind:].strip()}".strip(), text[begin:end].strip()


def _closed(text: str, tag: str, begin: int) -> tuple[int, int] | None:
    """Where the words end and what is behind them begins: at the first such tag on a line of its own."""
    place = text.find(tag, begin)
    while place >= 0:
        before = place
        while text[before - 1] in " \t\r":
            before -= 1
        if text[before - 1] == "\n" and _END.match(text, place + len(tag)):
            return place, place + len(tag)
        place = text.find(tag, place + 1)
    return None
