"""What the agent thought in an answer of Aider's history: it stands before the rest, in a tag.

The tag is Aider's own (`<thinking-content-...>`, where the service tells thoughts apart) or the model's
(`<think>`, at the beginning of an answer). Aider takes thoughts out before it looks for edits. For
`aider_session`.

Source: Aider-AI/aider, reasoning_tags.py and base_coder.py, 0.74 to 0.86.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_OPENS = re.compile(r"^(?:<(think|thinking-content-\w+)>|► \*\*THINKING\*\*)")
_SHOWN = "► **ANSWER**"  # ends what was copied from the screen


def apart(lines: Sequence[str]) -> tuple[str, list[tuple[int, str]]]:
    """An answer's thoughts, and the lines of the rest with their places in `lines`; blank ends left out.

    A tag that is never closed is all thoughts: the answer was stopped there.
    """
    thoughts: list[str] = []
    said: list[tuple[int, str]] = []
    end = ""
    for number, whole in enumerate(lines):
        line, opens = whole, _OPENS.match(whole)
        if opens and not end and (opens[1] != "think" or not said):
            end, line = f"</{opens[1]}>" if opens[1] else _SHOWN, whole[opens.end() :]
        if end:
            thought, closed, line = line.partition(end)
            thoughts.append(thought)
            if not closed:
                continue
            end = ""
        if said or line.strip():
            said.append((number, line))
    while said and not said[-1][1].strip():
        said.pop()
    return "\n".join(thoughts).strip(), said
