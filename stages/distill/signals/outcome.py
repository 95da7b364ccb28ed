"""Signals `edited` and `clarified`: whether the episode changed code, or ended in a question without.

The stabiliser of the reward lives on these two, so that questions in place of risky edits do not pay.
"""

from __future__ import annotations

import re

from stages.distill.signals.edits import Edits
from stages.distill.text import prose

_CALL = re.compile(r"<tool_call>.*?(?:</tool_call>|\Z)", re.DOTALL)
_INLINE_CODE = re.compile(r"`[^`\n]*`")
_QUESTION = re.compile(r"[\w`)\]\"']\?[\s*_\"')]*(?:\s|$)")
_LAST = 160  # characters: where an answer that asks does so
_THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
_ASKS = re.compile(
    r"\b(?:please|could you|can you|would you)\b[^.?!]{0,30}\b(?:clarify|specify|confirm|tell me|explain|"
    r"give me|provide|share|let me know (?:what|which|how|if|whether|where))\b"
    r"|\b(?:i need (?:to know|more)|not sure (?:what|which|how|if|whether)|which one|what exactly)\b",
    re.IGNORECASE,
)


def asks(answer: str) -> bool:
    """Whether the raw text of a final answer ends in a question to the user.

    There is a question near its end, or its text asks for information without a question mark.
    """
    said = prose(_INLINE_CODE.sub("`", _CALL.sub(" ", _THOUGHT.sub(" ", answer))))
    return bool(_QUESTION.search(said[-_LAST:]) or _ASKS.search(said))


def outcome(edits: Edits, answer: str) -> tuple[float, float]:
    """(edited, clarified) of an episode.

    Args:
        edits: what became of its edits.
        answer: raw text of its last answer.
    """
    edited = bool(edits.changes or edits.unseen)
    return float(edited), float(not edited and asks(answer))
