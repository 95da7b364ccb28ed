"""Did the agent ask, or act, where it should?

A task is marked `ambiguous` in its metadata when its instruction cannot be followed without an answer from
the user. There, to ask is right and to guess is not; elsewhere to ask is wrong, because the user has said
enough. An instruction to investigate is followed by an answer, with or without a change: nothing is judged.
Reported beside correctness, never pooled with it.
"""

from __future__ import annotations

import re
from typing import Literal

from cursorbench.tasks.task import Intent

Did = Literal["acted", "asked", "answered"]
_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`|https?://\S+", re.DOTALL)
_LAST = 400  # characters of the last message in which a question counts


def did(diff: str, final_text: str) -> Did:
    """What the agent did: changed files, else asked the user something, else only spoke."""
    if diff.strip():
        return "acted"
    said = _CODE.sub(" ", final_text).strip()
    return "asked" if "?" in said[-_LAST:] else "answered"


def right(what: Did, intent: Intent, *, ambiguous: bool) -> bool | None:
    """Whether that was right; None where either would be."""
    if ambiguous:
        return what == "asked"
    return None if intent == "investigate" else what == "acted"
