"""Signals `edited` and `clarified`: whether the episode changed code, or ended in a question without.

The stabiliser of the reward lives on these two, so that questions in place of risky edits do not pay.
"""

from __future__ import annotations

from collections.abc import Sequence

from stages.distill.signals.edits import Edits
from stages.distill.text import LIMIT, column, prose

_CALL = r"(?s)<tool_call>.*?(?:</tool_call>|\z)"
_INLINE_CODE = r"`[^`\n]*`"
_QUESTION = r"""[\w`)\]"']\?[\s*_"')]*(?:\s|$)"""
_LAST = 160  # characters: where an answer that asks does so
_THOUGHT = r"(?s)<think>.*?(?:</think>|\z)"
_ASKS = (
    r"(?i)\b(?:please|could you|can you|would you)\b[^.?!]{0,30}\b(?:clarify|specify|confirm|tell me|explain|"
    r"give me|provide|share|let me know (?:what|which|how|if|whether|where))\b"
    r"|\b(?:i need (?:to know|more)|not sure (?:what|which|how|if|whether)|which one|what exactly)\b"
)


def asks(answers: Sequence[str]) -> list[bool]:
    """Whether the raw text of each final answer ends in a question to the user.

    There is a question near its end, or its text asks for information without a question mark. Of a long
    answer the end is looked at, or a question would cost nothing behind enough words.
    """
    spoken = column(answers).str.replace_all(_THOUGHT, " ").str.replace_all(_CALL, " ").str.tail(LIMIT)
    said = column(prose(spoken.str.replace_all(_INLINE_CODE, "`").to_list()))
    found = said.str.tail(_LAST).str.contains(_QUESTION) | said.str.contains(_ASKS)
    return list(found.to_list())


def edited(edits: Edits) -> bool:
    """Whether the episode changed code, going by what became of its edits."""
    return bool(edits.changes or edits.unseen)
