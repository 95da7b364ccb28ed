"""Where the lines of code end: for git, editors and parsers at a newline, a carriage return, or both.

Not for: what people read. Python's `splitlines` ends a line at form feeds and other blanks, too, which
parsers pass over: a line written with them would fall into pieces that are too short to be recognised.
"""

from __future__ import annotations

import re

# what nobody sees: marks without width, direction marks, selectors, tags, fillers, the blank of Braille. With
# one of them behind a line it was another line, which stays, for nobody finds it
_UNSEEN = re.compile(
    "[\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff]+"
)


def seen(text: str) -> str:
    """The text without what shows nothing, a byte order mark included."""
    if text.isascii():
        return text
    # a file has one such line and a thousand others: the pattern takes ten times as long to pass them over
    return "\n".join(line if line.isascii() else _UNSEEN.sub("", line) for line in text.split("\n"))


def code_lines(text: str) -> list[str]:
    r"""The lines of a text as they are `seen`, without their ends; "a\n" is one line, "" none."""
    text = seen(text)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.removesuffix("\n").split("\n") if text else []
