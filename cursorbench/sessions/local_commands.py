"""What Claude Code tells the model of commands that a person ran in the client itself. For `automatic`.

`/model`, `/compact`, `!ls` ask nothing of the model: the client puts them, and what they gave, before the
words of the next message, each in a tag. Source: requests of Claude Code 2.1.332. Not for: commands that
became a prompt, behind which nothing was given.
"""

from __future__ import annotations

import re

_TAG = re.compile(
    r"\s*<(local-command-(?:caveat|stdout|stderr)|command-(?:name|message|args|contents)"
    r"|bash-(?:input|stdout|stderr))>"
)
_GIVEN = ("local-command-", "bash-std")  # tags of what a command gave, and of the word that goes before all


def behind(text: str, start: int) -> int:
    """Where the text goes on behind the last thing that a command gave; `start` where it begins with none."""
    found = at = start
    while tag := _TAG.match(text, at):
        close = f"</{tag[1]}>"
        end = text.find(close, tag.end())
        if end < 0:
            break
        at = end + len(close)
        if tag[1].startswith(_GIVEN):
            found = at
    return found
